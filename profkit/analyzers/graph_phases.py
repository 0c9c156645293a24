"""Each phase of the decode steps inside and outside of CUDA graphs, and what its graph launches are like."""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, Index

from .arrays import distinct
from .attribution import Attribution
from .device_result import DeviceFigures
from .graph_launches import GraphLaunches, decode_rows, earlier_work, in_graph, median
from .graph_padding import NO_PADDING, padding_of
from .graph_result import GraphPhase
from .vocabulary import PHASE, PHASES


def graph_phases(
    attribution: Attribution, device: int, figures: DeviceFigures, launches: GraphLaunches, nodes_known: bool
) -> dict[str, GraphPhase]:
    """The phases that the decode steps of ``device`` have.

    Without ``nodes_known`` the recording does not hold the kernels of graphs, and what rests on them is ``None``.
    """
    rows = decode_rows(attribution, device)
    inside = in_graph(attribution, rows)
    after_call, after_free = _latencies(attribution, device, launches)
    table = {}
    for code in distinct(attribution.phase[rows]).tolist():
        mine = attribution.phase[rows] == code
        own = launches.phase == code
        ops = rows[mine & inside]
        gap = _gap_in_graph(figures, PHASES[code])
        padding = padding_of(attribution, ops) if nodes_known else NO_PADDING
        table[PHASES[code]] = GraphPhase(
            ops_in_graphs=len(ops) if nodes_known else None,
            ops_outside=int((mine & ~inside).sum()),
            in_graphs_ns=_gpu_ns(attribution, ops) if nodes_known else None,
            outside_ns=_gpu_ns(attribution, rows[mine & ~inside]),
            launches=int(own.sum()) if nodes_known else None,
            nodes_per_launch=median(launches.size[own]) if nodes_known else None,
            launch_call_ns_median=median(_call_ns(attribution, launches.call[own])),
            first_op_latency_ns_median=median(after_call[own]),
            first_op_after_free_ns_median=median(after_free[own]),
            gap_in_graph_ns=gap,
            gap_ns_per_node=gap / len(ops) if gap is not None and len(ops) else None,
            batch_size=padding.real,
            captured_batch_size=padding.captured,
            padded_steps=padding.steps,
            padding_ns=padding.ns,
            padded=padding.padded or (),
        )
    return dict(sorted(table.items(), key=lambda item: PHASE[item[0]]))


def _latencies(attribution: Attribution, device: int, launches: GraphLaunches) -> tuple[I64, I64]:
    """From the start of each launch call to its first op; and from when the GPU was free too, at least 0.

    Work on another stream may still run when a graph begins: then the GPU was never free, and the wait is 0.
    """
    start = attribution.trace.ops.start[launches.first]
    call = attribution.trace.launches.start[launches.call]
    end, has = earlier_work(attribution, device, launches.first)
    ready = np.where(has, np.maximum(call, end), call)
    return start - call, np.maximum(start - ready, 0)


def _call_ns(attribution: Attribution, call: I64) -> I64:
    launches = attribution.trace.launches
    spent: I64 = launches.end[call] - launches.start[call]
    return spent


def _gpu_ns(attribution: Attribution, rows: Index) -> int:
    return int((attribution.trace.ops.end[rows] - attribution.trace.ops.start[rows]).sum())


def _gap_in_graph(figures: DeviceFigures, phase: str) -> int | None:
    """Idle time inside graphs as the partition has it; ``None`` where the partition is unknown."""
    if figures.partition_ns["gap_in_graph"] is None:
        return None
    return figures.phase_partition_ns.get(phase, {}).get("gap_in_graph") or 0
