"""Nsight Systems exports (SQLite or Parquet, schema 2.9 to 3.25) as a ``Trace``.

Only what the analyzers use is read. The environment, command lines and output of the target, which such files
also hold, are never looked at: strings come in only where a kept row refers to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .errors import InputError
from .model import (
    I32,
    I64,
    UNKNOWN,
    Bools,
    CollectiveCalls,
    Device,
    GraphNodes,
    Launches,
    OpKind,
    Ops,
    Process,
    Ranges,
    Source,
    Trace,
)
from .nsys_notes import bad_time_notes, recorder_notes
from .nsys_tables import Columns, NsysTables
from .ranges import nest
from .strings import StringTable

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
DRIVER = "CUPTI_ACTIVITY_KIND_DRIVER"
NVTX = "NVTX_EVENTS"
NODES = "CUDA_GRAPH_NODE_EVENTS"

PUSH_POP, START_END, DOMAIN = 59, 60, 75
NVTX_EXTENDED_RANGES = (70, 71)

COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "HtoD unified", 12: "DtoH unified", 13: "DtoD unified",
}  # fmt: skip

ACTIVITY = ("start", "end", "deviceId", "streamId", "globalPid", "correlationId")
CALL = ("start", "end", "globalTid", "correlationId", "nameId")
NEEDED = {
    **dict.fromkeys((KERNEL, MEMCPY, MEMSET, GRAPH), ACTIVITY),
    **dict.fromkeys((RUNTIME, DRIVER), CALL),
    NVTX: ("start", "end", "eventType", "globalTid"),
    NODES: ("start", "globalTid", "graphNodeId"),
}
"""Columns without which a table cannot be read; the others come and go with the schema version."""

VERSION_SUFFIX = re.compile(r"(_ptsz|_ptds)?_v\d+(_ptsz|_ptds)?$")
GRAPH_LAUNCH = re.compile(r"GraphLaunch")
DAY = 86_400 * 10**9

_MASK = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class _Reader:
    """One export being read: its tables, its string ids, and the strings of the trace under construction."""

    tables: NsysTables
    values: Mapping[int, str]
    strings: StringTable

    def named(self, ids: I64, *, fallback: str = "unknown", clean: bool = False) -> I32:
        """Trace string ids for the ``StringIds`` references in ``ids``."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        texts = [self.values.get(int(i), fallback) for i in distinct]
        if clean:
            texts = [VERSION_SUFFIX.sub("", text) for text in texts]
        return self.strings.ids(texts)[inverse] if len(ids) else np.empty(0, np.int32)


def read_nsys(tables: NsysTables) -> Trace:
    """Read an export into a ``Trace``.

    Raises ``InputError`` where the export holds no events at all (an aborted or empty recording), or where a table
    lacks a column that nothing can stand for.
    """
    _refuse_strange(tables)
    _refuse_empty(tables)
    strings = StringTable()
    reader = _Reader(tables, tables.texts("StringIds", "id", "value"), strings)
    launches, is_graph_launch = _launches(reader)
    ops, bad = _ops(reader, launches, is_graph_launch)
    ranges = _ranges(reader, _last_time(ops, launches))
    notes = [*recorder_notes(tables), *bad_time_notes(bad, len(ops) + bad)]
    return Trace(
        ops=ops,
        launches=launches,
        ranges=ranges,
        graph_nodes=_graph_nodes(tables),
        collective_calls=_collective_calls(ranges, strings),
        processes=_processes(tables, ops, ranges),
        devices=_devices(tables, ops),
        notes=tuple(notes),
        strings=strings.freeze(),
        source=_source(tables),
    )


def _refuse_strange(tables: NsysTables) -> None:
    for table, needed in NEEDED.items():
        present = tables.columns(table)
        missing = [name for name in needed if name not in present]
        if present and missing:
            raise InputError(
                tables.path,
                f"table {table} has no column {missing[0]}, so its schema is one that profkit does not know",
                "export it with another release of nsys",
            )


