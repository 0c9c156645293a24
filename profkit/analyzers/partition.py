"""The exact partition of a device's time (design, section 5): every nanosecond belongs to one part and one phase."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from profkit.traces import I8, I64, UNKNOWN, Bools, Index, Launches, OpKind, Ops, Trace

from .arrays import distinct, expand, occurring
from .intervals import latest_active, merge
from .owners import pair_keys
from .rules import Rules
from .vocabulary import CLASS, PART, PARTS, PHASES

COMPUTE, COLLECTIVE, COPY = PART["compute"], PART["collective"], PART["copy"]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTimeline:
    """The time of one device, from its first op to the end of its last, cut into segments without a hole.

    ``part`` and ``phase`` are codes; ``op`` is the row of the op that decides a busy segment, or of the op that
    ends a gap. ``window_start`` and ``window_end`` bound the decode steps; ``None`` where there is none.
    """

    device: int
    start: I64
    end: I64
    part: I8
    phase: I8
    op: I64
    window_start: int | None
    window_end: int | None

    def check(self) -> None:
        """Raise ``ValueError`` unless the segments follow each other without overlap or hole."""
        if np.any(self.end <= self.start) or np.any(self.start[1:] != self.end[:-1]):
            raise ValueError(f"the segments of device {self.device} do not tile its time")

    def totals(self, start: int, end: int) -> I64:
        """Nanoseconds by part and phase within ``[start, end)``: an array of shape (parts, phases)."""
        total: I64 = self.totals_of(np.array([start]), np.array([end]))[0]
        return total

    def totals_of(self, start: I64, end: I64) -> I64:
        """``totals`` of each interval ``[start, end)``: an array of shape (intervals, parts, phases)."""
        first = np.searchsorted(self.end, start, "right")
        behind = np.searchsorted(self.start, end, "left")
        owner, segment = expand(first, behind)
        length = np.minimum(self.end[segment], end[owner]) - np.maximum(self.start[segment], start[owner])
        shape = (len(start), len(PARTS), len(PHASES))
        cell = (owner * len(PARTS) + self.part[segment]) * len(PHASES) + self.phase[segment]
        # Sums of int64 stay exact in float64 below 2**53 ns, which is 104 days.
        total = np.bincount(cell, weights=length, minlength=math.prod(shape))
        return total.astype(np.int64).reshape(shape)

    def within(self, start: I64, end: I64) -> tuple[Index, Index, I64]:
        """The pieces of segments that lie within the given intervals.

        Returns, per piece, the interval it lies in, its segment, and its length in nanoseconds.
        """
        first = np.searchsorted(self.end, start, "right")
        behind = np.searchsorted(self.start, end, "left")
        count = np.maximum(behind - first, 0)
        owner = np.repeat(np.arange(len(start)), count)
        segment = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        length = np.minimum(self.end[segment], end[owner]) - np.maximum(self.start[segment], start[owner])
        return owner, segment, np.maximum(length, 0)

    def window_totals(self) -> I64 | None:
        """``totals`` of the window, or ``None`` without one."""
        if self.window_start is None or self.window_end is None:
            return None
        return self.totals(self.window_start, self.window_end)


def build_timeline(
    trace: Trace, rules: Rules, device: int, launch: I64, phase: I8, kernel_class: I8, in_decode: np.ndarray
) -> DeviceTimeline:
    """Partition the time of ``device``. ``launch``, ``phase``, ``kernel_class`` and ``in_decode`` are per op."""
    rows = np.flatnonzero(trace.ops.device == device)
    rows = rows[np.lexsort((trace.ops.end[rows], trace.ops.start[rows]))]
    ops = _DeviceOps.of(trace.ops, rows)
    bounds = distinct(np.concatenate([ops.start, ops.end]))
    part, op = _busy_parts(ops, kernel_class[rows], bounds)
    start, end = bounds[:-1], bounds[1:]
    gaps = np.flatnonzero(op < 0)
    cut = _cut_gaps(trace, rules, ops, launch[rows], start[gaps], end[gaps])
    busy = np.flatnonzero(op >= 0)
    starts = np.concatenate([start[busy], cut.start])
    order = np.argsort(starts, kind="stable")
    row = np.concatenate([op[busy], cut.op])[order]
    decode = rows[in_decode[rows]]
    return DeviceTimeline(
        device=device,
        start=starts[order],
        end=np.concatenate([end[busy], cut.end])[order],
        part=np.concatenate([part[busy], cut.part])[order],
        phase=phase[rows][row],
        op=rows[row],
        window_start=int(trace.ops.start[decode].min()) if len(decode) else None,
        window_end=int(trace.ops.end[decode].max()) if len(decode) else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _DeviceOps:
    """The ops of one device by start and end, with the columns that the partition asks for."""

    start: I64
    end: I64
    pid: I64
    kind: I8
    graph_launch: I64

    @classmethod
    def of(cls, ops: Ops, rows: Index) -> _DeviceOps:
        """The ops at ``rows``."""
        return cls(*(getattr(ops, name)[rows] for name in cls.__slots__))


def _busy_parts(ops: _DeviceOps, kernel_class: I8, bounds: I64) -> tuple[I8, I64]:
    """Part and deciding op of each stretch between neighbouring ``bounds``; op -1 where nothing runs."""
    collective = kernel_class == CLASS["collective"]
    copies = np.isin(ops.kind, (OpKind.MEMCPY, OpKind.MEMSET)) & ~collective
    part = np.full(max(len(bounds) - 1, 0), COPY, np.int8)
    decider = np.full(len(part), UNKNOWN, np.int64)
    undecided = np.arange(len(part))
    for code, members in ((COMPUTE, ~collective & ~copies), (COLLECTIVE, collective), (COPY, copies)):
        group = np.flatnonzero(members)
        active = latest_active(ops.start[group], ops.end[group], bounds[undecided])
        runs = active >= 0
        part[undecided[runs]] = code
        decider[undecided[runs]] = group[active[runs]]
        undecided = undecided[~runs]
    return part, decider


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Stretches with a part and the op that ends the gap they belong to."""

    start: I64
    end: I64
    part: I8
    op: I64

    @classmethod
    def join(cls, pieces: list[_Pieces]) -> _Pieces:
        """All pieces of some length."""
        joined = cls(*(np.concatenate([getattr(p, name) for p in pieces]) for name in cls.__slots__))
        kept = joined.end > joined.start
        return cls(joined.start[kept], joined.end[kept], joined.part[kept], joined.op[kept])


