"""The argument list of the installed SGLang, read from its source: importing it would take half a minute and a GPU.

Up to 0.5.22 the fields stand in ``ServerArgs`` (``srt/server_args.py``); 0.5.23 moved them into the classes of
``srt/arg_groups/fields/``. Names that SGLang has retired are registered with ``add_argument(..., new_flag=...)``.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from profkit.traces import UsageError

PLAIN_TYPES = {"bool": bool, "int": int, "float": float, "str": str}
VERSION = re.compile(r"^__version__\s*(?:=\s*version\s*)?=\s*['\"]([^'\"]+)", re.MULTILINE)
WRAPPERS = ("Optional", "A", "Annotated")


@dataclass(frozen=True, slots=True)
class Argument:
    """One server argument. ``kind`` is ``None`` where its type is not a plain one, ``flag`` its command-line name.

    ``is_list`` takes several values after the flag; ``choices`` is empty where anything goes. ``by_default`` is true
    for a switch that is on unless told otherwise, and ``has_no`` where ``--no-…`` tells it.
    """

    name: str
    flag: str
    kind: type | None = None
    is_list: bool = False
    choices: tuple[object, ...] = ()
    hidden: bool = False
    by_default: bool = False
    has_no: bool = False


@dataclass(frozen=True, slots=True)
class ServerArguments:
    """All arguments by field name, the retired names with the flag that replaces each, and other spellings."""

    version: str
    fields: Mapping[str, Argument]
    retired: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


def find_sglang() -> Path | None:
    """The folder of the installed SGLang package; ``None`` where there is none."""
    found = importlib.util.find_spec("sglang")
    places = list(found.submodule_search_locations or []) if found else []
    return Path(places[0]) if places else None


def assumed_arguments(server: Mapping[str, object]) -> ServerArguments:
    """``server`` taken on trust, to show a plan on a machine without SGLang."""
    fields = {name: Argument(name, _default_flag(name), is_list=isinstance(server[name], list)) for name in server}
    return ServerArguments("(not installed)", fields)


def _default_flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def sglang_version(package: Path) -> str:
    """The release of the SGLang in ``package``, or ``unknown``."""
    for file in (package / "_version.py", package / "version.py"):
        shown = VERSION.search(file.read_text("utf-8")) if file.is_file() else None
        if shown:
            return shown[1]
    return "unknown"


def read_arguments(package: Path) -> ServerArguments:
    """The argument list of the SGLang in ``package``; ``UsageError`` where its source is laid out in a new way."""
    version = sglang_version(package)
    main = _parse(package / "srt" / "server_args.py", version)
    groups = [_parse(file, version) for file in sorted((package / "srt" / "arg_groups" / "fields").glob("*.py"))]
    choices = package / "srt" / "arg_groups" / "choices.py"
    lists = _constant_lists([main, *groups, *([_parse(choices, version)] if choices.is_file() else [])])
    classes = [node for tree in (main, *groups) for node in tree.body if isinstance(node, ast.ClassDef)]
    if groups:
        classes = [node for tree in groups for node in tree.body if isinstance(node, ast.ClassDef)]
    else:
        classes = [node for node in classes if node.name == "ServerArgs"]
    by_hand = {flag: call for call in _registrations(main) for flag in _flags(call)}
    every = (argument for node in classes for argument in _fields(node, lists))
    fields = {
        argument.name: replace(argument, has_no=argument.has_no or _is_optional(by_hand.get(argument.flag)))
        for argument in every
        if not argument.hidden or argument.flag in by_hand
    }
    if "model_path" not in fields:
        raise UsageError(f"SGLang {version}: its argument list is not where profkit looks for it; update profkit")
    spellings = [
        *map(_flags, by_hand.values()),
        *(_spellings(node) for tree in (main, *groups) for node in _args(tree)),
    ]
    return ServerArguments(version, fields, dict(_retired(main)), _aliases(spellings, fields))


def _registrations(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls that register flags one by one: all before 0.5.13, then those with choices known only at run time."""
    for call in ast.walk(tree):
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        if named and isinstance(call, ast.Call) and not any(keyword.arg == "new_flag" for keyword in call.keywords):
            yield call


def _flags(call: ast.Call) -> list[str]:
    return [str(_literal(word)) for word in call.args]


