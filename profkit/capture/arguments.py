"""Checking server arguments against the installed SGLang, and writing them as its command line."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from profkit.traces import UsageError

from .sglang_source import Argument, ServerArguments

OLDER_NAMES: Mapping[str, str] = {
    "cuda_graph_bs_decode": "cuda_graph_bs",
    "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "disable_decode_cuda_graph": "disable_cuda_graph",
    "disable_prefill_cuda_graph": "disable_piecewise_cuda_graph",
}
"""What releases before 0.5.13 call the arguments that the presets use."""

NEWER_NAMES = {"cuda_graph_bs": "cuda_graph_bs_decode", "cuda_graph_max_bs": "cuda_graph_max_bs_decode"}


def resolve(server: Mapping[str, Any], known: ServerArguments) -> tuple[dict[str, Any], list[str]]:
    """The arguments by the names and types of the installed release, and what had to be renamed, as sentences.

    Raises ``UsageError`` naming the argument and the release where one is unknown or has an impossible value.
    """
    resolved, renamed = {}, []
    for name, value in server.items():
        argument = _find(name, known)
        if argument.name != name:
            renamed.append(f"SGLang {known.version} calls {name} {argument.name}")
        resolved[argument.name] = _converted(argument, value, known.version)
    return resolved, renamed


def _find(name: str, known: ServerArguments) -> Argument:
    if name in known.fields:
        return known.fields[name]
    newer = known.retired.get(name, "").removeprefix("--").replace("-", "_")
    for other in (newer, OLDER_NAMES.get(name, ""), NEWER_NAMES.get(name, "")):
        if other in known.fields:
            return known.fields[other]
    if name in known.retired:
        raise UsageError(f"server.{name}: SGLang {known.version} has retired it; use {known.retired[name]}")
    raise UsageError(f"server.{name}: SGLang {known.version} has no such argument{_similar(name, known)}")


def _similar(name: str, known: ServerArguments) -> str:
    if name in known.aliases:
        return f"; write server.{known.aliases[name]}, the name of its field"
    near = difflib.get_close_matches(name, known.fields, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else "; see `python -m sglang.launch_server --help`"


def _converted(argument: Argument, value: Any, version: str) -> Any:
    """``value`` as the argument takes it: text where it is text, a number where that is meant."""
    where = f"server.{argument.name}: SGLang {version} takes"
    if argument.is_list and not isinstance(value, list):
        raise UsageError(f"{where} a list, not {value!r}; write [1, 2]")
    if value is False and argument.by_default and not argument.has_no:
        raise UsageError(f"{where} no flag that turns it off; leave it out")
    if argument.is_list:
        return [_one(argument, one, where) for one in value]
    return _one(argument, value, where)


def _one(argument: Argument, value: Any, where: str) -> Any:
    plain = _of_kind(value, argument.kind)
    if argument.kind and not _fits(plain, argument.kind):
        raise UsageError(f"{where} {argument.kind.__name__}, not {value!r}")
    if argument.choices and plain not in argument.choices:
        raise UsageError(f"{where} one of {', '.join(map(str, argument.choices))}, not {value!r}")
    return plain


def _of_kind(value: Any, kind: type | None) -> Any:
    """A revision may look like a number, and a number may be written as text."""
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if kind in (int, float) and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return kind(value)
    return value


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def command_line(server: Mapping[str, Any], known: ServerArguments) -> list[str]:
    """``server`` (names of the installed release) as command-line flags; switches that are off anyway are left out."""
    return [word for name, value in server.items() for word in _flag(known.fields[name], value)]


def _flag(argument: Argument, value: Any) -> Iterator[str]:
    if value is False and argument.has_no:
        yield argument.flag.replace("--", "--no-", 1)
    if value is False or value is None:
        return
    yield argument.flag
    if isinstance(value, list) and argument.is_list:
        yield from map(str, value)
    elif isinstance(value, list | dict):
        yield json.dumps(value)
    elif value is not True:
        yield str(value)