def _cut_gaps(trace: Trace, rules: Rules, ops: _DeviceOps, launch: I64, start: I64, end: I64) -> _Pieces:
    """Cut each gap ``[start, end)`` by what the host did until it launched the op that ends the gap."""
    op = np.searchsorted(ops.start, end, "left")
    row = launch[op]
    known = row >= 0
    launched = trace.launches.start[np.maximum(row, 0)] if len(trace.launches) else start
    late = known & (launched >= start)
    waiting = np.where(late, np.minimum(launched, end), start)
    graph_launch = ops.graph_launch[op] >= 0
    part = np.where(late, np.where(graph_launch, PART["gap_graph_launch"], PART["gap_launch"]), PART["gap_queue"])
    part = np.where(known & ~late & graph_launch, _in_or_before_graph(ops, op, start), part)
    part = np.where(known, part, PART["gap_unknown"]).astype(np.int8)
    behind = _Pieces(waiting, end, part, op)
    host = np.flatnonzero(late & (waiting > start))
    return _Pieces.join([behind, *_host_pieces(trace, rules, row[host], start[host], waiting[host], op[host])])


def _in_or_before_graph(ops: _DeviceOps, op: Index, start: I64) -> I8:
    """For gaps before graph ops launched in time: inside the graph, before its first op, or another wait."""
    in_graph = np.flatnonzero(ops.graph_launch >= 0)
    (keys,) = pair_keys((ops.pid[in_graph], ops.graph_launch[in_graph]))
    first = np.zeros(len(ops.start), np.bool_)
    first[in_graph[np.unique(keys, return_index=True)[1]]] = True
    other = np.where(first[op], PART["gap_graph_launch"], PART["gap_queue"])
    return np.where(_follows_own_graph(ops, op, start), PART["gap_in_graph"], other).astype(np.int8)


