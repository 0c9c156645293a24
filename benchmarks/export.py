"""Writes played steps as the tables of an Nsight Systems export."""

from __future__ import annotations

import sqlite3

import numpy as np
import numpy.typing as npt

from .layout import TABLES, create_tables
from .play import NCCL, PROFKIT, RANKS, WAIT, Array, HostPlan, Times
from .step import COPY, KERNEL, OPS, SET

FIRST_PID, FIRST_TID = 765, 765
CAPTURED_BATCHES = 13
MACHINE = 1 << 48
GLOBAL_PID = np.array([MACHINE | (FIRST_PID + rank) << 24 for rank in range(RANKS)])
GLOBAL_TID = GLOBAL_PID | (FIRST_TID + np.arange(RANKS))
DEVICE = np.arange(RANKS)
STREAM = 22

Bools = npt.NDArray[np.bool_]
Value = Array | int | str | None


class Export:
    """An export under construction, in an empty database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids: dict[str, int] = {}
        self._correlation = 1
        create_tables(connection)

    def insert(self, table: str, **values: Value) -> None:
        """Insert rows: an array gives each row its value (-1: NULL), anything else all the same; NULL where missing."""
        names = [column.partition(":")[0].rstrip("!") for column in TABLES[table].split()]
        columns = [values.pop(name, None) for name in names]
        if values:
            raise ValueError(f"{table} has no column {', '.join(values)}")
        arrays = [column.ravel().tolist() for column in columns if isinstance(column, np.ndarray)]
        marks = ", ".join("nullif(?, -1)" if isinstance(column, np.ndarray) else _literal(column) for column in columns)
        rows = zip(*arrays, strict=True) if arrays else [()]
        self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def finish(self) -> None:
        """Write the strings, and what the recorder says of itself and the machine."""
        for rank in range(RANKS):
            self.insert("PROCESSES", globalPid=int(GLOBAL_PID[rank]), pid=FIRST_PID + rank, name="python3")
            self.insert("TARGET_INFO_CUDA_DEVICE", gpuId=rank, cudaId=rank, pid=FIRST_PID + rank)
            self.insert("TARGET_INFO_GPU", vmId=MACHINE, id=rank, name="NVIDIA H200", smCount=132)
        self.insert("META_DATA_CAPTURE", name="PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", value="Node")
        self.insert("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2025.3.2.0")
        self.insert("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.20.3")
        self._connection.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", ((i, text) for text, i in self._ids.items())
        )

    def graphs(self, plan: HostPlan) -> None:
        """The creation of each node of the captured graphs, and of its clone that is launched."""
        time = -20_000_000_000
        for batch in range(CAPTURED_BATCHES):
            for graph in sorted(set(plan.graph) - {-1}):
                clone = _nodes(graph, batch, np.arange(plan.graph.count(graph)))
                node = np.stack([clone - (1 << 32), clone], axis=1)
                original = np.stack([np.full(len(clone), -1), clone - (1 << 32)], axis=1)
                created = np.broadcast_to(time + 700 * np.arange(node.size), (RANKS, node.size))
                time = int(created.max()) + 700
                self.insert(
                    "CUDA_GRAPH_NODE_EVENTS",
                    start=created,
                    end=created,
                    eventClass=77,
                    globalTid=np.repeat(GLOBAL_TID, node.size),
                    nameId=self._id("CUDA graph node"),
                    graphNodeId=np.tile(node.ravel(), RANKS),
                    originalGraphNodeId=np.tile(original.ravel(), RANKS),
                )

    def steps(self, plan: HostPlan, times: Times, kept: tuple[int, ...] = (len(OPS),) * RANKS) -> None:
        """All calls and ranges of steps, and of each step the first ``kept`` ops of each rank."""
        steps, _, calls = times.call_start.shape
        own = self._correlation + 3 * np.arange(steps * calls).reshape(steps, 1, calls)
        self._correlation += 3 * steps * calls
        correlation = np.broadcast_to(own, times.call_start.shape)
        self._calls(plan, times, correlation)
        self._ranges(plan, times)
        shown = np.broadcast_to(np.arange(len(OPS)) < np.array(kept)[:, None], times.op_start.shape)
        self._ops(plan, times, correlation[:, :, plan.launch], shown)

    def _calls(self, plan: HostPlan, times: Times, correlation: Array) -> None:
        names = np.array([self._id(api) for api in plan.api])
        columns = _in_order(
            times.call_start,
            start=times.call_start,
            end=times.call_end,
            globalTid=GLOBAL_TID[:, None],
            correlationId=correlation,
            nameId=names,
        )
        self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", **columns, eventClass=0, returnValue=0)
        fixed: dict[str, Value] = {"contextId": 1, "eventId": 1, "eventSyncId": 460}
        recorded = np.array([api.startswith("cudaEventRecord") for api in plan.api])
        own = _in_order(times.call_start, recorded, correlationId=correlation, **_place())
        self.insert("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **own, **fixed, greenContextId=0, streamId=STREAM)
        waits = np.array([api == WAIT for api in plan.api])
        times_of = {"start": times.call_start, "end": times.call_end}
        own = _in_order(times.call_start, waits, correlationId=correlation, **times_of, **_place())
        self.insert("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **own, **fixed, streamId=4294967295, syncType=1)

    def _ranges(self, plan: HostPlan, times: Times) -> None:
        domain, text, first, last = zip(*plan.ranges, strict=True)
        start, end = times.call_start[:, :, first] - 400, times.call_end[:, :, last] + 300
        ids = np.array([self._id(name) for name in text])
        columns = _in_order(
            start, start=start, end=end, globalTid=GLOBAL_TID[:, None], textId=ids, domainId=np.array(domain)
        )
        self.insert("NVTX_EVENTS", **columns, eventType=59)

    def domains(self) -> None:
        """The names of the NVTX domains, as each process registers them."""
        for domain, text in ((PROFKIT, "profkit"), (NCCL, "NCCL")):
            for tid in GLOBAL_TID.tolist():
                fixed: dict[str, Value] = {"start": -90_000_000_000, "eventType": 75, "text": text}
                self.insert("NVTX_EVENTS", **fixed, globalTid=tid, domainId=domain)

    def _ops(self, plan: HostPlan, times: Times, correlation: Array, shown: Bools) -> None:
        graph = np.array(plan.graph)
        place = np.array([plan.graph[:row].count(graph) for row, graph in enumerate(plan.graph)])
        common = {
            "start": times.op_start,
            "end": times.op_end,
            "correlationId": correlation,
            "graphNodeId": np.where(graph >= 0, _nodes(graph, CAPTURED_BATCHES - 1, place), -1),
            **_place(),
        }
        fixed: dict[str, Value] = {"contextId": 1, "greenContextId": 0, "streamId": STREAM}
        kinds = np.array([op.kind for op in OPS])
        names = {
            "demangledName": np.array([self._id(op.full_name or op.name) for op in OPS]),
            "shortName": np.array([self._id(op.name) for op in OPS]),
            "mangledName": np.array(
                [self._id(f"_Z{len(op.name)}{op.name}" if op.full_name else op.name) for op in OPS]
            ),
            "dynamicSharedMemory": np.array([op.length * 20 if op.length > 5_000 else 0 for op in OPS]),
            "gridX": np.array([8 + op.length % 120 for op in OPS]),
            "gridId": np.arange(len(OPS)),
        }
        kernels = _in_order(times.op_start, shown & (kinds == KERNEL), **common, **names)
        self.insert("CUPTI_ACTIVITY_KIND_KERNEL", **kernels, **fixed, **LAUNCH)
        copies = _in_order(
            times.op_start, shown & (kinds == COPY), **common, copyKind=np.array([op.copy_kind for op in OPS])
        )
        self.insert("CUPTI_ACTIVITY_KIND_MEMCPY", **copies, **fixed, bytes=32_768, srcKind=2, dstKind=2, copyCount=1)
        sets = _in_order(times.op_start, shown & (kinds == SET), **common)
        self.insert("CUPTI_ACTIVITY_KIND_MEMSET", **sets, **fixed, value=0, bytes=4, memKind=2)

    def _id(self, text: str) -> int:
        return self._ids.setdefault(text, len(self._ids))


LAUNCH: dict[str, Value] = {
    "launchType": 1, "cacheConfig": 1, "registersPerThread": 32, "gridY": 1, "gridZ": 1, "blockX": 128, "blockY": 1,
    "blockZ": 1, "staticSharedMemory": 0, "localMemoryPerThread": 0, "localMemoryTotal": 250_871_808,
    "sharedMemoryExecuted": 32_768, "sharedMemoryLimitConfig": 0,
}  # fmt: skip


def _place() -> dict[str, Array]:
    return {"deviceId": DEVICE[:, None], "globalPid": GLOBAL_PID[:, None]}


def _nodes(graph: Array | int, batch: int, place: Array) -> Array:
    """Ids of the launched nodes: the number of the graph above, the place in it below."""
    return (4 * batch + 2 * np.asarray(graph) + 1 << 32) + place


def _in_order(time: Array, shown: Bools | None = None, **columns: Array) -> dict[str, Array]:
    """The ``shown`` cells of ``columns`` (all broadcast to the shape of ``time``), by ascending ``time``."""
    rows = np.flatnonzero(np.broadcast_to(True if shown is None else shown, time.shape))
    rows = rows[np.argsort(time.ravel()[rows], kind="stable")]
    return {name: np.broadcast_to(column, time.shape).ravel()[rows] for name, column in columns.items()}


def _literal(value: int | str | None) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
