"""Reading a configuration: a preset or a TOML file, with what it extends and with the user's overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from profkit.traces import InputError, UsageError

from .settings import Settings
from .validity import check_together, checked, wants_text
from .without_weights import OPTION, check_model_is_made, description_of, dummy_table, without_model

PRESETS = Path(__file__).parent / "presets"
WITHOUT_WEIGHTS = PRESETS / "base" / "pcie.toml"


def preset_names() -> list[str]:
    """The names of the configurations that come with profkit."""
    return sorted(file.stem for file in PRESETS.glob("*.toml"))


def load_settings(
    config: str, overrides: Sequence[str] = (), steps: int | None = None, without_weights: str | None = None
) -> Settings:
    """The configuration ``config`` (a preset's name or a TOML file) with ``KEY=VALUE`` overrides.

    ``without_weights`` (``SHAPE`` or ``SHAPE:LAYERS``) puts a generated model into the place of the configuration's.
    Raises ``InputError`` for a file that cannot be read and ``UsageError`` for a setting that makes no sense.
    """
    file = _file_of(config, Path.cwd())
    tree = {"name": file.stem, **_read(file, frozenset())}
    if without_weights is not None:
        dummy = checked({"dummy": dummy_table(without_weights)}, f"{OPTION}: ")["dummy"]
        tree = _merged(_read(WITHOUT_WEIGHTS, frozenset()), without_model(tree, dummy))
    for override in overrides:
        tree = _merged(tree, checked(_tree_of(override), "--set "))
    if steps is not None:
        tree = _merged(tree, checked({"windows": {"steps": steps}}, "--steps: "))
    if "dummy" in tree and "target" not in tree["dummy"]:
        raise UsageError(f"configuration '{config}': dummy.target is missing; set it, such as to qwen3-8b")
    settings = msgspec.convert(tree, Settings)
    check_together(settings)
    if without_weights is None or settings.dummy is None:
        return settings
    check_model_is_made(settings.server)
    described = settings.description or description_of(settings, settings.dummy)
    return msgspec.structs.replace(settings, description=described)


def _file_of(name: str, beside: Path) -> Path:
    preset = PRESETS / f"{name}.toml"
    if preset.is_file():
        return preset
    file = beside / name
    if file.suffix == ".toml":
        return file
    known = ", ".join(preset_names())
    raise UsageError(f"no configuration '{name}'; name a TOML file or one of {known}")


def _read(file: Path, seen: frozenset[Path]) -> dict[str, Any]:
    """The settings of ``file`` over those of what it extends, each checked by itself."""
    try:
        own = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(file, f"cannot read ({error.strerror})", "check the path, or see `capture --list`") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(file, f"no TOML ({error})", "mend the file; see docs/capture.md") from error
    parent = own.pop("extends", None)
    own = _with_prompts_beside(checked(own, f"{file}: "), file)
    if parent is None:
        return own
    if not isinstance(parent, str):
        raise InputError(file, "'extends' is no name", 'write extends = "tp8"')
    above = _file_of(parent, file.parent)
    if above.resolve() in seen | {file.resolve()}:
        raise InputError(file, f"extends '{parent}', which extends it in turn", "remove one of the two")
    inherited = _read(above, seen | {file.resolve()})
    inherited.pop("name", None)
    return _merged(inherited, own)


def _with_prompts_beside(own: dict[str, Any], file: Path) -> dict[str, Any]:
    """Prompts are looked for beside the file that names them, as what it extends is."""
    prompts = own.get("load", {}).get("prompts")
    return own if prompts is None else _merged(own, {"load": {"prompts": str(file.parent.absolute() / prompts)}})


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``above`` over ``below``. What is set last comes last: of two names for one server argument that one counts."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.pop(key, None)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _tree_of(override: str) -> dict[str, Any]:
    """``KEY=VALUE`` as the tables that a file would have."""
    path, separator, text = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not separator or not all(keys):
        raise UsageError(f"--set {path.strip()}: give it as KEY=VALUE, such as server.tp_size=2")
    tree: Any = _value(text.strip(), keys)
    for key in reversed(keys):
        tree = {key: tree}
    return dict(tree)


def _value(text: str, keys: Sequence[str]) -> Any:
    """``text`` as TOML where it is TOML (numbers, true, lists), otherwise as a string."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    if isinstance(value, str):
        return value
    # SGLang reads numbers of its arguments itself: a revision 12e4 is no number, and 0.90 need not become 0.9.
    exact = keys[0] == "server" and isinstance(value, int | float) and str(value) != text
    return text if wants_text(keys) or (exact and not isinstance(value, bool)) else value
