"""Synthetic traces, row by row: a case then reads as its input."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from profkit.traces import (
    UNKNOWN,
    CollectiveCalls,
    Device,
    GraphNodes,
    Launches,
    Note,
    OpKind,
    Ops,
    Overheads,
    Process,
    Ranges,
    Run,
    Source,
    Trace,
)
from profkit.traces.ranges import nest
from profkit.traces.strings import StringTable

KERNELS = {
    "gemm": "nvjet_tst_64x8_64x16",
    "attention": "flash_fwd_splitkv_kernel",
    "all_reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "send_recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "HtoD": "memcpy HtoD",
    "DtoH": "memcpy DtoH",
    "DtoD": "memcpy DtoD",
    "PtoP": "memcpy PtoP",
    "memset": "memset",
    "whole_graph": "CUDA graph",
}
"""Short names for kernels and copies; any other name stands for itself."""

KINDS = {"HtoD": OpKind.MEMCPY, "DtoH": OpKind.MEMCPY, "DtoD": OpKind.MEMCPY, "PtoP": OpKind.MEMCPY}
KINDS |= {"memset": OpKind.MEMSET, "whole_graph": OpKind.GRAPH}

Row = dict[str, int]


@dataclass
class TraceBuilder:
    """Collects rows; ``rank``, ``device`` and ``thread`` say whose rows follow.

    Rank r is process 100 + r, whose main thread has the same number, on GPU r. Correlation ids start at 1 in every
    process, as real ones do.
    """

    strings: StringTable = field(default_factory=StringTable)
    ops: list[Row] = field(default_factory=list)
    launches: list[Row] = field(default_factory=list)
    ranges: list[Row] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    overheads: list[Row] = field(default_factory=list)
    nodes: list[Row] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict)
    source: Source = Source("synthetic")
    recorded_run: Run = Run()
    last_id: dict[int, int] = field(default_factory=dict)
    pid: int = 100
    tid: int = 100
    gpu: int = 0

    def rank(self, rank: int) -> Self:
        """Rows of ``rank`` follow: its process, main thread and GPU."""
        self.pid = self.tid = 100 + rank
        self.gpu = rank
        self.ranks[self.pid] = rank
        return self

    def thread(self, tid: int) -> Self:
        """Calls and ranges of thread ``tid`` of the process follow."""
        self.tid = tid
        return self

    def device(self, device: int) -> Self:
        """Ops of GPU ``device`` follow."""
        self.gpu = device
        return self

    def range(self, start: int, end: int, text: str, domain: str = "profkit") -> Self:
        """An annotated range of the thread."""
        where = {"start": start, "end": end, "pid": self.pid, "tid": self.tid}
        self.ranges.append(where | {"domain": self.strings.id(domain), "text": self.strings.id(text)})
        return self

    def call(self, start: int, end: int, api: str, correlation: int | None = None) -> Self:
        """A host API call; it gets the process's next correlation id unless one is given."""
        if correlation is None:
            correlation = self.last_id[self.pid] = self.last_id.get(self.pid, 0) + 1
        where = {"start": start, "end": end, "pid": self.pid, "tid": self.tid}
        self.launches.append(where | {"correlation": correlation, "api": self.strings.id(api)})
        return self

    def overhead(self, start: int, end: int, name: str) -> Self:
        """What CUPTI calls overhead on the thread."""
        where = {"start": start, "end": end, "pid": self.pid, "tid": self.tid}
        self.overheads.append(where | {"name": self.strings.id(name)})
        return self

    def op(self, name: str, start: int, end: int, stream: int = 7, launch: int | None = None) -> Self:
        """A GPU activity of the last call of the process, or of the one with the id ``launch``."""
        launch = self.last_id[self.pid] if launch is None else launch
        return self._op(name, start, end, stream, launch, UNKNOWN, UNKNOWN)

    def node(
        self, name: str, start: int, end: int, stream: int = 7, node: int = UNKNOWN, launch: int | None = None
    ) -> Self:
        """An activity of the graph that the last call launched, or the one with the id ``launch``."""
        launch = self.last_id[self.pid] if launch is None else launch
        return self._op(name, start, end, stream, launch, launch, node)

    def orphan(self, name: str, start: int, end: int, stream: int = 7) -> Self:
        """A GPU activity without a launch record."""
        return self._op(name, start, end, stream, UNKNOWN, UNKNOWN, UNKNOWN)

    def _op(self, name: str, start: int, end: int, stream: int, correlation: int, graph: int, node: int) -> Self:
        self.ops.append(
            {
                "start": start, "end": end, "device": self.gpu, "stream": stream, "pid": self.pid,
                "correlation": correlation, "kind": KINDS.get(name, OpKind.KERNEL),
                "name": self.strings.id(KERNELS.get(name, name)), "graph_launch": graph, "graph_node": node,
                "bytes": UNKNOWN,
            }
        )  # fmt: skip
        return self

    def launch(self, start: int, end: int, name: str, op_start: int, op_end: int, stream: int = 7) -> Self:
        """A kernel or copy and the call that enqueued it."""
        api = "cudaLaunchKernel" if KINDS.get(name, OpKind.KERNEL) == OpKind.KERNEL else "cudaMemcpyAsync"
        return self.call(start, end, api).op(name, op_start, op_end, stream)

    def graph(self, start: int, end: int, *nodes: tuple[str, int, int]) -> Self:
        """A graph launch and its nodes, numbered from 1."""
        self.call(start, end, "cudaGraphLaunch")
        for number, (name, node_start, node_end) in enumerate(nodes, 1):
            self.node(name, node_start, node_end, node=number)
        return self

    def collective_call(self, start: int, end: int, kind: str, comm: str, size: int = UNKNOWN) -> Self:
        """A call of a collective library on the thread."""
        where = {"pid": self.pid, "tid": self.tid, "start": start, "end": end, "count": UNKNOWN, "dtype": UNKNOWN}
        self.calls.append(where | {"comm": self.strings.id(comm), "kind": self.strings.id(kind), "bytes": size})
        return self

    def graph_node(self, node: int, original: int, created: int) -> Self:
        """The creation of a graph node."""
        where = {"pid": self.pid, "tid": self.tid}
        self.nodes.append(where | {"node": node, "original_node": original, "created": created})
        return self

    def note(self, key: str, text: str) -> Self:
        """A note of the recorder."""
        self.notes.append(Note(key, text))
        return self

    def recorded_by(self, source: str) -> Self:
        """The format that the trace pretends to come from."""
        self.source = Source(source)
        return self

    def run(self, run: Run) -> Self:
        """What is known of the run."""
        self.recorded_run = run
        return self

    def trace(self) -> Trace:
        """The trace of all rows, its invariants checked."""
        devices = sorted({row["device"] for row in self.ops})
        pids = sorted({row["pid"] for row in (*self.ops, *self.launches, *self.ranges)})
        trace = Trace(
            ops=Ops(**_columns(Ops, sorted(self.ops, key=lambda row: (row["start"], row["end"])))),
            launches=Launches(**_columns(Launches, self.launches)),
            ranges=self._ranges(),
            graph_nodes=GraphNodes(**_columns(GraphNodes, self.nodes)),
            collective_calls=CollectiveCalls(**_columns(CollectiveCalls, self.calls)),
            overheads=Overheads(**_columns(Overheads, self.overheads)),
            processes=tuple(Process(pid, self.ranks.get(pid)) for pid in pids),
            devices=tuple(Device(device) for device in devices),
            notes=tuple(self.notes),
            strings=self.strings.freeze(),
            source=self.source,
            run=self.recorded_run,
        )
        trace.check()
        return trace

    def _ranges(self) -> Ranges:
        names = ("start", "end", "pid", "tid", "domain", "text")
        columns = {name: np.array([row[name] for row in self.ranges], np.int64) for name in names}
        order, depth, parent = nest(columns["start"], columns["end"], columns["pid"], columns["tid"])
        return Ranges(**{name: values[order] for name, values in columns.items()}, depth=depth, parent=parent)


def _columns(
    table: type[Ops | Launches | GraphNodes | CollectiveCalls | Overheads], rows: list[Row]
) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows], dtype) for name, dtype in table.dtypes().items()}
