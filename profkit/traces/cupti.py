"""What CUPTI recorded in the server's own processes, as a ``Trace``: a folder with one ``PID.cupti`` of each rank.

``profkit.sglang.cupti_dump`` writes these files and says what is in them. CUPTI's times are UTC in all processes of a
host, so ranks need no other clock; the trace counts from the second in which the first window was opened.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from .errors import InputError
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
from .nsys_ops import COPY_KINDS, VERSION_SUFFIX
from .ranges import nest
from .strings import StringTable

SCHEMA = "profkit.cupti/1"
SUFFIX = ".cupti"
SECOND = 10**9
MARKER_START, MARKER_END = 2, 4
ADVICE = "record again"
COLUMNS = {
    "kernels": ("start", "end", "device", "stream", "correlation", "graph", "graph_node", "name"),
    "copies": ("start", "end", "device", "stream", "correlation", "graph", "graph_node", "bytes", "copy_kind"),
    "peer_copies": ("start", "end", "device", "stream", "correlation", "graph", "graph_node", "bytes", "copy_kind"),
    "memsets": ("start", "end", "device", "stream", "correlation", "graph", "graph_node", "bytes"),
    "runtime": ("start", "end", "thread", "correlation", "number"),
    "driver": ("start", "end", "thread", "correlation", "number"),
    "markers": ("time", "flags", "id", "thread", "name", "domain"),
    "nodes": ("time", "thread", "node", "original"),
}

Columns = Mapping[str, I64]


class _Device(msgspec.Struct):
    id: int
    name: str = ""
    sm_count: int | None = None
    memory_bandwidth: int | None = None
    bus_id: str = ""


class _Header(msgspec.Struct):
    schema: str
    pid: int
    began_ns: int
    ended_ns: int
    version: str = ""
    driver: str = ""
    dropped: int = 0
    devices: list[_Device] = []
    apis: dict[str, dict[int, str]] = {}
    strings: list[str] = []


@dataclass(frozen=True, slots=True)
class _Dump:
    """One process's records; times count from ``zero``, devices are numbered over all processes."""

    header: _Header
    tables: Mapping[str, Columns]
    zero: int
    numbers: Mapping[int, int]

    def time(self, table: str, column: str) -> I64:
        return self.tables[table][column] - self.zero


def holds_cupti(folder: Path) -> bool:
    """Whether ``folder`` is a window that CUPTI recorded."""
    return any(folder.glob(f"*{SUFFIX}"))


def zero_utc_ns(folder: Path) -> int:
    """The UTC nanosecond at which the times of ``read_cupti(folder)`` begin."""
    return _zero([header for header, _ in _files(folder)])


def read_cupti(folder: Path) -> Trace:
    """One trace of the dumps of all ranks in ``folder``.

    Raises ``InputError`` naming the file that is damaged or of a schema that profkit does not know.
    """
    files = _files(folder)
    zero = _zero([header for header, _ in files])
    devices = _devices([header for header, _ in files])
    dumps = [_Dump(header, tables, zero, _own_numbers(devices, header.pid)) for header, tables in files]
    strings = StringTable()
    ops = Ops.join([_ops(dump, strings) for dump in dumps])
    launches = Launches.join([_launches(dump, table, strings) for dump in dumps for table in ("runtime", "driver")])
    return Trace(
        ops=ops.take(np.lexsort((ops.end, ops.start))),
        launches=launches.take(np.lexsort((launches.end, launches.start))),
        ranges=_ranges(dumps, strings),
        graph_nodes=GraphNodes.join([_graph_nodes(dump) for dump in dumps]),
        processes=tuple(Process(dump.header.pid) for dump in dumps),
        devices=tuple(sorted(set(devices.values()), key=lambda device: device.device)),
        notes=_notes([dump.header for dump in dumps]),
        strings=strings.freeze(),
        source=_source(folder, dumps[0].header),
    )


def _files(folder: Path) -> list[tuple[_Header, dict[str, Columns]]]:
    """The dumps in ``folder``, ordered by pid."""
    found = [_read(file) for file in sorted(folder.glob(f"*{SUFFIX}"))]
    if not found:
        raise InputError(folder, f"no process left a {SUFFIX} file here", ADVICE)
    return sorted(found, key=lambda pair: pair[0].pid)


