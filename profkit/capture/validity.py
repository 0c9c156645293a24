"""What a configuration may say. Each file and each override is checked by itself, so that a message names its place."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec

from profkit.traces import UsageError

from .models import SHAPES, layer_limits, target_config
from .secrets import is_secret
from .settings import Dummy, LoadSettings, Settings, Windows

TABLES: Mapping[str, type[msgspec.Struct]] = {"dummy": Dummy, "load": LoadSettings, "windows": Windows}
FREE = ("server", "env")
A_DAY = 86400.0

ALIASES: Mapping[str, str] = {
    "model": "model_path", "speculative_draft_model": "speculative_draft_model_path",
    "tp": "tp_size", "tensor_parallel_size": "tp_size", "pp": "pp_size", "pipeline_parallel_size": "pp_size",
    "dp": "dp_size", "data_parallel_size": "dp_size", "ep": "ep_size", "expert_parallel_size": "ep_size",
}  # fmt: skip
"""Other spellings on SGLang's command line of arguments that capture reads itself."""

UNSAFE = "leave it out: the server listens on 127.0.0.1 only, and recordings store command lines"
GRAPHS = "leave it out and give --graphs off, so that the sweep says so too"
REFUSED: Mapping[str, str] = {
    "api_key": UNSAFE, "admin_api_key": UNSAFE, "ssl_keyfile_password": UNSAFE,
    "host": "leave it out: capture starts the server on 127.0.0.1 and talks to it there",
    "disable_cuda_graph": GRAPHS, "disable_decode_cuda_graph": GRAPHS,
}  # fmt: skip

LOWEST: Mapping[str, float] = {
    "windows.steps": 3, "load.prompt_len": 1, "load.output_len": 1, "windows.measure_s": 0.1, "windows.record_s": 1,
    "windows.start_s": 1, "windows.hang_s": 1, "dummy.layers": 1,
}  # fmt: skip
"""Windows are 0 or more where nothing else is said."""

NUMBERS: Mapping[str, tuple[int, int | None]] = {
    "port": (1, 65535), "base_gpu_id": (0, None),
    **dict.fromkeys(
        ("tp_size", "pp_size", "dp_size", "ep_size", "gpu_id_step", "speculative_dflash_block_size",
         "max_running_requests", "cuda_graph_max_bs", "cuda_graph_max_bs_decode"), (1, None)),
}  # fmt: skip
"""Server arguments that capture reads itself, with the numbers that they can be."""

