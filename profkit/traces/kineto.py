"""The reader of Kineto traces: the Chrome JSON that the PyTorch profiler writes, one file per rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np

from .compression import read_content
from .errors import InputError
from .kineto_decode import Decoded, decode_strict, looks_like_kineto
from .kineto_repair import decode_tolerant
from .kineto_tables import Tables, tables
from .model import I64, UNKNOWN, CollectiveCalls, Device, Launches, Note, Ops, Overheads, Process, Ranges, Source, Trace
from .ranges import nest
from .strings import StringTable

__all__ = ["looks_like_kineto", "read_kineto"]


@dataclass(frozen=True, slots=True)
class _File:
    """One rank's file, and what its metadata tells."""

    path: Path
    tables: Tables
    base: int
    rank: int | None
    world_size: int | None
    devices: Mapping[int, Device]
    source: Source
    notes: tuple[Note, ...]


def read_kineto(paths: Sequence[Path]) -> Trace:
    """The trace in ``paths``: one file, or one per rank of the same run.

    Only ops, API calls and user annotations are kept. Ranks that reuse a pid or a device number get distinct ones.
    Raises ``InputError`` where a file is no Kineto trace; a valid one without GPU activity gives a trace without ops.
    """
    strings = StringTable()
    files = [_read(Path(path), strings) for path in paths]
    files = _with_own_devices(_with_own_pids(_on_one_clock(files)))
    ops = Ops.join([file.tables.ops for file in files])
    launches = Launches.join([file.tables.launches for file in files])
    return Trace(
        ops=ops.take(np.argsort(ops.start, kind="stable")),
        launches=launches.take(np.argsort(launches.start, kind="stable")),
        ranges=_nested(Ranges.join([file.tables.ranges for file in files])),
        collective_calls=CollectiveCalls.join([file.tables.collective_calls for file in files]),
        overheads=Overheads.join([file.tables.overheads for file in files]),
        processes=tuple(process for file in files for process in _processes(file)),
        devices=tuple(device for file in files for device in file.devices.values()),
        notes=_notes(files),
        strings=strings.freeze(),
        source=files[0].source,
    )


def _read(path: Path, strings: StringTable) -> _File:
    content = read_content(path)
    decoded = _decode(path, content.data)
    found = tables(decoded.events, strings)
    meta = decoded.meta
    distributed = meta.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    return _File(
        path=path,
        tables=found,
        base=_whole(meta.get("baseTimeNanoseconds")) or 0,
        rank=_whole(distributed.get("rank")),
        world_size=_whole(distributed.get("world_size")),
        devices=_devices(found.ops, meta.get("deviceProperties")),
        source=_source(path, meta),
        notes=(*decoded.notes, *found.notes),
    )


def _decode(path: Path, data: bytes) -> Decoded:
    advice = "give a file that torch.profiler's export_chrome_trace wrote"
    if not data or data.isspace():
        raise InputError(path, "is empty", "record it again")
    if not looks_like_kineto(data[:4096]):
        raise InputError(path, "is no PyTorch profiler trace: not a JSON object or list of events", advice)
    decoded = decode_strict(data) or decode_tolerant(data)
    if decoded is None:
        raise InputError(path, 'is no PyTorch profiler trace: there is no "traceEvents" in it', advice)
    if not decoded.events and decoded.notes:
        raise InputError(path, "holds no complete event", "record it again, or copy it again")
    if decoded.events and not any(event.ph for event in decoded.events):
        raise InputError(path, 'is no PyTorch profiler trace: its records have no "ph"', advice)
    return decoded


