"""The rules that name kernels, ranges and host calls: the built-in ones, and a user's in front of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from profkit.traces import UsageError

from ..vocabulary import CLASSES, PHASES

FORWARD = "forward"
TABLES: dict[str, dict[str, type]] = {
    "collective": {"match": str, "kind": str, "library": str, "paired": bool},
    "class": {"match": str, "class": str},
    "phase": {"match": str, "phase": str},
    "blocking": {"match": str},
}
OPTIONAL = {"paired", "library"}


@dataclass(frozen=True, slots=True)
class Rule:
    """What matches ``pattern`` is a ``value``; for collectives also of which library, and whether ranks pair up."""

    pattern: re.Pattern[str]
    value: str
    library: str = ""
    paired: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by what they name; the first match wins."""

    collectives: tuple[Rule, ...]
    classes: tuple[Rule, ...]
    phases: tuple[Rule, ...]
    blocking: tuple[Rule, ...]
    user_phases: bool = False

    @staticmethod
    def match(rules: Sequence[Rule], text: str) -> Rule | None:
        """The first rule of ``rules`` that matches ``text``."""
        return next((rule for rule in rules if rule.pattern.search(text)), None)


def load_rules(path: Path | None = None) -> Rules:
    """The built-in rules, behind those of the TOML file at ``path``.

    Raises ``UsageError`` naming the file and the faulty entry.
    """
    own = _parse(resources.files(__name__).joinpath("default.toml").read_text("utf-8"), "built-in rules")
    if path is None:
        return own
    user = _parse(_read(path), str(path))
    return Rules(
        collectives=user.collectives + own.collectives,
        classes=user.classes + own.classes,
        phases=user.phases + own.phases,
        blocking=user.blocking + own.blocking,
        user_phases=bool(user.phases),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{path}: cannot read the rules ({reason}); give a TOML file") from error


def _parse(text: str, where: str) -> Rules:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: not valid TOML ({error}); see docs/rules.md for the tables") from error
    unknown = sorted(set(data) - set(TABLES))
    if unknown:
        raise UsageError(f"{where}: unknown table '{unknown[0]}'; use {', '.join(f'[[{name}]]' for name in TABLES)}")
    entries = {name: [_checked(name, entry, where) for entry in _listed(data, name, where)] for name in TABLES}
    return Rules(
        collectives=_rules(entries["collective"], "kind", where),
        classes=_rules(entries["class"], "class", where, CLASSES),
        phases=_rules(entries["phase"], "phase", where, (*PHASES, FORWARD)),
        blocking=_rules(entries["blocking"], "match", where),
    )


def _listed(data: dict[str, Any], name: str, where: str) -> list[Any]:
    value = data.get(name, [])
    if not isinstance(value, list):
        raise UsageError(f"{where}: '{name}' is no list of tables; write it as [[{name}]]")
    return value


def _checked(table: str, entry: Any, where: str) -> dict[str, Any]:
    columns = TABLES[table]
    for key, kind in columns.items():
        if key not in entry and key not in OPTIONAL:
            raise UsageError(f"{where}: a [[{table}]] entry has no '{key}'; add it")
        if key in entry and not isinstance(entry[key], kind):
            raise UsageError(f"{where}: '{key}' of a [[{table}]] entry must be a {kind.__name__}; correct it")
    strange = sorted(set(entry) - set(columns))
    if strange:
        raise UsageError(f"{where}: a [[{table}]] entry has an unknown key '{strange[0]}'; use {', '.join(columns)}")
    return dict(entry)


def _rules(
    entries: Iterable[dict[str, Any]], key: str, where: str, allowed: Sequence[str] | None = None
) -> tuple[Rule, ...]:
    rules = []
    for entry in entries:
        if allowed is not None and entry[key] not in allowed:
            raise UsageError(f"{where}: unknown {key} '{entry[key]}'; use one of {', '.join(allowed)}")
        try:
            pattern = re.compile(entry["match"], re.IGNORECASE)
        except re.error as error:
            raise UsageError(
                f"{where}: '{entry['match']}' is no regular expression ({error}); correct the pattern"
            ) from error
        rules.append(Rule(pattern, entry[key], entry.get("library", ""), entry.get("paired", True)))
    return tuple(rules)
