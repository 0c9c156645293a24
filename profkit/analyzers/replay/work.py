"""The GPU work of a recording: when each op could have started, and what it waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Bools, Index

from ..arrays import distinct
from ..attribution import Attribution
from ..matching import MatchedCollectives
from ..owners import pair_keys
from ..ranks import step_numbers
from .model import NONE, Waits, Work, begins
from .streams import AT_ONCE, starts_behind, told_to_wait

LAUNCH_LAG = 10_000
QUEUE_GAP = 1_000
EXAMPLES = 8
"""From launch call to kernel, and between queued kernels, where a recording shows fewer examples than this."""

FREE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class _Timing:
    """Ops by lane and start, on one clock: ``row`` of the trace, ``launch`` row, and when that call started."""

    row: Index
    device: I64
    lane: I64
    start: I64
    end: I64
    launch: I64
    called: I64

    @classmethod
    def of(cls, attribution: Attribution, matched: MatchedCollectives, kept: Bools) -> _Timing:
        """The ops ``kept`` of a recording, the clocks of its devices aligned."""
        ops, launches = attribution.trace.ops, attribution.trace.launches
        offset = np.zeros(int(ops.device.max(initial=0)) + 1, np.int64)
        for number, ahead in matched.clock_offset.items():
            offset[number] = ahead
        device = ops.device.astype(np.int64)
        (lane,) = pair_keys((device, ops.stream))
        order = np.lexsort((ops.end, ops.start, lane))
        order = order[kept[order]]
        launch = attribution.launch[order]
        start, end = (time[order] - offset[device[order]] for time in (ops.start, ops.end))
        called = launches.start[np.maximum(launch, 0)] if len(launches) else start
        return cls(order, device[order], lane[order], start, end, launch, called)


def work_of(attribution: Attribution, matched: MatchedCollectives, calls: Index, kept: Bools) -> tuple[Work, Waits]:
    """The ops ``kept`` of a recording, and which of them wait for other lanes.

    ``calls`` are the rows of ``trace.launches`` that the model knows, in its order.
    """
    timing = _Timing.of(attribution, matched, kept)
    ops, launches = attribution.trace.ops, attribution.trace.launches
    launched, first = timing.launch >= 0, begins(timing.lane)
    behind = np.where(launched, timing.start - timing.called, 0)
    since = np.where(first, 0, timing.start - np.concatenate([timing.end[:1], timing.end[:-1]]))
    alone = launched & (ops.graph_launch[timing.row] < 0)
    lag = np.minimum(behind, _usual(behind[alone & _idle(timing)], LAUNCH_LAG))
    gap = np.minimum(since, _usual(since[alone & ~first & (behind - since > lag)], QUEUE_GAP))
    excess = np.minimum(np.where(launched, behind - lag, FREE), np.where(first, FREE, since - gap))
    told = told_to_wait(attribution, timing.row, timing.lane, timing.start, timing.end)
    waits, delay = _waiting(timing, *told, excess)
    collective, duration = _collectives(matched, timing, len(ops))
    call = np.full(len(launches) + 1, NONE, np.int64)
    call[calls] = np.arange(len(calls))
    work = Work(
        row=timing.row,
        device=timing.device,
        lane=timing.lane,
        call=call[timing.launch],
        lag=lag,
        gap=gap,
        delay=delay,
        duration=duration,
        collective=collective,
        step=np.max(np.stack(list(step_numbers(attribution).values())), axis=0)[timing.row],
        phase=attribution.phase[timing.row],
        kernel_class=attribution.kernel_class[timing.row],
        origin=timing.start,
    )
    return work, waits


def _usual(seen: I64, otherwise: int) -> int:
    return int(np.median(seen)) if len(seen) >= EXAMPLES else otherwise


def _idle(timing: _Timing) -> Bools:
    """Which ops were launched while nothing ran or waited on their device."""
    order = np.lexsort((timing.start, timing.device))
    lift = timing.device[order] * (int(timing.end.max(initial=0)) - int(timing.end.min(initial=0)) + 1)
    reach = np.maximum.accumulate(timing.end[order] + lift) - lift
    idle = np.zeros(len(order), np.bool_)
    idle[order[1:]] = (reach[:-1] <= timing.called[order[1:]]) & (timing.device[order[1:]] == timing.device[order[:-1]])
    return idle


def _waiting(timing: _Timing, told: I64, on: I64, excess: I64) -> tuple[Waits, I64]:
    """Which ops wait for other lanes, by how much they follow them, and the delay of each that nothing explains.

    ``told`` are ops that were told to wait, each for the one in ``on``; ``excess`` is how long each op started after
    its call and the op before it would have let it.
    """
    late = (excess > AT_ONCE) & (excess < FREE)
    late[told] = False
    after = starts_behind(timing.device, timing.lane, timing.start, timing.end, late)
    guessed = np.flatnonzero(after >= 0)
    op, on = np.concatenate([told, guessed]), np.concatenate([on, after[guessed]])
    apart = timing.start[op] - timing.end[on]
    gap = np.minimum(apart, _usual(apart, QUEUE_GAP))
    delay = excess.copy()
    np.minimum.at(delay, op, apart - gap)
    delay[delay == FREE] = 0
    return Waits(op, on, gap, np.arange(len(op)) < len(told)), delay


def _collectives(matched: MatchedCollectives, timing: _Timing, ops: int) -> tuple[I64, I64]:
    """The number of the collective that each op takes part in, and how long it runs from the last rank's start on."""
    collective, duration = np.full(len(timing.row), NONE, np.int64), timing.end - timing.start
    if not matched.known:
        return collective, duration
    key = np.full(ops, NONE, np.int64)
    for device, instances in matched.instances.items():
        key[instances.row] = np.where(instances.skew >= 0, matched.keys[device], NONE)
    key = key[timing.row]
    together = np.flatnonzero(key >= 0)
    numbers = distinct(key[together])
    collective[together] = np.searchsorted(numbers, key[together])
    began = np.full(len(numbers), np.iinfo(np.int64).min)
    np.maximum.at(began, collective[together], timing.start[together])
    duration[together] = timing.end[together] - began[collective[together]]
    return collective, duration
