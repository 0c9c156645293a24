"""Ranks of devices, and which steps of different ranks are the same step."""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, Trace

from .attribution import Attribution

MAX_SHIFT = 3
"""Recorders of two ranks start at most so many steps apart."""

CLEARLY_BETTER = 4
"""A shift must bring the ends of steps so many times nearer before it replaces no shift."""

NOT_THERE = np.iinfo(np.int64).min


def rank_of_device(trace: Trace) -> dict[int, int]:
    """The rank of each device with ops: what the recording says, else the device's place among them."""
    devices = np.unique(trace.ops.device).tolist()
    said = {process.pid: process.rank for process in trace.processes if process.rank is not None}
    if not said:
        return {device: place for place, device in enumerate(devices)}
    ranks: dict[int, int] = {}
    for place, device in enumerate(devices):
        pids = np.unique(trace.ops.pid[trace.ops.device == device]).tolist()
        known = {said[pid] for pid in pids if pid in said}
        ranks[device] = known.pop() if len(known) == 1 else place
    distinct = len(set(ranks.values())) == len(ranks)
    return ranks if distinct else {device: place for place, device in enumerate(devices)}


def step_numbers(attribution: Attribution) -> dict[int, I64]:
    """For each device, the number of the decode step of every op (rows of ``trace.ops``), -1 outside.

    The same number means the same step of the engine on all devices. Ranks leave a step's last collective within
    microseconds of each other, so numbers are shifted until the steps' ends lie nearest.
    """
    steps = attribution.plan.steps
    in_decode = attribution.in_decode
    number = np.full(len(attribution.step), -1, np.int64)
    number[in_decode] = steps.index[attribution.step[in_decode]]
    ops = attribution.trace.ops
    result: dict[int, I64] = {}
    reference: I64 | None = None
    for device in attribution.devices:
        mine = (ops.device == device) & in_decode
        own = np.where(mine, number, -1)
        ends = _step_ends(own[mine], ops.end[mine])
        if reference is None and len(ends):
            reference = ends
        elif reference is not None and len(ends):
            own[mine] += _shift(reference, ends)
        result[device] = own
    return result


def _step_ends(number: I64, end: I64) -> I64:
    ends = np.full(int(number.max()) + 1 if len(number) else 0, NOT_THERE)
    np.maximum.at(ends, number, end)
    return ends


def _shift(reference: I64, ends: I64) -> int:
    """How many steps later than ``reference`` the recording of ``ends`` began."""

    def distance(shift: int) -> float:
        low, high = max(0, shift), min(len(reference), len(ends) + shift)
        if high <= low:
            return float("inf")
        here, there = reference[low:high], ends[low - shift : high - shift]
        both = (here != NOT_THERE) & (there != NOT_THERE)
        return float(np.median(np.abs(here - there)[both])) if np.any(both) else float("inf")

    best = min(range(-MAX_SHIFT, MAX_SHIFT + 1), key=lambda shift: (distance(shift), abs(shift)))
    return best if distance(0) > CLEARLY_BETTER * distance(best) else 0
