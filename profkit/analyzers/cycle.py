"""The cycle: how long a decode step takes from start to start, and what of it each phase takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec import structs

from profkit.traces import I64

from .arrays import occurring
from .attribution import Attribution
from .ranks import rank_of_device
from .result import Cycle
from .vocabulary import PHASES

UNEVEN = 0.25
"""Steps in flight whose mean distance differs from the median one by more than this share begin unevenly; and one that
has no more than this share of its time left is nearly done."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSteps:
    """Decode steps of one device by the start of their first op, in order; ``row`` is the step's row in the plan."""

    row: I64
    first_op: I64

    @property
    def periods(self) -> I64:
        """From each step's first op to the next one's."""
        return np.diff(self.first_op)


def device_steps(attribution: Attribution, device: int) -> DeviceSteps:
    """The decode steps that have ops on ``device``."""
    ops = attribution.trace.ops
    rows = np.flatnonzero((ops.device == device) & attribution.in_decode)
    step = attribution.step[rows]
    first = np.full(len(attribution.plan.steps), np.iinfo(np.int64).max)
    np.minimum.at(first, step, ops.start[rows])
    seen = occurring(step)
    order = seen[np.argsort(first[seen], kind="stable")]
    return DeviceSteps(order, first[order])


def time_per_step(attribution: Attribution, device: int, steps: DeviceSteps) -> int | None:
    """The median period; of steps that overlap on the GPU and begin unevenly, their mean distance over those in flight.

    Two micro-batches on two streams begin shortly after each other, and then not until both are done. A step that is
    nearly done when the next one begins is none in flight.
    """
    if not len(steps.periods):
        return None
    period = int(np.median(steps.periods))
    ops = attribution.trace.ops
    rows = np.flatnonzero((ops.device == device) & attribution.in_decode)
    last = np.zeros(len(attribution.plan.steps), np.int64)
    np.maximum.at(last, attribution.step[rows], ops.end[rows])
    # How many steps that began before each one are not done when it begins.
    begun = np.arange(1, len(steps.row) + 1)
    nearly = last[steps.row] - (UNEVEN * (last[steps.row] - steps.first_op)).astype(np.int64)
    done = np.searchsorted(np.sort(nearly), steps.first_op, "right")
    flight = max(int(np.quantile(begun - done, 0.75)), 1)
    if len(begun) <= flight:
        return period
    mean = int(np.median(steps.first_op[flight:] - steps.first_op[:-flight])) // flight
    return mean if abs(mean - period) > UNEVEN * mean else period


def slowest_device(attribution: Attribution) -> int | None:
    """The device with the longest median period (with one step: the longest window)."""

    def slowness(device: int) -> tuple[float, int]:
        periods = device_steps(attribution, device).periods
        timeline = attribution.devices[device]
        wall = (timeline.window_end or 0) - (timeline.window_start or 0)
        return (float(np.median(periods)) if len(periods) else 0.0, wall)

    stepping = [device for device, line in attribution.devices.items() if line.window_start is not None]
    return max(stepping, key=slowness, default=None)


def cycle_of(attribution: Attribution, accept_len: float | None, accept_len_source: str) -> Cycle:
    """The cycle on the slowest rank. ``accept_len`` is what the user or the sweep says, if anything."""
    plan = attribution.plan
    device = slowest_device(attribution)
    if device is None:
        return Cycle(None, None, 0, None, (), {}, None, "unknown", None, plan.source, plan.inferred)
    steps = device_steps(attribution, device)
    speculative = bool(plan.steps.drafts[steps.row].any())
    if not speculative:
        accept_len, accept_len_source = 1.0, "plain decode"
    sizes = plan.steps.batch_size[steps.row]
    values, counts = np.unique(sizes[sizes >= 0], return_counts=True)
    batch = int(values[np.argmax(counts)]) if len(values) else None
    period = int(np.median(steps.periods)) if len(steps.periods) else None
    per_step = time_per_step(attribution, device, steps)
    per_token = per_step / 1000 / (accept_len * batch) if per_step and accept_len and batch else None
    return Cycle(
        kind="speculative" if speculative else "plain",
        batch_size=batch,
        steps=len(steps.row),
        period_ns_median=period,
        period_ns=tuple(steps.periods.tolist()),
        phase_ns_median=phase_medians(attribution, device, steps),
        accept_len=accept_len,
        accept_len_source=accept_len_source if accept_len is not None else "unknown",
        us_per_token=per_token,
        phases_source=plan.source,
        phases_inferred=plan.inferred,
        rank=rank_of_device(attribution.trace)[device],
    )


def without_recorder(cycle: Cycle, unrecorded_ns: int | None) -> Cycle:
    """``cycle`` with what a token takes in a step of ``unrecorded_ns``, if that is known."""
    if unrecorded_ns is None or cycle.us_per_token is None or not cycle.period_ns_median:
        return cycle
    per_token = cycle.us_per_token * unrecorded_ns / cycle.period_ns_median
    return structs.replace(cycle, unrecorded_us_per_token=per_token)


def phase_medians(attribution: Attribution, device: int, steps: DeviceSteps) -> dict[str, int]:
    """Median over steps of the wall time by phase, busy and waiting, from each step's first op to the next one's."""
    timeline = attribution.devices[device]
    if timeline.window_end is None or not len(steps.first_op):
        return {}
    bounds = np.append(steps.first_op, timeline.window_end)
    table = timeline.totals_of(bounds[:-1], bounds[1:]).sum(axis=1)
    medians = np.median(table, axis=0).astype(np.int64)
    return {PHASES[code]: int(value) for code, value in enumerate(medians) if value or table[:, code].any()}
