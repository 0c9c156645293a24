"""What CUPTI recorded in the server's own processes, as a ``Trace``: a folder with one ``PID.cupti`` of each rank.

CUPTI's times are UTC in all processes of a host, so ranks need no other clock; the trace counts from the second in
which the first window was opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .cupti_dump import Columns, Header, dumps_in, read_dumps
from .model import (
    I32,
    I64,
    UNKNOWN,
    Device,
    GraphNodes,
    Launches,
    Note,
    OpKind,
    Ops,
    Process,
    Ranges,
    Source,
    Trace,
)
from .nsys_notes import bad_time_notes
from .nsys_ops import COPY_KINDS, VERSION_SUFFIX
from .ranges import nest
from .strings import StringTable

SECOND = 10**9
MARKER_START, MARKER_END = 2, 4


@dataclass(frozen=True, slots=True)
class _Dump:
    """One process's records; times count from ``zero``, devices are numbered over all processes."""

    header: Header
    tables: Mapping[str, Columns]
    zero: int
    numbers: Mapping[int, int]

    def time(self, table: str, column: str) -> I64:
        return self.tables[table][column] - self.zero

    def named(self, ids: I64, strings: StringTable, fallback: str) -> I32:
        """The trace's ids of this process's strings; ``fallback`` where there is none."""
        known: I32 = np.append(strings.ids(self.header.strings), strings.id(fallback))
        found: I32 = known[ids]
        return found


def holds_cupti(folder: Path) -> bool:
    """Whether ``folder`` is a window that CUPTI recorded."""
    return bool(dumps_in(folder))


def zero_utc_ns(path: Path) -> int:
    """The UTC nanosecond at which the times of ``read_cupti(path)`` begin."""
    return _zero([file.header for file in read_dumps(path)])


def read_cupti(path: Path) -> Trace:
    """One trace of the dumps of all ranks in the folder ``path``, or of the one dump that it is.

    Raises ``InputError`` naming the file that is damaged or of a schema that profkit does not know.
    """
    files = read_dumps(path)
    headers = [file.header for file in files]
    zero, devices = _zero(headers), _devices(headers)
    dumps = [_Dump(file.header, file.tables, zero, _own_numbers(devices, file.header.pid)) for file in files]
    strings = StringTable()
    every = Ops.join([_ops(dump, strings) for dump in dumps])
    ops = every.take((every.start + zero > 0) & (every.end >= every.start))
    launches = Launches.join([_launches(dump, table, strings) for dump in dumps for table in ("runtime", "driver")])
    return Trace(
        ops=ops.take(np.lexsort((ops.end, ops.start))),
        launches=launches.take(np.lexsort((launches.end, launches.start))),
        ranges=_ranges(dumps, strings),
        graph_nodes=GraphNodes.join([_graph_nodes(dump) for dump in dumps]),
        processes=tuple(Process(header.pid) for header in headers),
        devices=tuple(sorted(dict.fromkeys(devices.values()), key=lambda device: device.device)),
        notes=(*_notes(headers), *bad_time_notes(len(every) - len(ops), len(every))),
        strings=strings.freeze(),
        source=_source(path, headers[0]),
    )


def _zero(headers: Sequence[Header]) -> int:
    """Whole seconds, so that times stay short and a dump means the same wherever it is read."""
    return min(header.began_ns for header in headers) // SECOND * SECOND


def _devices(headers: Sequence[Header]) -> dict[tuple[int, int], Device]:
    """The GPU of each (pid, number in that process): two processes may call different GPUs by one number."""
    found: dict[tuple[int, int], Device] = {}
    given: dict[str, int] = {}
    for header in headers:
        for one in header.devices:
            key = one.bus_id or f"device {one.id}"
            used = set(given.values())
            free = one.id if one.id not in used else next(n for n in range(len(used) + 1) if n not in used)
            number = given.setdefault(key, free)
            device = Device(number, one.name, one.sm_count, one.memory_bandwidth, None, one.bus_id)
            found[header.pid, one.id] = device
    return found


def _own_numbers(devices: Mapping[tuple[int, int], Device], process: int) -> dict[int, int]:
    return {own: device.device for (pid, own), device in devices.items() if pid == process}


def _ops(dump: _Dump, strings: StringTable) -> Ops:
    kernels = dump.named(dump.tables["kernels"]["name"], strings, "unknown")
    parts = [_activities(dump, "kernels", OpKind.KERNEL, kernels)]
    for table in ("copies", "peer_copies"):
        kinds = dump.tables[table]["copy_kind"]
        names = _texts(kinds, lambda kind: f"memcpy {COPY_KINDS.get(kind, 'unknown')}", strings)
        parts.append(_activities(dump, table, OpKind.MEMCPY, names))
    memsets = np.full(len(dump.tables["memsets"]["start"]), strings.id("memset"), np.int32)
    parts.append(_activities(dump, "memsets", OpKind.MEMSET, memsets))
    return Ops.join(parts)


