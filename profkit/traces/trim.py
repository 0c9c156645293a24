"""Cutting a recording down to a few whole decode steps, the same ones on every rank."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from .alignment import NOT_THERE, step_shift
from .model import I64, UNKNOWN, Bools, Note, Ranges, Trace
from .ranges import nest

STEP = re.compile(r"^step:(prefill|decode)(?: bs=(\d+))?")
DOMAIN = "profkit"
COMPLETE = 0.9
"""A step with fewer GPU activities or ranges than this share of the median was cut off by the recording's end."""


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """The steps of one process, in order: host times, batch size (-1: prefill), and what each holds.

    ``ops`` and ``ranges`` count the GPU activities it launched and the ranges in it; ``gpu_end`` is when the last
    activity ended, ``NOT_THERE`` without any.
    """

    pid: int
    start: I64
    end: I64
    batch: I64
    ranges: I64
    ops: I64
    gpu_end: I64

    def shifted(self, by: int, count: int) -> _Steps:
        """``count`` steps from the one numbered ``by``."""
        part = slice(by, by + count)
        return replace(
            self,
            start=self.start[part],
            end=self.end[part],
            batch=self.batch[part],
            ranges=self.ranges[part],
            ops=self.ops[part],
            gpu_end=self.gpu_end[part],
        )


def trim_steps(trace: Trace, count: int, batch_size: int | None = None) -> Trace:
    """The trace with ``count`` consecutive decode steps and all rows that belong to them.

    Steps are profkit's own ranges; without any, or with no more than ``count``, the trace is returned as it is. Among
    all stretches the best is one of complete decode steps of ``batch_size`` without a prefill between, then the one
    nearest to the middle, where contexts are those of the whole recording.

    Kept are the activities that the steps launched and those that overlap them on the GPU, the launches within the
    steps and those that own a kept activity, the ranges and collective calls within, the nodes of graphs that are in
    use, and every sample.
    """
    ranks = _aligned(_steps_of(trace))
    recorded = min((len(rank.start) for rank in ranks), default=0)
    if recorded <= count:
        return trace
    first = _best(ranks, count, recorded, batch_size)
    spans = {rank.pid: (int(rank.start[first]), int(rank.end[first + count - 1])) for rank in ranks}
    trimmed = Note("trimmed", f"{count} of {recorded} recorded steps")
    return replace(_cut(trace, spans), notes=(*trace.notes, trimmed))


def recorded_period_ns(trace: Trace) -> float | None:
    """The median time from one decode step's start to the next one's, on the host; ``None`` without two in a row."""
    gaps = [
        following - own
        for rank in _steps_of(trace)
        for own, following, kinds in zip(
            rank.start[:-1], rank.start[1:], np.minimum(rank.batch[:-1], rank.batch[1:]), strict=True
        )
        if kinds >= 0
    ]
    return float(np.median(gaps)) if gaps else None


def _steps_of(trace: Trace) -> list[_Steps]:
    ranges, launches = trace.ranges, trace.launches
    if DOMAIN not in trace.strings or not len(ranges):
        return []
    found = [STEP.match(text) for text in trace.strings]
    is_step = np.array([match is not None for match in found])
    batch = np.array([int(m[2] or 0) if m and m[1] == "decode" else -1 for m in found], np.int64)
    rows = np.flatnonzero((ranges.domain == trace.strings.index(DOMAIN)) & is_step[ranges.text])
    rows = rows[np.lexsort((ranges.start[rows], ranges.pid[rows]))]
    steps = []
    for pid in np.unique(ranges.pid[rows]).tolist():
        mine = rows[ranges.pid[rows] == pid]
        start, end = ranges.start[mine], ranges.end[mine]
        calls = np.flatnonzero(launches.pid == pid)
        owner = _span_at(start, end, launches.start[calls])
        ops, gpu_end = _work(trace, pid, launches.correlation[calls], owner, len(mine))
        inner = _span_at(start, end, ranges.start[ranges.pid == pid])
        held = np.bincount(inner[inner >= 0], minlength=len(mine)).astype(np.int64)
        steps.append(_Steps(pid, start, end, batch[ranges.text[mine]], held, ops, gpu_end))
    return steps


def _span_at(start: I64, end: I64, time: I64) -> I64:
    """The number of the span that holds each time, or -1; spans are in order and apart."""
    place = np.searchsorted(start, time, "right") - 1
    inside = (place >= 0) & (time < end[np.maximum(place, 0)])
    return np.where(inside, place, UNKNOWN)


