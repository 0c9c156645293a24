"""Blocking calls that take the host's run-ahead away.

A thread that waits for the GPU can launch nothing meanwhile; when the GPU runs dry right after, the gap is not slow
Python but the wait. Without the call, the launches behind it would have come earlier by as long as it blocked: that
bounds what each call costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from profkit.traces import I8, I64, UNKNOWN, Bools, Index, OpKind, Ops

from .arrays import distinct
from .attribution import Attribution
from .dawdling import dawdled
from .owners import pair_keys
from .partition import DeviceTimeline, blocking_calls
from .vocabulary import HOST_PARTS, PART, PARTS, PHASE, PHASES

HELD = 0.5
"""Share of its time that a copy's call must wait for earlier GPU work to count as blocking; and share of a wait that a
launch call must last through to be at fault."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocking:
    """Blocking calls of the window that cost GPU time: row in ``trace.launches``, and the idle time each caused."""

    row: Index
    idle: I64

    @property
    def total(self) -> int:
        """Idle time of the device caused by blocking calls, in nanoseconds."""
        return int(self.idle.sum())


def parts_by_fault(attribution: Attribution, timeline: DeviceTimeline) -> I8:
    """The parts of ``timeline``, with waits that begin behind the begin of their launch call by whose fault they are.

    Such a wait is the host's where the call itself lasts through most of it (the host is held up in it, or loads a
    module), though ``gap_queue`` holds it for a kernel. Otherwise it is not, though ``gap_graph_launch`` holds it for a
    graph.
    """
    launches, launch = attribution.trace.launches, attribution.launch[timeline.op]
    parts = timeline.part.copy()
    rows = np.flatnonzero(np.isin(parts, (PART["gap_graph_launch"], PART["gap_queue"])) & (launch >= 0))
    rows = rows[launches.start[launch[rows]] < timeline.start[rows]]
    inside = np.minimum(launches.end[launch[rows]], timeline.end[rows]) - timeline.start[rows]
    held = inside > HELD * (timeline.end - timeline.start)[rows]
    graph = attribution.trace.ops.graph_launch[timeline.op[rows]] >= 0
    late = np.where(graph, PART["gap_graph_launch"], PART["gap_launch"])
    parts[rows] = np.where(held, late, PART["gap_queue"])
    return parts


def time_by_fault(attribution: Attribution, device: int) -> I64:
    """Nanoseconds of the window by part, as ``parts_by_fault`` has them, and phase; what prefills take is left out."""
    timeline, cells = attribution.devices[device], (len(PARTS), len(PHASES))
    if timeline.window_start is None or timeline.window_end is None:
        return np.zeros(cells, np.int64)
    inside = (timeline.start >= timeline.window_start) & (timeline.end <= timeline.window_end)
    inside &= timeline.phase != PHASE["prefill"]
    cell = parts_by_fault(attribution, timeline)[inside].astype(np.int64) * len(PHASES) + timeline.phase[inside]
    total = np.bincount(cell, weights=(timeline.end - timeline.start)[inside], minlength=math.prod(cells))
    return total.astype(np.int64).reshape(cells)


def blocking_cost(attribution: Attribution, device: int) -> Blocking:
    """For each blocking call, the device's idle time that ends with a launch behind it, at most its own duration.

    What the host took longer than usual behind the call is its own doing.
    """
    trace, timeline = attribution.trace, attribution.devices[device]
    none = Blocking(np.empty(0, np.intp), np.empty(0, np.int64))
    calls = np.flatnonzero(blocking_calls(trace, attribution.rules) | copies_that_hold(attribution))
    if timeline.window_start is None or timeline.window_end is None or not len(calls):
        return none
    late = np.isin(parts_by_fault(attribution, timeline), [PART[name] for name in HOST_PARTS])
    late &= (timeline.start >= timeline.window_start) & (timeline.end <= timeline.window_end)
    late &= timeline.phase != PHASE["prefill"]
    launch = attribution.launch[timeline.op]
    late &= launch >= 0
    length = (timeline.end - timeline.start)[late]
    call = _last_call_before(attribution, calls, launch[late])
    found = call >= 0
    row, inverse = np.unique(call[found], return_inverse=True)
    idle = np.bincount(inverse, weights=length[found], minlength=len(row)).astype(np.int64)
    # The launch behind the longest stretch of idle time stands for all that came late behind a call.
    longest = np.empty(len(row), np.int64)
    order = np.argsort(length[found], kind="stable")
    longest[inverse[order]] = launch[late][found][order]
    slow = dawdled(attribution, calls, row, longest)
    duration = trace.launches.end[row] - trace.launches.start[row]
    return Blocking(row, np.minimum(np.maximum(idle - slow, 0), duration))


def copies_that_hold(attribution: Attribution) -> Bools:
    """Which rows of ``trace.launches`` copy to or from pageable memory, and wait for the GPU under an async name.

    They return when the copy is done, and mostly wait for the work before it.
    """
    ops, launches, strings = attribution.trace.ops, attribution.trace.launches, attribution.trace.strings
    holds = np.zeros(len(launches), np.bool_)
    host = np.array([any(way in text for way in ("HtoD", "DtoH")) for text in strings] or [False])
    rows = np.flatnonzero((ops.kind == OpKind.MEMCPY) & (attribution.launch >= 0) & (ops.graph_launch < 0))
    rows = rows[host[ops.name[rows]]]
    call = attribution.launch[rows]
    waited = np.minimum(ops.start[rows], _end_of_work_before(ops, rows)) - launches.start[call]
    length = launches.end[call] - launches.start[call]
    holds[call[(ops.end[rows] <= launches.end[call]) & (waited > HELD * length)]] = True
    return holds


def _end_of_work_before(ops: Ops, rows: Index) -> I64:
    """When all that began before each of ``rows`` on its device had ended, or ``UNKNOWN``."""
    ends = np.full(len(rows), UNKNOWN, np.int64)
    for device in distinct(ops.device[rows]):
        there = np.flatnonzero(ops.device == device)
        asked = np.flatnonzero(ops.device[rows] == device)
        place = np.searchsorted(there, rows[asked])
        reach = np.maximum.accumulate(ops.end[there])
        ends[asked] = np.where(place > 0, reach[np.maximum(place - 1, 0)], UNKNOWN)
    return ends


def _last_call_before(attribution: Attribution, calls: Index, launch: I64) -> I64:
    """The last of ``calls`` that the thread of each launch had begun before it, or ``UNKNOWN``."""
    launches = attribution.trace.launches
    blocked, threads = pair_keys(
        (launches.pid[calls], launches.tid[calls]), (launches.pid[launch], launches.tid[launch])
    )
    last = np.full(len(launch), UNKNOWN, np.int64)
    for thread in distinct(threads):
        own = calls[blocked == thread]
        own = own[np.argsort(launches.start[own], kind="stable")]
        mine = np.flatnonzero(threads == thread)
        place = np.searchsorted(launches.start[own], launches.start[launch[mine]], "left") - 1
        last[mine] = np.where(place >= 0, own[np.maximum(place, 0)], UNKNOWN) if len(own) else UNKNOWN
    return last