NUMBER_LISTS = ("cuda_graph_bs", "cuda_graph_bs_decode")
NOUNS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def checked(tree: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The settings of one file or override, server arguments by their field names; ``origin`` begins each message.

    Raises ``UsageError`` naming the setting and what to write.
    """
    return {key: _entry(key, value, origin) for key, value in tree.items()}


def wants_text(keys: Sequence[str]) -> bool:
    """Whether the setting at ``keys`` is text, so that a number given for it is text too."""
    if keys[0] == "env":
        return len(keys) > 1
    return len(keys) <= 2 and str in _types(_field_type(keys[0] if len(keys) == 2 else "", keys[-1]))


def check_together(settings: Settings) -> None:
    """Raise ``UsageError`` for settings that are right one by one and cannot work together."""
    dummy, server = settings.dummy, settings.server
    if dummy and dummy.drafter and "speculative_dflash_block_size" not in server:
        raise UsageError("dummy.drafter needs server.speculative_dflash_block_size; set it, such as to 8")
    if dummy:
        _check_layers(dummy)
    if dummy and "model_path" not in server:
        _check_shares(dummy.target, server)
    if settings.load.text and server.get("skip_tokenizer_init"):
        raise UsageError("load.text needs a tokenizer, and server.skip_tokenizer_init is set; remove one of the two")


def _check_layers(dummy: Dummy) -> None:
    least, most = layer_limits(dummy.target, dummy.drafter)
    if dummy.layers is not None and not least <= dummy.layers <= most:
        what = f"{dummy.target} with a drafter" if dummy.drafter else dummy.target
        raise UsageError(f"dummy.layers: {dummy.layers} is impossible; give a number from {least} to {most} for {what}")


def _check_shares(target: str, server: Mapping[str, Any]) -> None:
    """The server would find the same only after it has started on every GPU."""
    config = target_config(target)
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size, experts_size = server.get("tp_size", 1), server.get("ep_size", 1)
    possible = [n for n in range(1, heads + 1) if heads % n == 0 and (groups % n == 0 or n % groups == 0)]
    if size not in possible and not server.get("enable_dp_attention"):
        fault = f"{size} GPUs cannot share the {heads} attention heads and {groups} KV heads of {target}"
        raise UsageError(f"server.tp_size: {fault}; give one of {', '.join(map(str, possible))}")
    if size % experts_size:
        fault = f"{experts_size} does not divide tp_size, which is {size}"
        raise UsageError(f"server.ep_size: {fault}; set both, such as to {size}")


def _entry(key: str, value: Any, origin: str) -> Any:
    if key in TABLES or key in FREE:
        if not isinstance(value, dict):
            raise UsageError(f"{origin}{key}: it is a table, not {value!r}; write {key}.KEY=VALUE or [{key}]")
        if key == "server":
            return {_argument_name(name): _server(_argument_name(name), one, origin) for name, one in value.items()}
        return {name: (_env if key == "env" else _leaf)(name, one, origin, key) for name, one in value.items()}
    return _leaf(key, value, origin)


def _field_type(table: str, key: str) -> Any:
    """The annotated type of a setting; ``None`` where there is none of that name."""
    fields = msgspec.structs.fields(TABLES.get(table, Settings))
    known = {field.name: field.type for field in fields if table or field.name not in (*TABLES, *FREE)}
    return known.get(key) if table in ("", *TABLES) else None


def _types(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def _leaf(key: str, value: Any, origin: str, table: str = "") -> Any:
    path = f"{table}.{key}" if table else key
    annotation = _field_type(table, key)
    if annotation is None:
        raise UsageError(f"{origin}{path}: no such setting{_near(path)}")
    try:
        plain = msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        kinds = _types(annotation)
        noun = NOUNS.get(kinds[0]) or f"one of {', '.join(map(str, kinds))}"
        raise UsageError(f"{origin}{path}: give {noun}, not {value!r}") from error
    _check_value(path, plain, origin)
    return plain


def _near(path: str) -> str:
    every = [f"{table}.{field}" for table, kind in TABLES.items() for field in kind.__struct_fields__]
    every += [field for field in Settings.__struct_fields__ if field not in TABLES]
    near = difflib.get_close_matches(path, every, n=1) or [one for one in every if one.endswith(f".{path}")][:1]
    return f"; did you mean {near[0]}?" if near else "; see docs/capture.md for what there is"


def _check_value(path: str, value: Any, origin: str) -> None:
    if path == "name" and (not re.fullmatch(r"[^\W.][\w .+\-]{0,99}", value)):
        raise UsageError(f"{origin}name: {value!r} names a folder too; use letters, digits, '-', '_' and '.' only")
    if path == "dummy.target" and value not in SHAPES:
        raise UsageError(f"{origin}dummy.target: no shape {value!r}; use one of {', '.join(SHAPES)}")
    if path == "load.seed" or isinstance(value, bool) or not isinstance(value, int | float):
        return
    low = LOWEST.get(path, 0)
    high = A_DAY if path.endswith("_s") else math.inf
    if not (math.isfinite(value) and low <= value <= high):
        most = f" to {high:g}" if high < math.inf else " on"
        raise UsageError(f"{origin}{path}: {value} is impossible; give a number from {low:g}{most}")


def _env(name: str, value: Any, origin: str, table: str) -> str:
    where = f"{origin}{table}.{name}"
    if not isinstance(value, str):
        like = str(value).lower() if isinstance(value, bool) else value
        raise UsageError(f'{where}: the value of a variable is text; write {name} = "{like}"')
    if not name or "=" in name or "\0" in name + value:
        raise UsageError(f"{where}: no variable can have that name or value; check its spelling")
    if is_secret(name, value):
        advice = "leave it out, download the model first, and give its folder with server.model_path"
        fault = "looks like a credential, which is not passed to a recorded server: nsys stores its whole environment"
        raise UsageError(f"{where}: {fault}; {advice}")
    return value


def _argument_name(name: str) -> str:
    return name.replace("-", "_")


def _server(name: str, value: Any, origin: str) -> Any:
    where = f"{origin}server.{name}"
    if name in REFUSED:
        raise UsageError(f"{where}: {REFUSED[name]}")
    if name in ALIASES:
        raise UsageError(f"{where}: write server.{ALIASES[name]}, the name of SGLang's field")
    if any(is_secret(key, text) or "\0" in text for key, text in _texts(name, value)):
        advice = "leave it out, download the model first, and give its folder with server.model_path"
        raise UsageError(f"{where}: holds what looks like a credential, and recordings store command lines; {advice}")
    if name in NUMBER_LISTS:
        if not isinstance(value, list) or not value:
            raise UsageError(f"{where}: give a list of numbers, such as [1, 2, 4], not {value!r}")
        return [_number(one, where, 1, None) for one in value]
    return _number(value, where, *NUMBERS[name]) if name in NUMBERS else value


def _texts(name: str, value: Any) -> Iterable[tuple[str, str]]:
    """The texts in a value with the name of each."""
    if isinstance(value, dict):
        return [pair for key, one in value.items() for pair in _texts(str(key), one)]
    if isinstance(value, list):
        return [pair for one in value for pair in _texts(name, one)]
    return [(name, value)] if isinstance(value, str) else []


def _number(value: Any, where: str, low: int, high: int | None) -> int:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,12}", value) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise UsageError(f"{where}: give a whole number, not {value!r}")
    if number < low or (high is not None and number > high):
        raise UsageError(f"{where}: {number} is impossible; give a number from {low}{f' to {high}' if high else ' on'}")
    return number