def _is_optional(call: ast.Call | None) -> bool:
    """Whether a call asks for ``--no-…`` too."""
    return any(keyword.arg == "action" and _has_no(keyword.value) for keyword in (call.keywords if call else []))


def _has_no(action: ast.expr | None) -> bool:
    return isinstance(action, ast.Attribute) and action.attr == "BooleanOptionalAction"


def _args(tree: ast.Module) -> Iterator[ast.AnnAssign]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))


def _spellings(field_: ast.AnnAssign) -> list[str]:
    """The field's own flag and its aliases."""
    listed = (
        _literal(keyword.value)
        for call in ast.walk(field_.annotation)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "aliases"
    )
    name = field_.target.id if isinstance(field_.target, ast.Name) else ""
    return [_default_flag(name), *(str(one) for aliases in listed if isinstance(aliases, list) for one in aliases)]


def _aliases(spellings: Iterable[list[str]], fields: Mapping[str, Argument]) -> dict[str, str]:
    """Other names of fields: those that stand beside a field's own among the flags of one argument."""
    found: dict[str, str] = {}
    for names in ([flag.removeprefix("--").replace("-", "_") for flag in flags] for flags in spellings):
        own = next((name for name in names if name in fields), None)
        if own:
            found |= {name: own for name in names if name not in fields}
    return found


def _parse(file: Path, version: str) -> ast.Module:
    try:
        return ast.parse(file.read_text("utf-8"))
    except (OSError, SyntaxError) as error:
        raise UsageError(f"SGLang {version}: cannot read {file} ({error}); install it again") from error


def _constant_lists(trees: list[ast.Module]) -> dict[str, tuple[object, ...]]:
    """Module-level lists of plain values by name: what ``choices=NAME`` refers to."""
    found = {}
    for node in (statement for tree in trees for statement in tree.body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values = _literal(node.value)
            if isinstance(values, list | tuple):
                found[node.targets[0].id] = tuple(values)
    return found


def _literal(node: ast.AST | None) -> object:
    try:
        return ast.literal_eval(node) if isinstance(node, ast.expr) else None
    except ValueError:
        return None


def _fields(node: ast.ClassDef, lists: Mapping[str, tuple[object, ...]]) -> Iterator[Argument]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            argument = _argument(statement.target.id, statement.annotation, lists)
            yield replace(argument, by_default=_literal(statement.value) is True)


def _argument(name: str, annotation: ast.expr, lists: Mapping[str, tuple[object, ...]]) -> Argument:
    options = {
        keyword.arg: keyword.value
        for call in ast.walk(annotation)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Arg"
        for keyword in call.keywords
        if keyword.arg
    }
    inner = _unwrapped(annotation)
    shape = inner.value.id if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Name) else ""
    is_list = shape in ("List", "list") and "type_parser" not in options
    base = inner.slice if is_list and isinstance(inner, ast.Subscript) else inner
    named = options.get("choices")
    choices = lists.get(named.id, ()) if isinstance(named, ast.Name) else _literal(named)
    if shape == "Literal" and isinstance(inner, ast.Subscript):
        choices = _literal(inner.slice)
    flag = _literal(options.get("cli_name")) or _default_flag(name)
    kind = PLAIN_TYPES.get(base.id) if isinstance(base, ast.Name) and "type_parser" not in options else None
    return Argument(
        name,
        str(flag),
        kind,
        is_list,
        tuple(choices) if isinstance(choices, list | tuple) else (),
        hidden=bool(_literal(options.get("no_cli"))),
        has_no=_has_no(options.get("action")),
    )


def _unwrapped(annotation: ast.expr) -> ast.expr:
    """The type inside ``A[...]`` and ``Optional[...]``."""
    while isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        if annotation.value.id not in WRAPPERS:
            break
        inner = annotation.slice
        annotation = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
    return annotation


def _retired(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Retired field names, and the flag that each release of SGLang names as the new one."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        flag = _literal(call.args[0])
        new = next((_literal(keyword.value) for keyword in call.keywords if keyword.arg == "new_flag"), None)
        if isinstance(flag, str) and isinstance(new, str):
            yield flag.removeprefix("--").replace("-", "_"), new