def _refuse_empty(tables: NsysTables) -> None:
    known = [KERNEL, MEMCPY, MEMSET, GRAPH, RUNTIME, NVTX]
    if not any(tables.has_rows(table) for table in known):
        raise InputError(
            tables.path,
            "the export holds no CUDA and no NVTX events (an aborted recording or an empty capture range)",
            "record again, and check that the capture range was reached",
        )


def _launches(reader: _Reader) -> tuple[Launches, Bools]:
    parts, graph = [], []
    for table in (RUNTIME, DRIVER):
        rows = reader.tables.integers(table, CALL)
        rows = _ended(rows)
        api = reader.named(rows["nameId"], clean=True)
        parts.append(
            Launches(
                start=rows["start"],
                end=rows["end"],
                pid=_process_of(rows["globalTid"]),
                tid=rows["globalTid"] & _MASK,
                correlation=rows["correlationId"],
                api=api,
            )
        )
        graph.append(_matching(reader.strings.freeze(), api, GRAPH_LAUNCH))
    return Launches.join(parts), np.concatenate(graph)


def _ended(rows: Columns) -> Columns:
    """Calls that never returned within the recording end where they start."""
    end = np.maximum(rows["end"], rows["start"])
    return {**rows, "end": end}


def _matching(strings: tuple[str, ...], ids: I32, pattern: re.Pattern[str]) -> Bools:
    hit = np.array([bool(pattern.search(text)) for text in strings] or [False])
    return hit[ids] if len(ids) else np.empty(0, np.bool_)


def _ops(reader: _Reader, launches: Launches, is_graph_launch: Bools) -> tuple[Ops, int]:
    """All GPU activities, and how many were left out because their times are unusable."""
    ops = Ops.join([_kernels(reader), _copies(reader), _memsets(reader), _whole_graphs(reader)])
    usable = _usable(ops)
    bad = int(np.count_nonzero(~usable))
    ops = ops.take(usable) if bad else ops
    graph_launch = _graph_launch_of(ops, launches.take(is_graph_launch))
    columns = {**ops.columns(), "graph_launch": graph_launch, "device": _physical_devices(reader.tables, ops)}
    ops = Ops(**columns)
    return ops.take(np.lexsort((ops.end, ops.start))), bad


def _usable(ops: Ops) -> Bools:
    """Which activities have times that can be true.

    CUPTI has written zeros, ends before starts and durations of years; no record lasts longer than a day, or lies
    further than that from the others.
    """
    length = ops.end - ops.start
    good: Bools = (length >= 0) & (length <= DAY) & (ops.end != 0)
    if np.any(good):
        good &= np.abs(ops.start - int(np.median(ops.start[good]))) <= DAY
    return good


def _activity(reader: _Reader, table: str, kind: OpKind, extra: tuple[str, ...]) -> tuple[Columns, dict[str, object]]:
    rows = reader.tables.integers(table, (*ACTIVITY, *extra))
    count = len(rows["start"])
    unknown = np.full(count, UNKNOWN, np.int64)
    common: dict[str, object] = {
        "start": rows["start"],
        "end": rows["end"],
        "device": rows["deviceId"],
        "stream": rows["streamId"],
        "pid": _process_of(rows["globalPid"]),
        "correlation": np.where(rows["correlationId"] > 0, rows["correlationId"], UNKNOWN),
        "kind": np.full(count, kind, np.int8),
        "graph_launch": unknown,
        "graph_node": rows.get("graphNodeId", unknown),
        "bytes": rows.get("bytes", unknown),
    }
    return rows, common


def _kernels(reader: _Reader) -> Ops:
    rows, common = _activity(reader, KERNEL, OpKind.KERNEL, ("demangledName", "shortName", "graphNodeId"))
    name = np.where(rows["demangledName"] >= 0, rows["demangledName"], rows["shortName"])
    return Ops(**common, name=reader.named(name))  # type: ignore[arg-type]