def _whole(value: object) -> int | None:
    """``value`` if it is an integer, also as text, to which times of this century can be added."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else None


def _source(path: Path, meta: Mapping[str, Any]) -> Source:
    schema = meta.get("schemaVersion")
    cuda = _whole(meta.get("cuda_driver_version"))
    driver = str(meta.get("driver_version") or "")
    if cuda and not driver:
        driver = f"CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    schema_version = "" if schema is None else str(schema)
    return Source("kineto", "PyTorch profiler", schema_version=schema_version, driver=driver, file=path.name)


def _devices(ops: Ops, properties: object) -> dict[int, Device]:
    """The devices that have ops, with what ``deviceProperties`` says of them."""
    entries = properties if isinstance(properties, list) else []
    known = {_whole(entry.get("id")): entry for entry in entries if isinstance(entry, dict)}
    devices = {}
    for number in np.unique(ops.device).tolist():
        entry = known.get(number, {})
        devices[number] = Device(number, name=str(entry.get("name") or ""), sm_count=_whole(entry.get("numSms")))
    return devices


def _processes(file: _File) -> list[Process]:
    found = file.tables
    pids = np.unique(np.concatenate([found.ops.pid, found.launches.pid, found.ranges.pid]))
    pids = pids[pids >= 0]
    return [Process(pid, rank=file.rank if len(pids) == 1 or pid == found.home else None) for pid in pids.tolist()]


def _on_one_clock(files: list[_File]) -> list[_File]:
    """Times of a file count from its own base (0 where they are absolute): count all from the earliest base."""
    first = min(file.base for file in files)
    return [_moved(file, file.base - first) for file in files]


def _moved(file: _File, by: int) -> _File:
    if not by:
        return file
    found = _changed(_changed(file.tables, "start", lambda time: time + by), "end", lambda time: time + by)
    return replace(file, tables=found)


def _with_own_pids(files: list[_File]) -> list[_File]:
    """Ranks in containers of their own may share a pid: a later one's gets a number that no kernel gives out."""
    used: set[int] = set()
    result = []
    for file in files:
        pids = {process.pid for process in _processes(file)}
        by = next(by for by in count(0, 2**40) if used.isdisjoint(pid + by for pid in pids))
        used |= {pid + by for pid in pids}
        found = _changed(file.tables, "pid", partial(_shifted, by=by))
        result.append(replace(file, tables=replace(found, home=found.home + by)))
    return result


def _shifted(pid: I64, by: int) -> I64:
    return np.where(pid == UNKNOWN, UNKNOWN, pid + by)


def _with_own_devices(files: list[_File]) -> list[_File]:
    """Ranks that all call their GPU 0 get their rank as its number, or else consecutive numbers."""
    numbers = [number for file in files for number in file.devices]
    if len(set(numbers)) == len(numbers):
        return files
    ranks = [file.rank for file in files]
    use_rank = None not in ranks and len(set(ranks)) == len(ranks) and all(len(file.devices) <= 1 for file in files)
    fresh = count()
    return [_renumbered(file, repeat(file.rank or 0) if use_rank else fresh) for file in files]


def _renumbered(file: _File, fresh: Iterator[int]) -> _File:
    old = np.array(sorted(file.devices), np.int64)
    new = np.fromiter(fresh, np.int64, len(old))
    renumbered = zip(old.tolist(), new.tolist(), strict=True)
    devices = {number: replace(file.devices[was], device=number) for was, number in renumbered}
    found = _changed(file.tables, "device", lambda device: new[np.searchsorted(old, device)])
    return replace(file, tables=found, devices=devices)


def _changed(found: Tables, column: str, change: Callable[[I64], I64]) -> Tables:
    """``found`` with ``column`` changed in every table that has it."""
    changed = {}
    for name in ("ops", "launches", "ranges", "collective_calls", "overheads"):
        table = getattr(found, name)
        if column in table.dtypes():
            changed[name] = replace(table, **{column: change(getattr(table, column))})
    return replace(found, **changed)


def _nested(ranges: Ranges) -> Ranges:
    order, depth, parent = nest(ranges.start, ranges.end, ranges.pid, ranges.tid)
    return replace(ranges.take(order), depth=depth, parent=parent)


def _notes(files: list[_File]) -> tuple[Note, ...]:
    prefix = len(files) > 1
    notes = [
        Note(note.key, f"{file.path.name}: {note.text}" if prefix else note.text)
        for file in files
        for note in file.notes
    ]
    sizes = [file.world_size for file in files if file.world_size]
    if sizes:
        notes.append(Note("world_size", str(max(sizes))))
    if prefix and _apart(files):
        notes.append(Note("warning", "the files do not overlap in time: their ranks cannot be compared"))
    return tuple(notes)


def _apart(files: list[_File]) -> bool:
    """Whether some file ends before another one starts."""
    ops = [file.tables.ops for file in files if len(file.tables.ops)]
    return len(ops) > 1 and max(int(table.start.min()) for table in ops) > min(int(table.end.max()) for table in ops)