def _work(trace: Trace, pid: int, correlation: I64, owner: I64, count: int) -> tuple[I64, I64]:
    """How many GPU activities each step launched, and when the last of them ended."""
    ops = trace.ops.take((trace.ops.pid == pid) & (trace.ops.correlation >= 0))
    number, end = np.zeros(count, np.int64), np.full(count, NOT_THERE)
    launched = owner >= 0
    if not len(ops) or not np.any(launched):
        return number, end
    correlation, owner = correlation[launched], owner[launched]
    order = np.argsort(correlation, kind="stable")
    at = np.minimum(np.searchsorted(correlation[order], ops.correlation), len(order) - 1)
    known = correlation[order][at] == ops.correlation
    step = owner[order][at][known]
    np.add.at(number, step, 1)
    np.maximum.at(end, step, ops.end[known])
    return number, end


def _aligned(ranks: list[_Steps]) -> list[_Steps]:
    """The same steps under the same numbers: ranks leave a step's last collective almost at once."""
    if len(ranks) < 2:
        return ranks
    shifts = [0, *(step_shift(ranks[0].gpu_end, rank.gpu_end) for rank in ranks[1:])]
    first = max(shifts)
    count = min(len(rank.start) - (first - shift) for rank, shift in zip(ranks, shifts, strict=True))
    return [rank.shifted(first - shift, max(count, 0)) for rank, shift in zip(ranks, shifts, strict=True)]


def _best(ranks: list[_Steps], count: int, recorded: int, batch_size: int | None) -> int:
    """The number of the first step of the best stretch."""
    good = np.zeros(recorded, np.int64)
    for rank in ranks:
        decode = rank.batch[:recorded] >= 0
        wanted = decode if batch_size is None else rank.batch[:recorded] == batch_size
        whole = _is_whole(rank.ops[:recorded], decode) & _is_whole(rank.ranges[:recorded], decode)
        good += 4 * decode + 2 * wanted + whole
    sums = np.convolve(good, np.ones(count, np.int64), "valid")
    best = np.flatnonzero(sums == sums.max())[::-1]
    return int(best[np.argmin(np.abs(2 * best - (len(sums) - 1)))])


def _is_whole(held: I64, decode: Bools) -> Bools:
    typical = float(np.median(held[decode])) if np.any(decode) else 0.0
    return held >= COMPLETE * typical


def _cut(trace: Trace, spans: dict[int, tuple[int, int]]) -> Trace:
    launches, ops, calls, nodes = trace.launches, trace.ops, trace.collective_calls, trace.graph_nodes
    called = _within(launches.pid, launches.start, spans)
    owner, owned = _keys(launches.pid, launches.correlation), _keys(ops.pid, ops.correlation)
    kept = np.isin(owned, owner[called]) & (ops.correlation >= 0)
    kept |= _overlapping(trace, kept)
    return replace(
        trace,
        ops=ops.take(kept),
        launches=launches.take(called | np.isin(owner, owned[kept & (ops.correlation >= 0)])),
        ranges=_cut_ranges(trace.ranges, spans),
        collective_calls=calls.take(_within(calls.pid, calls.start, spans)),
        overheads=trace.overheads.take(_within(trace.overheads.pid, trace.overheads.start, spans)),
        graph_nodes=nodes.take(_used_nodes(trace, kept)),
    )


def _within(pid: I64, start: I64, spans: dict[int, tuple[int, int]]) -> Bools:
    inside = np.zeros(len(pid), np.bool_)
    for process, (begin, end) in spans.items():
        inside |= (pid == process) & (start >= begin) & (start < end)
    return inside


def _keys(pid: I64, correlation: I64) -> I64:
    return (pid << 40) ^ correlation


def _overlapping(trace: Trace, kept: Bools) -> Bools:
    """Activities of other steps that run while those in ``kept`` do: without them the GPU would look idle there."""
    ops = trace.ops
    during = np.zeros(len(ops), np.bool_)
    for device in np.unique(ops.device[kept]).tolist():
        mine = kept & (ops.device == device)
        begin, end = ops.start[mine].min(), ops.end[mine].max()
        during |= (ops.device == device) & (ops.start < end) & (ops.end > begin)
    return during


def _cut_ranges(ranges: Ranges, spans: dict[int, tuple[int, int]]) -> Ranges:
    """The ranges that lie within; a range around several steps goes, so that parents are found anew."""
    inside = _within(ranges.pid, ranges.start, spans) & _within(ranges.pid, ranges.end - 1, spans)
    kept = ranges.take(inside)
    order, depth, parent = nest(kept.start, kept.end, kept.pid, kept.tid)
    return replace(kept.take(order), depth=depth, parent=parent)


def _used_nodes(trace: Trace, kept: Bools) -> Bools:
    """The nodes that kept activities ran, and the nodes that those were cloned from."""
    nodes = trace.graph_nodes
    own, original = _keys(nodes.pid, nodes.node), _keys(nodes.pid, nodes.original_node)
    used = np.unique(_keys(trace.ops.pid[kept], trace.ops.graph_node[kept]))
    while True:
        wanted = np.isin(own, used)
        more = np.union1d(used, original[wanted & (nodes.original_node >= 0)])
        if len(more) == len(used):
            return wanted
        used = more
