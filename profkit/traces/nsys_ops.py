"""The rows of an Nsight Systems export that become ops and launches, and what reading them needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .model import I32, I64, UNKNOWN, Bools, Launches, OpKind, Ops, Overheads
from .nsys_tables import Columns, NsysTables
from .strings import StringTable

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
DRIVER = "CUPTI_ACTIVITY_KIND_DRIVER"
PROFILER = "PROFILER_OVERHEAD"
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

MASK = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class Reader:
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


def read_launches(reader: Reader) -> tuple[Launches, Bools]:
    """All host API calls, and which of them launch a graph."""
    parts, graph = [], []
    for table in (RUNTIME, DRIVER):
        rows = reader.tables.integers(table, CALL)
        rows = _ended(rows)
        api = reader.named(rows["nameId"], clean=True)
        parts.append(
            Launches(
                start=rows["start"],
                end=rows["end"],
                pid=process_of(rows["globalTid"]),
                tid=rows["globalTid"] & MASK,
                correlation=rows["correlationId"],
                api=api,
            )
        )
        graph.append(matching(reader.strings.freeze(), api, GRAPH_LAUNCH))
    return Launches.join(parts), np.concatenate(graph)


def read_overheads(reader: Reader) -> Overheads:
    """What the recorder itself did on threads of the target."""
    rows = reader.tables.integers(PROFILER, ("start", "end", "globalTid", "nameId"))
    kept = rows["globalTid"] != UNKNOWN
    rows = _ended({name: values[kept] for name, values in rows.items()})
    return Overheads(
        start=rows["start"],
        end=rows["end"],
        pid=process_of(rows["globalTid"]),
        tid=rows["globalTid"] & MASK,
        name=reader.strings.ids(reader.values.get(number, "unknown") for number in rows["nameId"].tolist()),
    )


def _ended(rows: Columns) -> Columns:
    """Calls that never returned within the recording end where they start."""
    end = np.maximum(rows["end"], rows["start"])
    return {**rows, "end": end}


def matching(strings: tuple[str, ...], ids: I32, pattern: re.Pattern[str]) -> Bools:
    """Whether the string of each id matches ``pattern``; tried once per string."""
    hit = np.array([bool(pattern.search(text)) for text in strings] or [False])
    return hit[ids] if len(ids) else np.empty(0, np.bool_)


def read_ops(reader: Reader, launches: Launches, is_graph_launch: Bools) -> tuple[Ops, int]:
    """All GPU activities, and how many were left out because their times are unusable."""
    ops = Ops.join([_kernels(reader), _copies(reader), _memsets(reader), _whole_graphs(reader)])
    usable = _usable(ops)
    bad = int(np.count_nonzero(~usable))
    ops = ops.take(usable) if bad else ops
    graph_launch = _graph_launch_of(ops, launches.take(is_graph_launch))
    ops = Ops(**{**ops.columns(), "graph_launch": graph_launch})
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


def _activity(reader: Reader, table: str, kind: OpKind, extra: tuple[str, ...]) -> tuple[Columns, dict[str, object]]:
    rows = reader.tables.integers(table, (*ACTIVITY, *extra))
    count = len(rows["start"])
    unknown = np.full(count, UNKNOWN, np.int64)
    common: dict[str, object] = {
        "start": rows["start"],
        "end": rows["end"],
        "device": rows["deviceId"],
        "stream": rows["streamId"],
        "pid": process_of(rows["globalPid"]),
        "correlation": np.where(rows["correlationId"] > 0, rows["correlationId"], UNKNOWN),
        "kind": np.full(count, kind, np.int8),
        "graph_launch": unknown,
        "graph_node": rows.get("graphNodeId", unknown),
        "bytes": rows.get("bytes", unknown),
    }
    return rows, common


def _kernels(reader: Reader) -> Ops:
    rows, common = _activity(reader, KERNEL, OpKind.KERNEL, ("demangledName", "graphNodeId"))
    name = rows["demangledName"]
    if np.any(name < 0):
        name = np.where(name >= 0, name, reader.tables.integers(KERNEL, ["shortName"])["shortName"])
    return Ops(**common, name=reader.named(name))  # type: ignore[arg-type]


def _copies(reader: Reader) -> Ops:
    rows, common = _activity(reader, MEMCPY, OpKind.MEMCPY, ("copyKind", "bytes", "graphNodeId"))
    kinds, inverse = np.unique(rows["copyKind"], return_inverse=True)
    names = reader.strings.ids(f"memcpy {COPY_KINDS.get(int(kind), 'unknown')}" for kind in kinds)
    return Ops(**common, name=names[inverse] if len(inverse) else names)  # type: ignore[arg-type]


def _memsets(reader: Reader) -> Ops:
    rows, common = _activity(reader, MEMSET, OpKind.MEMSET, ("bytes", "graphNodeId"))
    return Ops(**common, name=np.full(len(rows["start"]), reader.strings.id("memset"), np.int32))  # type: ignore[arg-type]


def _whole_graphs(reader: Reader) -> Ops:
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


def process_of(global_id: I64) -> I64:
    """The OS process id in an nsys global id (bits 24 to 47)."""
    return (global_id >> 24) & MASK
