"""``open_trace``: any recording as a ``Trace``, whatever it is called; the content decides."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .bundle import is_bundle, load_bundle
from .compression import decompressed, read_content, read_head
from .cupti import holds_cupti, read_cupti
from .cupti_dump import SUFFIX as DUMP_SUFFIX
from .cupti_dump import is_dump
from .errors import InputError
from .kineto import looks_like_kineto, read_kineto
from .model import Run, Trace
from .module_calls import with_module_calls
from .nsys import read_nsys
from .nsys_export import STREAM_MAGIC, export_report
from .nsys_tables import open_tables
from .sweep import RECORD, Sweep, SweepRun, failures_in_words, is_sweep, load_sweep, model_of, simulated_accept_len

SQLITE_MAGIC = b"SQLite format 3\0"
REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
READABLE = "give a bundle, a sweep, an Nsight Systems report or export, CUPTI's records or PyTorch profiler JSON"
MOST_NAMED = 8
PLUGIN = "plugin"
"""Folder of a sweep in which the plugin left its records."""
BEFORE_EVENTS = 1 << 20
"""Bytes of metadata that may stand before the events of a Kineto file."""

SUFFIXES = (
    ".gz", ".xz", ".zst", ".sqlite", ".nsys-rep", ".qdstrm", ".json", ".kineto", ".trace", ".pt", DUMP_SUFFIX,
)  # fmt: skip
"""What a short name leaves out, from the outside in."""

NSYS_TABLE = ("CUPTI_ACTIVITY_", "NVTX_EVENTS", "StringIds")


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A trace with the name that tells it from its neighbours, and the path it came from."""

    name: str
    path: Path
    trace: Trace


def open_trace(path: Path | str) -> Trace:
    """The one recording at ``path``.

    ``path`` is a bundle, a ``.nsys-rep``, an nsys export (SQLite, plain or compressed, or a Parquet folder), Kineto
    JSON or CUPTI's records (a file, or a folder with one file per rank), or a sweep with one recording.

    Raises ``InputError`` where it is none of these, is damaged, or holds several recordings.
    """
    opened = open_recordings(Path(path))
    if len(opened) > 1:
        names = ", ".join(str(one.path) for one in opened)
        raise InputError(path, f"a sweep with {len(opened)} recordings", f"open one of them: {names}")
    return opened[0].trace


def open_recordings(path: Path) -> list[Opened]:
    """All recordings at ``path``: those of a sweep, by concurrency, or the single one that it is."""
    _check_readable(path)
    if is_sweep(path):
        return _open_sweep(path.parent if path.name == RECORD else path)
    sweep = sweep_of(path)
    if sweep is not None:
        run = next(run for run in sweep.runs if run.trace == path.resolve().name)
        return [replace(_open_run(path.resolve().parent, sweep, run), path=path)]
    return [Opened(_short_name(path), path, _open_single(path))]


def sweep_of(path: Path) -> Sweep | None:
    """The record of the sweep that ``path`` is, or that names it as one of its recordings."""
    if is_sweep(path):
        return load_sweep(path)
    folder, name = path.resolve().parent, path.resolve().name
    sweep = load_sweep(folder) if is_bundle(path) and is_sweep(folder) else None
    return sweep if sweep and any(run.trace == name for run in sweep.runs) else None


def _check_readable(path: Path) -> None:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            next(path.iterdir(), None)
        elif not stat.S_ISREG(mode):
            fault = "a pipe cannot be read twice" if stat.S_ISFIFO(mode) else "is no regular file"
            raise InputError(path, fault, "save it to a file first")
        else:
            with path.open("rb") as file:
                file.read(1)
    except FileNotFoundError as error:
        raise InputError(path, "no such file or folder", "check the path") from error
    except OSError as error:
        raise InputError(path, f"cannot read ({error.strerror})", "check its permissions") from error


def _short_name(path: Path) -> str:
    name = path.resolve().name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name or str(path)


def _open_single(path: Path) -> Trace:
    if path.is_dir():
        return _open_folder(path)
    head = read_head(path)
    if head.startswith(SQLITE_MAGIC):
        with decompressed(path) as plain:
            return _read_export(path, plain)
    if _is_nsys(head):
        return _open_report(path)
    if is_dump(head):
        return read_cupti(path)
    if looks_like_kineto(head):
        return read_kineto([path])
    if not head:
        read_content(path)  # raises where the file is not empty but damaged
        raise InputError(path, "the file is empty", "record again")
    raise InputError(path, "not a recording that profkit knows", READABLE)


def _open_report(path: Path) -> Trace:
    with tempfile.TemporaryDirectory(prefix="profkit-") as folder:
        return _read_export(path, export_report(path, Path(folder)))


def _read_export(path: Path, plain: Path) -> Trace:
    with open_tables(path, plain) as tables:
        return read_nsys(tables)