def _texts(numbers: I64, text: Callable[[int], str], strings: StringTable) -> I32:
    """The id of the text of each number; a text is made once for each distinct one."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    ids: I32 = strings.ids(text(number) for number in distinct.tolist())[inverse]
    return ids


def _activities(dump: _Dump, table: str, kind: OpKind, name: I32) -> Ops:
    """The ops of one table, also those whose records never got their times."""
    columns = dump.tables[table]
    count = len(columns["start"])
    in_graph = columns["graph"] > 0
    return Ops(
        start=dump.time(table, "start"),
        end=dump.time(table, "end"),
        device=_numbered(columns["device"], dump.numbers),
        stream=columns["stream"],
        pid=np.full(count, dump.header.pid),
        correlation=np.where(columns["correlation"] > 0, columns["correlation"], UNKNOWN),
        kind=np.full(count, kind, np.int8),
        name=name,
        graph_launch=np.where(in_graph, columns["correlation"], UNKNOWN),
        graph_node=np.where(in_graph, columns["graph_node"], UNKNOWN),
        bytes=columns.get("bytes", np.full(count, UNKNOWN)),
    )


def _numbered(own: I64, numbers: Mapping[int, int]) -> I32:
    distinct, inverse = np.unique(own, return_inverse=True)
    found: I32 = np.array([numbers.get(number, number) for number in distinct.tolist()], np.int32)[inverse]
    return found


def _launches(dump: _Dump, table: str, strings: StringTable) -> Launches:
    """The calls of one interface; one that had not returned when the window closed ends where it starts."""
    columns, names = dump.tables[table], dump.header.apis.get(table, {})

    def api(number: int) -> str:
        return VERSION_SUFFIX.sub("", names.get(number, f"{table} call {number}"))

    launches = Launches(
        start=dump.time(table, "start"),
        end=np.maximum(dump.time(table, "end"), dump.time(table, "start")),
        pid=np.full(len(columns["start"]), dump.header.pid),
        tid=columns["thread"],
        correlation=columns["correlation"],
        api=_texts(columns["number"], api, strings),
    )
    return launches.take(columns["start"] > 0)


def _ranges(dumps: Sequence[_Dump], strings: StringTable) -> Ranges:
    found = Ranges.join([_ranges_of(dump, strings) for dump in dumps])
    order, depth, parent = nest(found.start, found.end, found.pid, found.tid)
    columns = found.take(order).columns()
    return Ranges(**{**columns, "depth": depth, "parent": parent})


def _ranges_of(dump: _Dump, strings: StringTable) -> Ranges:
    """Pairs of a start and an end marker of one number; a range that the window cuts off ends with it.

    Only the start marker has a name, so a range whose start was not recorded is left out.
    """
    markers = dump.tables["markers"]
    starts = np.flatnonzero((markers["flags"] & MARKER_START != 0) & (markers["name"] >= 0))
    ends = np.flatnonzero(markers["flags"] & MARKER_END != 0)
    closed = dict(zip(markers["id"][ends].tolist(), markers["time"][ends].tolist(), strict=True))
    last = dump.header.ended_ns
    end = np.array([closed.get(number, last) for number in markers["id"][starts].tolist()], np.int64) - dump.zero
    start = markers["time"][starts] - dump.zero
    return Ranges(
        start=start,
        end=np.maximum(start, end),
        pid=np.full(len(starts), dump.header.pid),
        tid=markers["thread"][starts],
        domain=dump.named(markers["domain"][starts], strings, ""),
        text=dump.named(markers["name"][starts], strings, ""),
        depth=np.zeros(len(starts), np.int32),
        parent=np.full(len(starts), UNKNOWN),
    )


def _graph_nodes(dump: _Dump) -> GraphNodes:
    columns = dump.tables["nodes"]
    return GraphNodes(
        pid=np.full(len(columns["node"]), dump.header.pid),
        tid=columns["thread"],
        node=columns["node"],
        original_node=columns["original"],
        created=dump.time("nodes", "time"),
    )


def _notes(headers: Sequence[Header]) -> tuple[Note, ...]:
    dropped = sum(header.dropped for header in headers)
    return (Note("graph_mode", "node"), *((Note("dropped_records", str(dropped)),) if dropped else ()))


def _source(folder: Path, header: Header) -> Source:
    driver = re.sub(r"[^0-9.]", "", header.driver)
    return Source("cupti", "CUPTI", header.version, header.schema.rsplit("/")[-1], driver, folder.name)
