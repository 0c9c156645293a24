"""Making sure that the server finds profkit's plugin, also where profkit and SGLang are only on ``PYTHONPATH``.

SGLang looks for the entry point ``profkit`` in the group ``sglang.srt.plugins``; a package that was unpacked and not
installed has none, so a folder with nothing but that entry point goes on ``PYTHONPATH`` beside it.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

import profkit
from profkit.sglang import ENABLE_VARIABLE, FOLDER_VARIABLE

GROUP, NAME, TARGET = "sglang.srt.plugins", "profkit", "profkit.sglang.plugin:activate"
METADATA = "Metadata-Version: 2.1\nName: profkit-capture-plugin\nVersion: 0\n"


def plugin_environment(environment: Mapping[str, str], scratch: Path, output: Path) -> dict[str, str]:
    """The variables that turn the plugin on in a server: it writes into ``output``, and is found from ``scratch``."""
    paths = [str(Path(profkit.__file__).resolve().parents[1])]
    if not is_installed():
        paths.insert(0, str(_write_entry_point(scratch)))
    inherited = environment.get("PYTHONPATH")
    found = {ENABLE_VARIABLE: "1", FOLDER_VARIABLE: str(output)}
    every = [*paths, *(inherited.split(os.pathsep) if inherited else [])]
    found["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(every))
    others = environment.get("SGLANG_PLUGINS")
    if others and NAME not in others.split(","):
        found["SGLANG_PLUGINS"] = f"{others},{NAME}"
    return found


class _Runner(msgspec.Struct):
    gpu_id: int | None = None


class _ProcessRecord(msgspec.Struct):
    pid: int
    probes: list[dict[str, str | None]] = []
    missing: list[dict[str, str | None]] = []
    faults: list[dict[str, str | None]] = []
    sglang: str = ""
    taken_for: str | None = None
    runners: list[_Runner] = []
    remarks: list[str] = []


@dataclass(frozen=True, slots=True)
class PluginReport:
    """What the plugin did in the server's processes: the rank of each, and sentences about what is amiss."""

    ranks: Mapping[int, int]
    amiss: tuple[str, ...]


def read_report(folder: Path) -> PluginReport:
    """The records that the plugin left in ``folder``, one of each process; none at all is amiss too."""
    records = [record for file in sorted(folder.glob("plugin-*.json")) for record in _read(file)]
    ranks = {one.pid: runner.gpu_id for one in records for runner in one.runners if runner.gpu_id is not None}
    missing = {f"the plugin's probe {entry.get('target')} is missing" for one in records for entry in one.missing}
    faults = {f"a hook failed at {entry.get('where')}: {entry.get('error')}" for one in records for entry in one.faults}
    assumed = {
        f"SGLang's version {one.sglang} names no release: the plugin takes it for {one.taken_for}"
        for one in records
        if one.taken_for
    }
    remarks = {remark for one in records for remark in one.remarks}
    amiss = sorted(missing | faults | assumed | remarks)
    if not any(one.probes for one in records):
        amiss.insert(0, "the plugin was not loaded by the server: steps will have no names; see server.log")
    return PluginReport(ranks, tuple(amiss))


def _read(file: Path) -> list[_ProcessRecord]:
    """The record in ``file``; none while its process is still writing it."""
    try:
        return [msgspec.json.decode(file.read_bytes(), type=_ProcessRecord)]
    except (OSError, msgspec.MsgspecError):
        return []


def is_installed() -> bool:
    """Whether a package of this Python has an entry point called ``profkit``."""
    return any(point.name == NAME for point in importlib.metadata.entry_points(group=GROUP))


def _write_entry_point(scratch: Path) -> Path:
    folder = scratch / "plugin-path"
    information = folder / "profkit_capture_plugin-0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text(METADATA, "utf-8")
    (information / "entry_points.txt").write_text(f"[{GROUP}]\n{NAME} = {TARGET}\n", "utf-8")
    return folder