def _copies(reader: _Reader) -> Ops:
    rows, common = _activity(reader, MEMCPY, OpKind.MEMCPY, ("copyKind", "bytes", "graphNodeId"))
    kinds, inverse = np.unique(rows["copyKind"], return_inverse=True)
    names = reader.strings.ids(f"memcpy {COPY_KINDS.get(int(kind), 'unknown')}" for kind in kinds)
    return Ops(**common, name=names[inverse] if len(inverse) else names)  # type: ignore[arg-type]


def _memsets(reader: _Reader) -> Ops:
    rows, common = _activity(reader, MEMSET, OpKind.MEMSET, ("bytes", "graphNodeId"))
    return Ops(**common, name=np.full(len(rows["start"]), reader.strings.id("memset"), np.int32))  # type: ignore[arg-type]


def _whole_graphs(reader: _Reader) -> Ops:
    rows, common = _activity(reader, GRAPH, OpKind.GRAPH, ())
    return Ops(**common, name=np.full(len(rows["start"]), reader.strings.id("CUDA graph"), np.int32))  # type: ignore[arg-type]


def _graph_launch_of(ops: Ops, graph_launches: Launches) -> I64:
    """The correlation of the owning graph launch, or ``UNKNOWN``: by its launch record, or by the node id."""
    owned = (ops.graph_node >= 0) | (ops.kind == OpKind.GRAPH)
    rest = np.flatnonzero(~owned)
    known = _pair_keys(graph_launches.pid, graph_launches.correlation)
    owned[rest] = np.isin(_pair_keys(ops.pid[rest], ops.correlation[rest]), known)
    return np.where(owned, ops.correlation, UNKNOWN)


def _pair_keys(pid: I64, correlation: I64) -> I64:
    return (pid << 40) ^ correlation


def _process_of(global_id: I64) -> I64:
    """The OS process id in an nsys global id (bits 24 to 47)."""
    return (global_id >> 24) & _MASK


def _physical_devices(tables: NsysTables, ops: Ops) -> I32:
    """Device numbers of the host: a process that sees one GPU calls it 0, whichever it is."""
    device = ops.device.copy()
    mapping = {
        (pid, cuda): gpu for gpu, cuda, pid in tables.rows("TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid"])
    }
    for (pid, cuda), gpu in mapping.items():
        if gpu is not None and gpu != cuda:
            device[(ops.pid == pid) & (ops.device == cuda)] = gpu
    return device


def _last_time(ops: Ops, launches: Launches) -> int:
    return int(max(ops.end.max(initial=0), launches.end.max(initial=0)))


def _ranges(reader: _Reader, last: int) -> Ranges:
    wanted = ["start", "end", "eventType", "globalTid", "domainId", "textId"]
    rows = reader.tables.integers(NVTX, wanted)
    kept = np.isin(rows["eventType"], (PUSH_POP, START_END, *NVTX_EXTENDED_RANGES))
    inline = _inline_texts(reader)
    domains = _domains(reader, rows, inline)
    rows_kept = {name: values[kept] for name, values in rows.items()}
    text = reader.named(rows_kept["textId"], fallback="")
    if inline:
        own = np.array(
            [reader.strings.id(inline[r]) if r in inline else UNKNOWN for r in np.flatnonzero(kept).tolist()]
        )
        text = np.where(own >= 0, own, text).astype(np.int32)
    pid = _process_of(rows_kept["globalTid"])
    end = np.where(rows_kept["end"] == UNKNOWN, np.maximum(last, rows_kept["start"]), rows_kept["end"])
    order, depth, parent = nest(rows_kept["start"], end, pid, rows_kept["globalTid"] & _MASK)
    domain = list(zip(pid.tolist(), np.maximum(rows_kept["domainId"], 0).tolist(), strict=True))
    domain_ids = {key: reader.strings.id(domains.get(key, "")) for key in dict.fromkeys(domain)}
    return Ranges(
        start=rows_kept["start"][order],
        end=np.maximum(end, rows_kept["start"])[order],
        pid=pid[order],
        tid=(rows_kept["globalTid"] & _MASK)[order],
        domain=np.fromiter(map(domain_ids.__getitem__, domain), np.int32, len(domain))[order],
        text=text[order],
        depth=depth,
        parent=parent,
    )


