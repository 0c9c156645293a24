"""What a host does while its GPU waits for it: whether it is in a step at all, and in which CUDA calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Index, Launches, Overheads

from .arrays import distinct
from .attribution import Attribution
from .intervals import covered_before, merge
from .owners import pair_keys
from .partition import DeviceTimeline
from .vocabulary import PART

MOSTLY = 0.5

WAITS = ("gap_host", "gap_api", "gap_sync")
"""Parts that end before the launch call that the GPU waits for."""


@dataclass(frozen=True, slots=True)
class HostTime:
    """Nanoseconds of one device's window in which the GPU waits for a host that launches nothing yet.

    ``between_steps`` of them the host's thread is in no annotated step; ``calls`` are those inside CUDA calls that do
    not block, by name, the dearest first; ``overheads`` likewise those in what CUPTI calls overhead, which may lie in
    each other and take ``overhead_ns`` together.
    """

    total: int
    between_steps: int
    calls: tuple[tuple[str, int], ...]
    overheads: tuple[tuple[str, int], ...]
    overhead_ns: int

    @property
    def is_between_steps(self) -> bool:
        """Whether most of it lies between steps."""
        return self.between_steps > MOSTLY * self.total

    @property
    def dearest_call(self) -> str | None:
        """The call with most of the time."""
        return self.calls[0][0] if self.calls else None

    @property
    def overhead(self) -> str | None:
        """The dearest overhead, if most of the time goes to them."""
        return self.overheads[0][0] if self.overhead_ns > MOSTLY * self.total else None


def host_time(attribution: Attribution, device: int) -> HostTime:
    """What the host of ``device`` does while the GPU waits for it."""
    timeline, launches = attribution.devices[device], attribution.trace.launches
    rows = _waits(timeline)
    launch = attribution.launch[timeline.op[rows]]
    rows, launch = rows[launch >= 0], launch[launch >= 0]
    length = (timeline.end - timeline.start)[rows]
    overheads = attribution.trace.overheads
    asked, called, busy, stepping = pair_keys(
        (launches.pid[launch], launches.tid[launch]),
        (launches.pid, launches.tid),
        (overheads.pid, overheads.tid),
        (attribution.plan.steps.pid, attribution.plan.steps.tid),
    )
    between, overhead, calls, own = 0, 0, Counter[str](), Counter[str]()
    for thread in distinct(asked).tolist():
        mine = rows[asked == thread]
        # Of a thread without any step nothing tells whether it is between two.
        if len(steps := np.flatnonzero(stepping == thread)):
            between += int(length[asked == thread].sum()) - _in_steps(attribution, steps, timeline, mine)
        overhead += _overlap(timeline, mine, overheads.take(busy == thread))
        in_calls = mine[timeline.part[mine] == PART["gap_api"]]
        calls += _spent(attribution, launches.take(called == thread), timeline, in_calls)
        own += _spent(attribution, overheads.take(busy == thread), timeline, mine)
    between = between if attribution.plan.source == "profkit" else 0
    return HostTime(int(length.sum()), between, _dearest_first(calls), _dearest_first(own), overhead)


def _overlap(timeline: DeviceTimeline, rows: Index, work: Overheads) -> int:
    """How much of the waits ``rows`` lies in ``work``, which may overlap."""
    order = np.argsort(work.start, kind="stable")
    spans = merge(work.start[order], work.end[order])
    return int((covered_before(*spans, timeline.end[rows]) - covered_before(*spans, timeline.start[rows])).sum())


def _dearest_first(spent: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(spent.items(), key=lambda one: (-one[1], one[0])))


def _waits(timeline: DeviceTimeline) -> Index:
    if timeline.window_start is None or timeline.window_end is None:
        return np.empty(0, np.intp)
    inside = (timeline.start >= timeline.window_start) & (timeline.end <= timeline.window_end)
    return np.flatnonzero(inside & np.isin(timeline.part, [PART[name] for name in WAITS]))


def _in_steps(attribution: Attribution, own: Index, timeline: DeviceTimeline, rows: Index) -> int:
    steps = attribution.plan.steps
    order = own[np.argsort(steps.start[own], kind="stable")]
    spans = merge(steps.start[order], steps.end[order])
    return int((covered_before(*spans, timeline.end[rows]) - covered_before(*spans, timeline.start[rows])).sum())


def _spent(attribution: Attribution, work: Launches | Overheads, timeline: DeviceTimeline, rows: Index) -> Counter[str]:
    """How much of the waits ``rows`` the host's ``work`` takes, by name; what lies in other work counts for both."""
    gaps = merge(timeline.start[rows], timeline.end[rows])
    time: I64 = covered_before(*gaps, work.end) - covered_before(*gaps, work.start)
    names = work.api if isinstance(work, Launches) else work.name
    spent = np.bincount(names[names >= 0], weights=time[names >= 0], minlength=1)
    return Counter({attribution.trace.strings[number]: int(spent[number]) for number in np.flatnonzero(spent).tolist()})
