"""Steps of recordings without profkit's ranges: from an engine's own labels, or from the graphs it launches.

A step of a speculative worker is a small forward (the drafter) followed by a large one (verify). Where the labels
do not tell them apart, the number of GPU ops that each forward launched does.
"""

from __future__ import annotations

import numpy as np

from profkit.traces import I8, I64, UNKNOWN, Bools, Trace

from .grouping import DRAFT, OPENING, PLAIN, VERIFY, Spans, claim_for_prefill, group, threads
from .steps import UNRESOLVED, Forwards, StepPlan, empty_plan

MIN_RATIO = 1.5
"""A drafter's forward and a target's differ at least so much in ops; anything closer is one kind of forward."""

MIN_ALTERNATING = 0.8
"""Share of large forwards that must follow a small one."""

MIN_GRAPH_OPS = 50
"""A graph of fewer nodes is no whole forward (piecewise graphs have one per layer)."""

MIN_GRAPHS = 4


def split_by_size(ops: I64) -> Bools | None:
    """Which of alternating forwards are the small ones, or ``None`` where they do not alternate.

    ``ops`` counts the GPU ops of successive forwards of one thread.
    """
    sizes = np.unique(np.maximum(ops, 1))
    if len(sizes) < 2:
        return None
    ratios = sizes[1:] / sizes[:-1]
    widest = int(np.argmax(ratios))
    if ratios[widest] < MIN_RATIO:
        return None
    small = ops <= sizes[widest]
    large = np.flatnonzero(~small)
    followed = (large > 0) & small[np.maximum(large - 1, 0)]
    enough = followed.mean() >= MIN_ALTERNATING and small.sum() >= MIN_ALTERNATING * len(large)
    return small if enough else None


def plan_from_forwards(trace: Trace, forwards: Forwards, launch_ops: I64, source: str) -> StepPlan:
    """Steps from labelled forwards; ``UNRESOLVED`` ones are told apart by size, and marked as inferred."""
    ranges = trace.ranges.take(forwards.row)
    ops = _ops_between(trace, launch_ops, ranges.pid, ranges.tid, ranges.start, ranges.end)
    order = np.lexsort((-ranges.end, ranges.start, ranges.tid, ranges.pid))
    spans = Spans(
        ranges.pid[order], ranges.tid[order], ranges.start[order], ranges.end[order], forwards.phase[order].copy(),
        forwards.batch_size[order], ops[order], forwards.row[order], ranges.parent[order],
    )  # fmt: skip
    claim_for_prefill(spans)
    inferred = bool(np.any(spans.phase == UNRESOLVED))
    _resolve(spans)
    detail = "drafter and target told apart by the number of ops that each forward launches" if inferred else ""
    if not np.any(np.isin(spans.phase, OPENING)):
        return empty_plan("no range is named that opens a step (draft, verify, decode or prefill)")
    return StepPlan(*group(trace, spans), source, inferred, detail)


def plan_from_graphs(trace: Trace, launch_ops: I64) -> StepPlan:
    """Steps from graph launches alone: a small and a large graph in turn, or one graph again and again."""
    graph = np.zeros(len(trace.launches), np.bool_)
    names = np.array(["GraphLaunch" in text for text in trace.strings] or [False])
    if len(trace.launches):
        graph = names[trace.launches.api] & (launch_ops >= 1)
    rows = np.flatnonzero(graph)
    launches = trace.launches.take(rows)
    order = np.lexsort((launches.start, launches.tid, launches.pid))
    launches, ops = launches.take(order), launch_ops[rows][order]
    phase = np.full(len(launches), UNKNOWN, np.int8)
    for thread in threads(launches.pid, launches.tid):
        phase[thread] = _graph_phases(ops[thread])
    kept = phase != UNKNOWN
    if not np.any(kept):
        return empty_plan("no annotated step and no repeating graph launches")
    chosen = launches.take(kept)
    unknown = np.full(len(chosen), UNKNOWN, np.int64)
    end = np.maximum(chosen.end, chosen.start + 1)
    spans = Spans(
        chosen.pid, chosen.tid, chosen.start, end, phase[kept], unknown, ops[kept], row=unknown, parent=unknown
    )
    detail = "steps inferred from repeating graph launches"
    return StepPlan(*group(trace, spans), "structure", True, detail)


def _graph_phases(ops: I64) -> I8:
    phases = np.full(len(ops), UNKNOWN, np.int8)
    if len(ops) < MIN_GRAPHS or ops.max() < MIN_GRAPH_OPS:
        return phases
    small = split_by_size(ops)
    if small is not None:
        return np.where(small, DRAFT, VERIFY).astype(np.int8)
    if ops.max() < MIN_RATIO * ops.min():
        phases[:] = PLAIN
    return phases


def _ops_between(trace: Trace, launch_ops: I64, pid: I64, tid: I64, start: I64, end: I64) -> I64:
    """Ops whose launch call starts within ``[start, end)`` on thread (pid, tid)."""
    counts = np.zeros(len(start), np.int64)
    launches = trace.launches
    for process, thread in {(int(p), int(t)) for p, t in zip(pid, tid, strict=True)}:
        mine = np.flatnonzero((launches.pid == process) & (launches.tid == thread))
        mine = mine[np.argsort(launches.start[mine], kind="stable")]
        total = np.concatenate([[0], np.cumsum(launch_ops[mine])])
        asked = (pid == process) & (tid == thread)
        first = np.searchsorted(launches.start[mine], start[asked])
        last = np.searchsorted(launches.start[mine], end[asked])
        counts[asked] = total[last] - total[first]
    return counts


def _resolve(spans: Spans) -> None:
    """Give ``UNRESOLVED`` forwards their phase, in place; where sizes do not alternate, all are verify."""
    for thread in threads(spans.pid, spans.tid):
        open_rows = thread[spans.phase[thread] == UNRESOLVED]
        small = split_by_size(spans.ops[open_rows]) if len(open_rows) > 1 else None
        spans.phase[open_rows] = VERIFY if small is None else np.where(small, DRAFT, VERIFY)