def _follows_own_graph(ops: _DeviceOps, op: Index, start: I64) -> Bools:
    """Whether an op of the graph launch of ``op`` ended at ``start``; several ops may end at once."""
    order = np.argsort(ops.end, kind="stable")
    ends = ops.end[order]
    gap, place = expand(np.searchsorted(ends, start, "left"), np.searchsorted(ends, start, "right"))
    ended, begun = order[place], op[gap]
    same = (ops.pid[ended] == ops.pid[begun]) & (ops.graph_launch[ended] == ops.graph_launch[begun])
    follows = np.zeros(len(start), np.bool_)
    follows[gap[same]] = True
    return follows


def _host_pieces(trace: Trace, rules: Rules, row: I64, start: I64, end: I64, op: Index) -> list[_Pieces]:
    """Cut ``[start, end)`` into blocking calls, other calls, and neither, of the thread of launch ``row``."""
    launches = trace.launches
    (threads,) = pair_keys((launches.pid[row], launches.tid[row]))
    blocking = blocking_calls(trace, rules)
    pieces = []
    for thread in distinct(threads):
        mine = np.flatnonzero(threads == thread)
        one = row[mine[0]]
        calls = np.flatnonzero((launches.pid == launches.pid[one]) & (launches.tid == launches.tid[one]))
        points, labels = _call_labels(launches, calls, blocking[calls])
        pieces.append(_cut(points, labels, start[mine], end[mine], op[mine]))
    return pieces


def blocking_calls(trace: Trace, rules: Rules) -> np.ndarray:
    """Which rows of ``trace.launches`` are calls that block until the GPU is done."""
    api = trace.launches.api
    named = np.zeros(len(trace.strings) + 1, np.bool_)
    for number in occurring(api[api >= 0]).tolist():
        named[number] = Rules.match(rules.blocking, trace.strings[number]) is not None
    return named[api]


def _call_labels(launches: Launches, calls: Index, blocking: np.ndarray) -> tuple[I64, I8]:
    """Time points of one thread and the part that holds from each point to the next.

    A blocking call wins over a call around or inside it.
    """
    every = merge(launches.start[calls], launches.end[calls])
    blocked = merge(launches.start[calls[blocking]], launches.end[calls[blocking]])
    points = distinct(np.concatenate([*every, *blocked]))
    labels = np.full(len(points), PART["gap_host"], np.int8)
    labels[_covered(*every, points)] = PART["gap_api"]
    labels[_covered(*blocked, points)] = PART["gap_sync"]
    return points, labels


def _covered(start: I64, end: I64, points: I64) -> np.ndarray:
    row = np.searchsorted(start, points, "right") - 1
    return (row >= 0) & (end[np.maximum(row, 0)] > points) if len(start) else np.zeros(len(points), np.bool_)


def _cut(points: I64, labels: I8, start: I64, end: I64, op: Index) -> _Pieces:
    """Cut intervals at ``points``; before the first point the host is in no call."""
    first = np.searchsorted(points, start, "right")
    last = np.searchsorted(points, end, "left")
    count = last - first + 1
    owner = np.repeat(np.arange(len(start)), count)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    edge = np.repeat(first, count) + place
    padded = np.append(points, np.iinfo(np.int64).max)
    piece_start = np.where(place == 0, start[owner], padded[edge - 1])
    piece_end = np.minimum(padded[edge], end[owner])
    known = np.append(labels, np.int8(PART["gap_host"]))
    label = np.where(edge > 0, known[np.maximum(edge - 1, 0)], PART["gap_host"]).astype(np.int8)
    return _Pieces(piece_start, piece_end, label, op[owner])
