"""CUDA graphs of the decode steps: how many, how large, how long to launch, and whether the host runs ahead."""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, UNKNOWN, Index, OpKind, Trace

from .attribution import Attribution
from .owners import pair_keys
from .result import GraphFigures
from .vocabulary import PHASES


def graph_nodes_missing(trace: Trace, launch: I64) -> str | None:
    """Why the kernels of graphs are not in the recording, or ``None`` if they are.

    ``launch`` is the row of the launch of each op.
    """
    whole = int(np.count_nonzero(trace.ops.kind == OpKind.GRAPH))
    rows = graph_launch_rows(trace)
    with_ops = int(np.isin(rows, launch).sum())
    if whole:
        return f"{whole} graph launches were recorded whole, without their kernels (--cuda-graph-trace=graph)"
    if len(rows) and with_ops < len(rows) / 2:
        return f"{len(rows) - with_ops} of {len(rows)} graph launches have no recorded kernel"
    return None


def graph_launch_rows(trace: Trace) -> Index:
    """Rows of ``trace.launches`` that launch a graph."""
    names = np.array(["GraphLaunch" in text for text in trace.strings] or [False])
    return np.flatnonzero(names[trace.launches.api]) if len(trace.launches) else np.empty(0, np.intp)


def graph_figures(attribution: Attribution, device: int, steps: int) -> GraphFigures:
    """The graph figures of one device over its ``steps`` decode steps."""
    ops, launches = attribution.trace.ops, attribution.trace.launches
    rows = np.flatnonzero((ops.device == device) & attribution.in_decode)
    in_graph = rows[ops.graph_launch[rows] >= 0]
    first, size = _launched_graphs(attribution, in_graph)
    call = attribution.launch[first]
    known = call >= 0
    boundary = first[known] if len(first) else _first_of_launch(attribution, rows)
    lead = launch_leads(attribution, device, boundary)
    start, end = launches.start[call[known]], launches.end[call[known]]
    return GraphFigures(
        launches_per_step=_per_step(len(first), steps),
        nodes_per_launch=_nodes_by_phase(attribution, first, size),
        ops_outside_graphs_per_step=_per_step(len(rows) - len(in_graph), steps),
        launch_call_ns_median=_median(end - start),
        first_op_latency_ns_median=_median(ops.start[first[known]] - start),
        launch_lead_ns_median=_median(lead),
        run_ahead_share=float((lead > 0).mean()) if len(lead) else None,
        captured_batch_size=captured_batch_size(attribution, device),
    )


def _launched_graphs(attribution: Attribution, in_graph: Index) -> tuple[Index, I64]:
    """The first op of each graph launch, in order of time, and the number of its ops."""
    ops = attribution.trace.ops
    (keys,) = pair_keys((ops.pid[in_graph], ops.graph_launch[in_graph]))
    order = np.lexsort((ops.start[in_graph], keys))
    _, first, size = np.unique(keys[order], return_index=True, return_counts=True)
    rows = in_graph[order][first]
    by_time = np.argsort(ops.start[rows], kind="stable")
    return rows[by_time], size[by_time]


def _first_of_launch(attribution: Attribution, rows: Index) -> Index:
    """Ops of ``rows`` that have a launch, the earliest of each."""
    launched = rows[attribution.launch[rows] >= 0]
    order = launched[np.argsort(attribution.trace.ops.start[launched], kind="stable")]
    _, first = np.unique(attribution.launch[order], return_index=True)
    return order[np.sort(first)]


def launch_leads(attribution: Attribution, device: int, first: Index) -> I64:
    """For each op in ``first``: end of the device's work before it, minus start of its launch call.

    Positive where the host was ahead. Ops without earlier work on the device are left out.
    """
    ops = attribution.trace.ops
    rows = np.flatnonzero(ops.device == device)
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    reach = np.maximum.accumulate(ops.end[rows]) if len(rows) else ops.end[rows]
    before = np.searchsorted(ops.start[rows], ops.start[first], "left") - 1
    has = before >= 0
    call = attribution.launch[first[has]]
    lead: I64 = reach[before[has]] - attribution.trace.launches.start[call]
    return lead


def _nodes_by_phase(attribution: Attribution, first: Index, size: I64) -> dict[str, int]:
    phase = attribution.phase[first]
    return {PHASES[code]: int(np.median(size[phase == code])) for code in np.unique(phase).tolist()}


def captured_batch_size(attribution: Attribution, device: int) -> int | None:
    """The batch size that the graphs of the decode steps were captured for, as far as can be told.

    Known where the run says which sizes were captured; else the largest batch that replayed the same graphs, if
    that is larger than the steps' own.
    """
    steps, ops = attribution.plan.steps, attribution.trace.ops
    rows = np.flatnonzero((ops.device == device) & attribution.in_decode & (ops.graph_launch >= 0))
    if not len(rows):
        return None
    real = steps.batch_size[attribution.step[rows]]
    usual = int(np.median(real))
    sizes = [size for size in attribution.trace.run.graph_batch_sizes if size >= usual]
    if sizes and usual >= 0:
        return min(sizes)
    if real.max() <= usual:
        return None
    node = ops.graph_node[rows]
    same = np.isin(node, np.unique(node[real == usual])) & (node != UNKNOWN)
    largest = int(real[same].max(initial=usual))
    return largest if largest > usual >= 0 else None


def _per_step(count: int, steps: int) -> float | None:
    return count / steps if steps else None


def _median(values: I64) -> int | None:
    return int(np.median(values)) if len(values) else None
