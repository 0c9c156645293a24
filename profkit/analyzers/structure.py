"""Steps of recordings without profkit's ranges: from an engine's own labels, or from the graphs it launches.

A step of a speculative worker is a small forward (the drafter) followed by a large one (verify). Where the labels
do not tell them apart, the number of GPU ops that each forward launched does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I8, I64, UNKNOWN, Bools, Trace

from .steps import DECODE, PREFILL, UNRESOLVED, Forwards, Labels, StepPlan, Steps, empty_plan, make_steps
from .vocabulary import PHASE

MIN_RATIO = 1.5
"""A drafter's forward and a target's differ at least so much in ops; anything closer is one kind of forward."""

MIN_ALTERNATING = 0.8
"""Share of large forwards that must follow a small one."""

MIN_GRAPH_OPS = 50
"""A graph of fewer nodes is no whole forward (piecewise graphs have one per layer)."""

MIN_GRAPHS = 4

DRAFT, VERIFY, PLAIN, PROMPT = PHASE["draft"], PHASE["verify"], PHASE["decode"], PHASE["prefill"]


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Forwards in host order on their threads, with the ops that each launched."""

    pid: I64
    tid: I64
    start: I64
    end: I64
    phase: I8
    batch_size: I64
    ops: I64


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
    order = np.lexsort((ranges.start, ranges.tid, ranges.pid))
    spans = _Spans(
        ranges.pid[order], ranges.tid[order], ranges.start[order], ranges.end[order],
        forwards.phase[order].copy(), forwards.batch_size[order], ops[order],
    )  # fmt: skip
    inferred = bool(np.any(spans.phase == UNRESOLVED))
    _resolve(spans)
    steps = _group(trace, spans, ranges.parent[order])
    detail = "drafter and target told apart by the number of ops that each forward launches" if inferred else ""
    return StepPlan(steps, _labels(steps, spans), source, inferred, detail)


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
    for thread in _threads(launches.pid, launches.tid):
        phase[thread] = _graph_phases(ops[thread])
    kept = phase != UNKNOWN
    if not np.any(kept):
        return empty_plan("no annotated step and no repeating graph launches")
    chosen = launches.take(kept)
    unknown = np.full(len(chosen), UNKNOWN, np.int64)
    spans = _Spans(
        chosen.pid, chosen.tid, chosen.start, np.maximum(chosen.end, chosen.start + 1), phase[kept], unknown, ops[kept]
    )
    steps = _group(trace, spans, unknown)
    return StepPlan(steps, _labels(steps, spans), "structure", True, "steps inferred from repeating graph launches")


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


def _threads(pid: I64, tid: I64) -> list[I64]:
    """Rows of each thread; rows must be ordered by thread."""
    if not len(pid):
        return []
    cuts = np.flatnonzero((np.diff(pid) != 0) | (np.diff(tid) != 0)) + 1
    return np.split(np.arange(len(pid)), cuts)


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


def _resolve(spans: _Spans) -> None:
    """Give ``UNRESOLVED`` forwards their phase, in place; where sizes do not alternate, all are verify."""
    for thread in _threads(spans.pid, spans.tid):
        open_rows = thread[spans.phase[thread] == UNRESOLVED]
        small = split_by_size(spans.ops[open_rows]) if len(open_rows) > 1 else None
        spans.phase[open_rows] = VERIFY if small is None else np.where(small, DRAFT, VERIFY)


def _group(trace: Trace, spans: _Spans, parent: I64) -> Steps:
    """One step per plain decode or prefill forward; else a run of drafter forwards and the verify behind it."""
    heads, tails = [], []
    for thread in _threads(spans.pid, spans.tid):
        phase = spans.phase[thread]
        opens = np.ones(len(thread), np.bool_)
        opens[1:] = ~((phase[:-1] == DRAFT) & np.isin(phase[1:], (DRAFT, VERIFY)))
        head = thread[opens]
        heads.append(head)
        tails.append(np.append(head[1:] - 1, thread[-1]))
    head, tail = np.concatenate(heads), np.concatenate(tails)
    start, end = _extent(trace, spans, parent, head, tail)
    kind = np.where(spans.phase[head] == PROMPT, PREFILL, DECODE).astype(np.int8)
    steps = make_steps(spans.pid[head], spans.tid[head], start, end, kind, spans.batch_size[tail])
    drafting = spans.phase[head] == DRAFT
    order = np.lexsort((start, spans.pid[head]))
    steps.drafts[:] = drafting[order] & (kind[order] == DECODE)
    return steps


def _extent(trace: Trace, spans: _Spans, parent: I64, head: I64, tail: I64) -> tuple[I64, I64]:
    """A step reaches over the range around its forwards if each step has one of its own, else to the next step."""
    around = parent[head]
    if np.all(around >= 0) and len(np.unique(around)) == len(around) and np.all(around == parent[tail]):
        return trace.ranges.start[around], trace.ranges.end[around]
    start, end = spans.start[head], spans.end[tail].copy()
    same = (spans.pid[head][1:] == spans.pid[head][:-1]) & (spans.tid[head][1:] == spans.tid[head][:-1])
    end[:-1][same] = start[1:][same]
    return start, end


def _labels(steps: Steps, spans: _Spans) -> Labels:
    whole = np.where(steps.kind == PREFILL, PROMPT, PHASE["step_other"]).astype(np.int8)
    return Labels(
        np.concatenate([steps.pid, spans.pid]),
        np.concatenate([steps.tid, spans.tid]),
        np.concatenate([steps.start, spans.start]),
        np.concatenate([steps.end, spans.end]),
        np.concatenate([whole, spans.phase]),
    )
