"""The record of a ``profkit capture`` run: ``sweep.json`` beside one bundle per concurrency."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from .errors import InputError, OutputError
from .model import RecordingCost, StepTimes

SCHEMA = "profkit.sweep/1"
RECORD = "sweep.json"


class SweepRun(msgspec.Struct, kw_only=True):
    """One recorded concurrency. Rates are tokens per second of the whole server.

    ``trace`` is the bundle's folder beside the record, or ``None`` where nothing could be recorded. ``tokens_per_s`` is
    the mean of the rates before and after the recording, as far as there are both. ``step_times`` are decode steps
    while nothing was recorded, ``step_times_recorded`` those within the recording by ``recorder``, and
    ``recording_cost`` compares them at the same contexts.
    """

    concurrency: int
    trace: str | None = None
    graphs: bool | None = None
    accept_len: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_recorded: float | None = None
    tokens_per_s_before: float | None = None
    tokens_per_s_after: float | None = None
    step_times: StepTimes | None = None
    step_times_recorded: StepTimes | None = None
    recording_cost: RecordingCost | None = None
    recorder: str = ""
    failure: str | None = None


class ServerFailure(msgspec.Struct, kw_only=True):
    """How a server ended that should not have: in which phase of the run, and the last lines of its log.

    ``recorder`` is who recorded it, empty in older records.
    """

    phase: str
    fault: str
    graphs: bool | None = None
    exit_status: int | None = None
    log: list[str] = []
    recorder: str = ""


class Sweep(msgspec.Struct, kw_only=True):
    """What is known of a run of the engine: configuration, hardware, versions, and the runs in it."""

    schema: str
    config: str
    runs: list[SweepRun]
    graphs: bool | None = None
    block_size: int | None = None
    graph_batch_sizes: list[int] = []
    engine: str = ""
    hardware: dict[str, Any] = {}
    versions: dict[str, str] = {}
    settings: dict[str, Any] = {}
    failures: list[ServerFailure] = []
    note: str = ""


def is_sweep(path: Path) -> bool:
    """Whether ``path`` is a folder with a sweep record, or the record itself."""
    return (path / RECORD).is_file() or (path.name == RECORD and path.is_file())


def load_sweep(path: Path) -> Sweep:
    """Read the record of the sweep at ``path``.

    Raises ``InputError`` naming the file where it cannot be read as one.
    """
    file = path if path.name == RECORD else path / RECORD
    try:
        sweep = msgspec.json.decode(file.read_bytes(), type=Sweep)
    except OSError as error:
        raise InputError(file, f"cannot read ({error.strerror})", "check the path and its permissions") from error
    except msgspec.MsgspecError as error:
        raise InputError(file, f"no sweep record ({error})", "name the bundles beside it one by one") from error
    if sweep.schema != SCHEMA:
        raise InputError(
            file, f"unknown sweep schema '{sweep.schema}'", "update profkit, or name the bundles one by one"
        )
    return sweep


def save_sweep(sweep: Sweep, folder: Path) -> None:
    """Write the record into ``folder``, whole or not at all: an older one stays until then.

    Raises ``OutputError`` where that is impossible.
    """
    encoded = msgspec.json.format(msgspec.json.encode(sweep), indent=1)
    file = folder / RECORD
    part = file.with_suffix(".part")
    try:
        part.write_bytes(encoded + b"\n")
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        advice = "free some space, or check the permissions"
        raise OutputError(file, f"cannot write the record ({error.strerror})", advice) from error


def failures_in_words(sweep: Sweep) -> list[str]:
    """How each server ended that should not have; of which start, where the sweep has servers of several kinds."""
    tried: list[SweepRun | ServerFailure] = [*sweep.runs, *sweep.failures]
    names = {one.recorder for one in tried if one.recorder}
    modes = {one.graphs for one in tried if one.graphs is not None}
    return [" ".join([*_which(failure, len(names) > 1, len(modes) > 1), failure.fault]) for failure in sweep.failures]


def _which(failure: ServerFailure, recorders: bool, modes: bool) -> list[str]:
    """``nsys, eager, warm up c1:``, with the recorder and the mode where there are several."""
    recorder = [failure.recorder] if recorders and failure.recorder else []
    mode = [] if failure.graphs is None or not modes else ["graphs" if failure.graphs else "eager"]
    return [f"{', '.join([*recorder, *mode, failure.phase])}:"]


def model_of(configuration: Mapping[str, Any]) -> str:
    """The short name of the target model of a ``configuration`` (``settings.configuration`` of a record), or nothing.

    Of a path or of a name on a hub it is the last part; a model without weights is named by its shape, and by its
    layers where it was cut to fewer.
    """
    server, dummy = (configuration.get(part) for part in ("server", "dummy"))
    named = server.get("model_path") if isinstance(server, dict) else None
    if named:
        return str(named).rstrip("/").rpartition("/")[2]
    if not isinstance(dummy, dict) or not dummy.get("target"):
        return ""
    return f"{dummy['target']} ({dummy['layers']} layers)" if dummy.get("layers") else str(dummy["target"])


def simulated_accept_len(sweep: Sweep) -> float | None:
    """The accept length that the engine was told to simulate, or ``None``."""
    configuration = sweep.settings.get("configuration")
    environment = configuration.get("env") if isinstance(configuration, dict) else None
    value = environment.get("SGLANG_SIMULATE_ACC_LEN") if isinstance(environment, dict) else None
    try:
        return float(value) if value is not None else None
    except (TypeError, ValueError):
        return None