def _open_folder(path: Path) -> Trace:
    if is_bundle(path):
        return load_bundle(path)
    files = sorted(file for file in path.iterdir() if file.is_file())
    if any(file.suffix == ".parquet" and file.stem.startswith(NSYS_TABLE) for file in files):
        with open_tables(path, path) as tables:
            return read_nsys(tables)
    if holds_cupti(path):
        return read_cupti(path)
    ranks = [file for file in files if _holds_events(file)]
    others = [file for file in files if _is_nsys(read_head(file))]
    if ranks and not others:
        return read_kineto(ranks)
    inner = [child for child in path.iterdir() if child.is_dir() and (is_bundle(child) or is_sweep(child))]
    found = sorted(child.name for child in (*ranks, *others, *inner))
    if found:
        names = ", ".join(found[:MOST_NAMED]) + (f" and {len(found) - MOST_NAMED} more" if found[MOST_NAMED:] else "")
        raise InputError(path, "holds recordings but is none itself", f"name them one by one: {names}")
    if any(file.suffix == DUMP_SUFFIX for file in files):
        return read_cupti(path)  # which says what is amiss with them
    raise InputError(path, "the folder holds no recording", READABLE)


def _is_nsys(head: bytes) -> bool:
    return head.startswith((REPORT_MAGIC, SQLITE_MAGIC)) or STREAM_MAGIC in head[:64]


def _holds_events(file: Path) -> bool:
    """Whether a file of a folder is PyTorch profiler JSON; JSON of another kind may lie beside it."""
    if not looks_like_kineto(read_head(file)):
        return False
    head = read_head(file, BEFORE_EVENTS)
    return b'"traceEvents"' in head or (head.lstrip().startswith(b"[") and b'"ph"' in head)


def _open_sweep(folder: Path) -> list[Opened]:
    sweep = load_sweep(folder)
    recorded = [run for run in sweep.runs if run.trace is not None]
    if not recorded:
        # A window that a server took with it says no more than the server's own failure.
        told = {f"{failure.phase}: {failure.fault}" for failure in sweep.failures}
        failures = {run.failure for run in sweep.runs if run.failure} - told
        said = "; ".join([*failures_in_words(sweep), *sorted(failures)])
        fault = "the sweep holds no recording" + (f" ({said})" if said else "")
        raise InputError(folder, fault, "capture again")
    return [_open_run(folder, sweep, run) for run in sorted(recorded, key=lambda run: (run.concurrency, run.trace))]


def _open_run(folder: Path, sweep: Sweep, run: SweepRun) -> Opened:
    path = folder / (run.trace or "")
    if not path.exists():
        raise InputError(path, f"named in {RECORD} but not there", "capture again, or remove it from the record")
    trace = load_bundle(path) if is_bundle(path) else _open_single(path)
    if not len(trace.module_calls):
        trace = with_module_calls(trace, _plugin_folder(folder, run))
    return Opened(f"{folder.resolve().name}/{run.trace}", path, trace.with_run(_run_of(trace.run, sweep, run)))


def _plugin_folder(folder: Path, run: SweepRun) -> Path:
    """Each start of the server has its own: ``c1-cupti`` belongs to ``plugin-cupti``."""
    own = folder / f"{PLUGIN}{(run.trace or '').removeprefix(f'c{run.concurrency}')}"
    return own if own.is_dir() else folder / PLUGIN


def _run_of(known: Run, sweep: Sweep, run: SweepRun) -> Run:
    simulated = simulated_accept_len(sweep)
    return replace(
        known,
        config=sweep.config,
        concurrency=run.concurrency,
        graphs=run.graphs if run.graphs is not None else sweep.graphs,
        accept_len=run.accept_len if run.accept_len is not None else simulated,
        accept_len_source="reported by the server" if run.accept_len is not None else "simulated, by the settings",
        tokens_per_s=run.tokens_per_s,
        tokens_per_s_before=run.tokens_per_s_before,
        tokens_per_s_after=run.tokens_per_s_after,
        block_size=sweep.block_size,
        graph_batch_sizes=tuple(sweep.graph_batch_sizes),
        engine=sweep.engine,
        note=sweep.note,
        step_times=run.step_times or known.step_times,
        step_times_recorded=run.step_times_recorded or known.step_times_recorded,
        recording_cost=run.recording_cost or known.recording_cost,
        recorder=run.recorder or known.recorder,
        model=_model_of(sweep) or known.model,
    )


def _model_of(sweep: Sweep) -> str:
    configuration = sweep.settings.get("configuration")
    return model_of(configuration) if isinstance(configuration, dict) else ""


def open_ranks(paths: Sequence[Path]) -> Trace:
    """One trace from the files of several ranks (Kineto JSON), or from the single recording at ``paths``."""
    if len(paths) == 1:
        return open_trace(paths[0])
    for path in paths:
        _check_readable(path)
        if path.is_dir() or not looks_like_kineto(read_head(path)):
            raise InputError(path, "not PyTorch profiler JSON", "only such files are merged as ranks of one recording")
    return read_kineto(list(paths))