def _read(file: Path) -> tuple[_Header, dict[str, Columns]]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            header = msgspec.json.decode(archive["header"].tobytes(), type=_Header)
            tables: dict[str, Columns] = {
                table: {column: archive[f"{table}.{column}"].astype(np.int64) for column in columns}
                for table, columns in COLUMNS.items()
            }
    except OSError as error:
        raise InputError(file, f"cannot read ({error.strerror or error})", "check its permissions") from error
    except KeyError as error:
        raise InputError(file, f"a part of it is missing ({error.args[0]})", ADVICE) from error
    except (ValueError, EOFError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise InputError(file, f"no dump of CUPTI's records, or a damaged one ({error})", ADVICE) from error
    _check(file, header, tables)
    return header, tables


def _check(file: Path, header: _Header, tables: Mapping[str, Columns]) -> None:
    if header.schema != SCHEMA:
        raise InputError(file, f"unknown schema '{header.schema}'", "update profkit")
    for table, columns in tables.items():
        if len({column.shape for column in columns.values()}) > 1 or columns[COLUMNS[table][0]].ndim != 1:
            raise InputError(file, f"the columns of {table} differ in length", ADVICE)
    texts = [column for columns in tables.values() for name, column in columns.items() if name in ("name", "domain")]
    if any(len(column) and column.max() >= len(header.strings) for column in texts):
        raise InputError(file, "a record names a string that is not there", ADVICE)


def _zero(headers: Sequence[_Header]) -> int:
    """Whole seconds, so that times stay short and a dump means the same wherever it is read."""
    return min(header.began_ns for header in headers) // SECOND * SECOND


def _devices(headers: Sequence[_Header]) -> dict[tuple[int, int], Device]:
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
    named = strings.ids(dump.header.strings)
    kernels = dump.tables["kernels"]
    parts = [_activities(dump, "kernels", OpKind.KERNEL, named[kernels["name"]] if len(named) else _no_names(kernels))]
    for table in ("copies", "peer_copies"):
        kinds = dump.tables[table]["copy_kind"]
        names = strings.ids(f"memcpy {COPY_KINDS.get(kind, 'unknown')}" for kind in kinds.tolist())
        parts.append(_activities(dump, table, OpKind.MEMCPY, names))
    memsets = len(dump.tables["memsets"]["start"])
    parts.append(_activities(dump, "memsets", OpKind.MEMSET, strings.ids(["memset"] * memsets)))
    return Ops.join(parts)


def _no_names(columns: Columns) -> I32:
    return np.full(len(columns["name"]), UNKNOWN, np.int32)


def _activities(dump: _Dump, table: str, kind: OpKind, name: I32) -> Ops:
    """The ops of one table; a record that never got its times is left out."""
    columns = dump.tables[table]
    count = len(columns["start"])
    in_graph = columns["graph"] > 0
    ops = Ops(
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
    return ops.take((columns["start"] > 0) & (columns["end"] >= columns["start"]))


def _numbered(own: I64, numbers: Mapping[int, int]) -> I32:
    return np.array([numbers.get(number, number) for number in own.tolist()], np.int32)


def _launches(dump: _Dump, table: str, strings: StringTable) -> Launches:
    columns, names = dump.tables[table], dump.header.apis.get(table, {})
    apis = [names.get(number, f"{table} call {number}") for number in columns["number"].tolist()]
    launches = Launches(
        start=dump.time(table, "start"),
        end=np.maximum(dump.time(table, "end"), dump.time(table, "start")),
        pid=np.full(len(apis), dump.header.pid),
        tid=columns["thread"],
        correlation=columns["correlation"],
        api=strings.ids(VERSION_SUFFIX.sub("", api) for api in apis),
    )
    return launches.take(columns["start"] > 0)


def _ranges(dumps: Sequence[_Dump], strings: StringTable) -> Ranges:
    found = Ranges.join([_ranges_of(dump, strings) for dump in dumps])
    order, depth, parent = nest(found.start, found.end, found.pid, found.tid)
    columns = found.take(order).columns()
    return Ranges(**{**columns, "depth": depth, "parent": parent})


def _ranges_of(dump: _Dump, strings: StringTable) -> Ranges:
    """Pairs of a start and an end marker of one number; a range that the window cuts ends, or begins, with it.

    Only the start marker has a name, so a range whose start was not recorded is left out.
    """
    markers, named = dump.tables["markers"], strings.ids(dump.header.strings)
    starts = np.flatnonzero((markers["flags"] & MARKER_START != 0) & (markers["name"] >= 0))
    ends = np.flatnonzero(markers["flags"] & MARKER_END != 0)
    closed = dict(zip(markers["id"][ends].tolist(), markers["time"][ends].tolist(), strict=True))
    last = dump.header.ended_ns
    end = np.array([closed.get(number, last) for number in markers["id"][starts].tolist()], np.int64) - dump.zero
    start = markers["time"][starts] - dump.zero
    domain = markers["domain"][starts]
    none = strings.id("")
    return Ranges(
        start=start,
        end=np.maximum(start, end),
        pid=np.full(len(starts), dump.header.pid),
        tid=markers["thread"][starts],
        domain=np.where(domain >= 0, named[domain], none) if len(named) else np.empty(0, np.int32),
        text=named[markers["name"][starts]] if len(named) else np.empty(0, np.int32),
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


def _notes(headers: Sequence[_Header]) -> tuple[Note, ...]:
    dropped = sum(header.dropped for header in headers)
    return (Note("graph_mode", "node"), *((Note("dropped_records", str(dropped)),) if dropped else ()))


def _source(folder: Path, header: _Header) -> Source:
    driver = re.sub(r"[^0-9.]", "", header.driver)
    return Source("cupti", "CUPTI", header.version, header.schema.rsplit("/")[-1], driver, folder.name)
