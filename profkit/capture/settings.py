"""What to capture: a configuration as TOML, with what it extends and with the user's overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from profkit.traces import InputError, UsageError

from .secrets import shown

PRESETS = Path(__file__).parent / "presets"
GraphMode = Literal["on", "off", "both"]
REFUSED = ("api_key", "admin_api_key", "ssl_keyfile_password")


class Dummy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A generated model without weights: a shape of ``models.SHAPES``, and whether it has a DFlash drafter."""

    target: str
    drafter: bool = False


class LoadSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requests. ``prompts`` is a JSONL file of ``{"text": ...}`` or ``{"input_ids": [...]}``; random without it.

    Lengths in tokens; ``text`` sends random prompts as words, not as token ids.
    """

    prompt_len: int = 128
    output_len: int = 1024
    prompts: str | None = None
    text: bool = False
    seed: int = 1


class Windows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long each part of a run may take: seconds, and decode steps to record."""

    steps: int = 8
    warm_up_s: float = 20.0
    measure_s: float = 3.0
    record_s: float = 60.0
    start_s: float = 480.0
    hang_s: float = 60.0
    stop_s: float = 20.0
    report_s: float = 150.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration. ``server`` holds SGLang's own arguments by field name, ``env`` variables for the server."""

    name: str
    description: str = ""
    graphs: GraphMode = "on"
    dummy: Dummy | None = None
    server: dict[str, Any] = {}
    env: dict[str, str] = {}
    load: LoadSettings = LoadSettings()
    windows: Windows = Windows()

    @property
    def gpus(self) -> int:
        """How many GPUs the server takes."""
        if self.server.get("device") == "cpu":
            return 0
        sizes = (self.server.get(key, 1) for key in ("tp_size", "pp_size"))
        tensor, pipeline = (int(size) for size in sizes)
        return tensor * pipeline

    @property
    def port(self) -> int:
        """The server's HTTP port."""
        return int(self.server.get("port", 30000))

    def record(self) -> dict[str, Any]:
        """The configuration as it goes into the sweep: without the values of secrets."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        plain["env"] = {name: shown(name, value) for name, value in self.env.items()}
        return plain


def preset_names() -> list[str]:
    """The names of the configurations that come with profkit."""
    return sorted(file.stem for file in PRESETS.glob("*.toml"))


def load_settings(config: str, overrides: Sequence[str] = (), steps: int | None = None) -> Settings:
    """The configuration ``config`` (a preset's name or a TOML file) with ``KEY=VALUE`` overrides.

    Raises ``InputError`` for a file that cannot be read and ``UsageError`` for a setting that makes no sense.
    """
    file = _file_of(config, Path.cwd())
    tree = _read(file, frozenset())
    tree.setdefault("name", file.stem)
    for override in overrides:
        _apply(tree, override)
    if steps is not None:
        tree.setdefault("windows", {})["steps"] = steps
    return _checked(tree, config)


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
    """The settings of ``file`` over those of what it extends."""
    try:
        own = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(file, f"cannot read ({error.strerror})", "check the path, or see `capture --list`") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(file, f"no TOML ({error})", "mend the file; see docs/capture.md") from error
    parent = own.pop("extends", None)
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


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _apply(tree: dict[str, Any], override: str) -> None:
    path, separator, text = override.partition("=")
    *tables, key = path.strip().split(".")
    if not separator or not all((*tables, key)):
        raise UsageError(f"--set {path.strip()}: give it as KEY=VALUE, such as server.tp_size=2")
    for table in tables:
        tree = tree.setdefault(table, {})
        if not isinstance(tree, dict):
            raise UsageError(f"--set {path.strip()}: '{table}' is a value, not a table")
    tree[key] = _value(text.strip(), in_env=tables == ["env"])


def _value(text: str, in_env: bool) -> Any:
    """``text`` as TOML where it is TOML (numbers, true, lists), otherwise as a string."""
    if in_env:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _checked(tree: dict[str, Any], config: str) -> Settings:
    refused = [key for key in REFUSED if key in tree.get("server", {})]
    if refused:
        advice = "leave it out: the server listens on 127.0.0.1 only, and recordings store command lines"
        raise UsageError(f"server.{refused[0]}: {advice}")
    try:
        settings = msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"configuration '{config}': {error}; see docs/capture.md for its keys") from error
    lowest = {"windows.steps": settings.windows.steps, "load.prompt_len": settings.load.prompt_len,
              "load.output_len": settings.load.output_len}  # fmt: skip
    for key, value in lowest.items():
        if value < 1:
            raise UsageError(f"{key} is {value}; give a number from 1")
    return settings
