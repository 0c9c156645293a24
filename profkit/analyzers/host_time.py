"""What a host does while its GPU waits for it: whether it is in a step at all, and in which CUDA calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Index

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
    not block, by name, the dearest first; a recorder's own work is among them.
    """

    total: int
    between_steps: int
    calls: tuple[tuple[str, int], ...]

    @property
    def is_between_steps(self) -> bool:
        """Whether most of it lies between steps."""
        return self.between_steps > MOSTLY * self.total

    @property
    def dearest_call(self) -> str | None:
        """The call with most of the time."""
        return self.calls[0][0] if self.calls else None


def host_time(attribution: Attribution, device: int) -> HostTime:
    """What the host of ``device`` does while the GPU waits for it."""
    timeline, launches = attribution.devices[device], attribution.trace.launches
    rows = _waits(timeline)
    launch = attribution.launch[timeline.op[rows]]
    rows, launch = rows[launch >= 0], launch[launch >= 0]
    length = int((timeline.end - timeline.start)[rows].sum())
    asked, called, stepping = pair_keys(
        (launches.pid[launch], launches.tid[launch]),
        (launches.pid, launches.tid),
        (attribution.plan.steps.pid, attribution.plan.steps.tid),
    )
    inside, calls = 0, dict[str, int]()
    for thread in distinct(asked).tolist():
        mine = rows[asked == thread]
        inside += _in_steps(attribution, np.flatnonzero(stepping == thread), timeline, mine)
        for name, ns in _in_calls(attribution, np.flatnonzero(called == thread), timeline, mine).items():
            calls[name] = calls.get(name, 0) + ns
    annotated = attribution.plan.source == "profkit"
    order = sorted(calls.items(), key=lambda call: (-call[1], call[0]))
    return HostTime(length, length - inside if annotated else 0, tuple(order))


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


def _in_calls(attribution: Attribution, own: Index, timeline: DeviceTimeline, rows: Index) -> dict[str, int]:
    """How much of ``gap_api`` each API takes; calls that lie in others count for both."""
    launches, strings = attribution.trace.launches, attribution.trace.strings
    rows = rows[timeline.part[rows] == PART["gap_api"]]
    gaps = merge(timeline.start[rows], timeline.end[rows])
    time: I64 = covered_before(*gaps, launches.end[own]) - covered_before(*gaps, launches.start[own])
    spent = np.bincount(launches.api[own], weights=time, minlength=1)
    return {strings[number]: int(spent[number]) for number in np.flatnonzero(spent).tolist()}
