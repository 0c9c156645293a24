"""A typical decode step of all ranks on one clock: host ranges, API calls, streams, collectives and gaps in lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN

from .attribution import Attribution
from .counter_tracks import Track, counter_tracks, nvml_reading
from .lanes import Items, Lane, LaneBuilder, add_device
from .matching import match_collectives
from .ranks import rank_of_device, step_numbers


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeline:
    """The step ``step`` (as the slowest rank counts decode steps) from ``start_ns`` to ``end_ns``.

    ``marks`` holds for each device when its GPU work of the step begins and ends, from ``start_ns``;
    ``period_ns`` is the step's period on the slowest rank, ``median_ns`` the median of all its steps. ``tracks`` are
    the hardware counters sampled meanwhile; ``nvml`` says for a device what NVML, too coarse for a step, read nearby.
    """

    start_ns: int
    end_ns: int
    step: int
    steps: int
    rank: int
    period_ns: int
    median_ns: int
    marks: dict[int, tuple[int, int]]
    lanes: tuple[Lane, ...]
    items: Items
    strings: tuple[str, ...]
    tracks: tuple[Track, ...]
    nvml: dict[int, str]

    def check(self) -> None:
        """Raise ``ValueError`` where an item lies outside of the timeline or of the lanes."""
        items = self.items
        if len(items) and (items.start.min() < 0 or (items.start + items.length).max() > self.end_ns - self.start_ns):
            raise ValueError("an item lies outside of the timeline")
        if np.any(np.diff(items.lane) < 0):
            raise ValueError("items are not in order of lanes")


def typical_step(attribution: Attribution) -> StepTimeline | None:
    """The decode step whose period is nearest to the median of the slowest rank; ``None`` without two steps.

    A period is the time from a step's first op to the next step's. The timeline begins with the host's part of the
    step on any rank, and ends when the next step's GPU work begins on the last one.
    """
    numbers = step_numbers(attribution)
    bounds = {device: _step_bounds(attribution, number) for device, number in numbers.items()}
    periods = {device: np.diff(first) for device, (_, first, _) in bounds.items() if len(first) > 1}
    if not periods:
        return None
    slowest = max(periods, key=lambda device: (float(np.median(periods[device])), -device))
    median = int(np.median(periods[slowest]))
    place = int(np.argmin(np.abs(periods[slowest] - median)))
    step = int(bounds[slowest][0][place])
    start, end, marks = _extent(attribution, numbers, bounds, step)
    builder = LaneBuilder(start, end)
    ranks = rank_of_device(attribution.trace)
    split = _waiting(attribution)
    devices = sorted(bounds, key=lambda device: ranks[device])
    nearby = {device: nvml_reading(attribution.trace, device, (start + end) // 2) for device in devices}
    for device in devices:
        add_device(builder, attribution, device, ranks[device], split)
    return StepTimeline(
        start_ns=start,
        end_ns=end,
        step=step,
        steps=len(periods[slowest]) + 1,
        rank=ranks[slowest],
        period_ns=int(periods[slowest][place]),
        median_ns=median,
        marks=marks,
        lanes=tuple(builder.lanes),
        items=builder.items(attribution),
        strings=tuple(builder.strings),
        tracks=tuple(track for device in devices for track in counter_tracks(attribution.trace, device, start, end)),
        nvml={device: text for device, text in nearby.items() if text is not None},
    )


def _step_bounds(attribution: Attribution, number: I64) -> tuple[I64, I64, I64]:
    """Numbers of the decode steps of a device, starts of their first ops, and ends of their last."""
    ops = attribution.trace.ops
    rows = np.flatnonzero(number >= 0)
    steps, place = np.unique(number[rows], return_inverse=True)
    first = np.full(len(steps), np.iinfo(np.int64).max)
    last = np.zeros(len(steps), np.int64)
    np.minimum.at(first, place, ops.start[rows])
    np.maximum.at(last, place, ops.end[rows])
    return steps, first, last


def _extent(
    attribution: Attribution, numbers: dict[int, I64], bounds: dict[int, tuple[I64, I64, I64]], step: int
) -> tuple[int, int, dict[int, tuple[int, int]]]:
    """Start and end of the timeline, and of the step's GPU work on each device, from that start."""
    starts, ends, marks = [], [], {}
    for device, (steps, first, last) in bounds.items():
        at = int(np.searchsorted(steps, step))
        if at == len(steps) or steps[at] != step:
            continue
        row = int(np.flatnonzero(numbers[device] == step)[0])
        host = int(attribution.plan.steps.start[attribution.step[row]])
        behind = int(first[at + 1]) if at + 1 < len(first) else int(last[at])
        starts.append(min(int(first[at]), host))
        ends.append(max(behind, int(last[at])))
        marks[device] = (int(first[at]), behind)
    start = min(starts)
    return start, max(ends), {device: (a - start, b - start) for device, (a, b) in marks.items()}


def _waiting(attribution: Attribution) -> I64:
    """How long each collective op waited for the last rank; ``UNKNOWN`` where that cannot be told."""
    split = np.full(len(attribution.trace.ops), UNKNOWN, np.int64)
    matched = match_collectives(attribution)
    if matched.known:
        for instances in matched.instances.values():
            split[instances.row] = instances.skew
    return split
