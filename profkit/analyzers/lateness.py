"""Blocking calls that take the host's run-ahead away.

A thread that waits for the GPU can launch nothing meanwhile; when the GPU runs dry right after, the gap is not slow
Python but the wait. Without the call, the launches behind it would have come earlier by as long as it blocked: that
bounds what each call costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN, Index

from .attribution import Attribution
from .owners import pair_keys
from .partition import blocking_calls
from .vocabulary import HOST_PARTS, PART


@dataclass(frozen=True, slots=True, eq=False)
class Blocking:
    """Blocking calls of the window that cost GPU time: row in ``trace.launches``, and the idle time each caused."""

    row: Index
    idle: I64

    @property
    def total(self) -> int:
        """Idle time of the device caused by blocking calls, in nanoseconds."""
        return int(self.idle.sum())


def blocking_cost(attribution: Attribution, device: int) -> Blocking:
    """For each blocking call, the device's idle time that ends with a launch behind it, at most its own duration."""
    trace, timeline = attribution.trace, attribution.devices[device]
    none = Blocking(np.empty(0, np.intp), np.empty(0, np.int64))
    calls = np.flatnonzero(blocking_calls(trace, attribution.rules))
    if timeline.window_start is None or timeline.window_end is None or not len(calls):
        return none
    late = np.isin(timeline.part, [PART[name] for name in HOST_PARTS])
    late &= (timeline.start >= timeline.window_start) & (timeline.end <= timeline.window_end)
    launch = attribution.launch[timeline.op]
    late &= launch >= 0
    length = (timeline.end - timeline.start)[late]
    call = _last_call_before(attribution, calls, launch[late])
    found = call >= 0
    row, inverse = np.unique(call[found], return_inverse=True)
    idle = np.bincount(inverse, weights=length[found], minlength=len(row)).astype(np.int64)
    duration = trace.launches.end[row] - trace.launches.start[row]
    return Blocking(row, np.minimum(idle, duration))


def _last_call_before(attribution: Attribution, calls: Index, launch: I64) -> I64:
    """The last of ``calls`` that the thread of each launch had begun before it, or ``UNKNOWN``."""
    launches = attribution.trace.launches
    (threads,) = pair_keys((launches.pid, launches.tid))
    last = np.full(len(launch), UNKNOWN, np.int64)
    for thread in np.unique(threads[launch]):
        own = calls[threads[calls] == thread]
        own = own[np.argsort(launches.start[own], kind="stable")]
        mine = np.flatnonzero(threads[launch] == thread)
        place = np.searchsorted(launches.start[own], launches.start[launch[mine]], "left") - 1
        last[mine] = np.where(place >= 0, own[np.maximum(place, 0)], UNKNOWN) if len(own) else UNKNOWN
    return last