def _inline_texts(reader: _Reader) -> dict[int, str]:
    """Texts that stand in the row itself, by row number."""
    texts = reader.tables.rows(NVTX, ["text"]) if "text" in reader.tables.columns(NVTX) else []
    return {row: str(text) for row, (text,) in enumerate(texts) if text is not None}


def _domains(reader: _Reader, rows: Columns, inline: Mapping[int, str]) -> dict[tuple[int, int], str]:
    """Domain names by (pid, domain id)."""
    named = np.flatnonzero((rows["eventType"] == DOMAIN) & (rows["globalTid"] != UNKNOWN))
    pid = _process_of(rows["globalTid"][named]).tolist()
    domain, text_id = rows["domainId"][named].tolist(), rows["textId"][named].tolist()
    return {
        (p, d): inline.get(row, reader.values.get(text, ""))
        for row, p, d, text in zip(named.tolist(), pid, domain, text_id, strict=True)
    }


def _graph_nodes(tables: NsysTables) -> GraphNodes:
    rows = tables.integers(NODES, ["start", "globalTid", "graphNodeId", "originalGraphNodeId"])
    return GraphNodes(
        pid=_process_of(rows["globalTid"]),
        tid=rows["globalTid"] & _MASK,
        node=rows["graphNodeId"],
        original_node=rows["originalGraphNodeId"],
        created=rows["start"],
    )


def _collective_calls(ranges: Ranges, strings: StringTable) -> CollectiveCalls:
    """NCCL's own ranges. Exports up to 3.25 hold payload schemas but no payloads: size and communicator are unknown."""
    texts = strings.freeze()
    nccl = _matching(texts, ranges.domain, re.compile(r"^NCCL$"))
    collective = nccl & _matching(
        texts, ranges.text, re.compile(r"^nccl(All|Reduce|Broadcast|Send|Recv|Gather|Scatter)")
    )
    calls = ranges.take(collective)
    unknown = np.full(len(calls), UNKNOWN, np.int64)
    return CollectiveCalls(
        pid=calls.pid, tid=calls.tid, start=calls.start, end=calls.end, comm=unknown.astype(np.int32), kind=calls.text,
        count=unknown, dtype=unknown.astype(np.int32), bytes=unknown,
    )  # fmt: skip


def _processes(tables: NsysTables, ops: Ops, ranges: Ranges) -> tuple[Process, ...]:
    pids = np.union1d(np.unique(ops.pid), np.unique(ranges.pid)).tolist()
    names = {
        (global_pid >> 24) & _MASK: str(name or "").split("\0")[0].split(" ")[0].rsplit("/", 1)[-1]
        for global_pid, name in tables.rows("PROCESSES", ["globalPid", "name"])
        if global_pid is not None
    }
    return tuple(Process(pid=pid, name=names.get(pid, "")) for pid in pids)


def _devices(tables: NsysTables, ops: Ops) -> tuple[Device, ...]:
    wanted = ["id", "name", "smCount", "memoryBandwidth", "busLocation"]
    known = {
        number: Device(number, name or "", sms, bandwidth, None, bus or "")
        for number, name, sms, bandwidth, bus in tables.rows("TARGET_INFO_GPU", wanted)
        if number is not None
    }
    return tuple(known.get(number, Device(number)) for number in np.unique(ops.device).tolist())


def _source(tables: NsysTables) -> Source:
    metadata: dict[str, str] = {}
    for table in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
        metadata |= {str(name): str(value) for name, value in tables.rows(table, ["name", "value"])}
    environment = dict(tables.rows("TARGET_INFO_SYSTEM_ENV", ["name", "value"]))
    return Source(
        format="nsys",
        tool="Nsight Systems",
        tool_version=metadata.get("EXPORT_PRODUCT_VERSION", ""),
        schema_version=metadata.get("EXPORT_SCHEMA_VERSION", ""),
        driver=str(environment.get("NvDriverVersion") or ""),
        file=tables.path.name,
    )
