"""Which steps of two ranks are the same step, from when the GPU work of each step ends."""

from __future__ import annotations

import numpy as np

from .model import I64

NOT_THERE = np.iinfo(np.int64).min
"""The end of a step without GPU work."""

NEAR = 0.05
"""On one clock, ranks end a step within this share of a step of each other."""

CLEARLY_BETTER = 4
"""A shift must bring the ends of steps so many times nearer before it replaces no shift."""

MAX_UNCLOCKED = 256
"""Without a common clock only recordings that began at most so many steps apart are tried."""


def step_shift(reference: I64, ends: I64) -> int:
    """The number in ``reference`` of the first step of ``ends``; negative where ``ends`` began earlier.

    Both hold when the GPU work of each step ended, ``NOT_THERE`` for none. Ranks leave a step's last collective
    almost at once, so on one clock the ends themselves lie nearest under the right shift. Where the clocks differ they
    do not, and the shift is taken under which the ends lie equally far apart.
    """
    best = min(_nearest(reference, ends), key=lambda shift: (_distance(reference, ends, shift), abs(shift)), default=0)
    distance = _distance(reference, ends, best)
    if distance > NEAR * _period(reference, ends):
        return _alike(reference, ends)
    return best if _distance(reference, ends, 0) > CLEARLY_BETTER * distance else 0


def _nearest(reference: I64, ends: I64) -> list[int]:
    """The shifts that bring each end onto the nearest one of ``reference``, the most frequent ones."""
    here, there = np.flatnonzero(reference != NOT_THERE), np.flatnonzero(ends != NOT_THERE)
    if not len(here) or not len(there):
        return []
    here = here[np.argsort(reference[here], kind="stable")]
    behind = np.minimum(np.searchsorted(reference[here], ends[there]), len(here) - 1)
    before = np.maximum(behind - 1, 0)
    nearer = np.abs(reference[here[before]] - ends[there]) < np.abs(reference[here[behind]] - ends[there])
    shifts, count = np.unique(here[np.where(nearer, before, behind)] - there, return_counts=True)
    frequent: list[int] = shifts[np.argsort(-count, kind="stable")][:8].tolist()
    return frequent


def _alike(reference: I64, ends: I64) -> int:
    """The shift under which the two differ most evenly, over at least half of the shorter one."""
    least = max(2, min(len(reference), len(ends)) // 2)
    low = max(least - len(ends), -MAX_UNCLOCKED)
    high = min(len(reference) - least, MAX_UNCLOCKED)

    def spread(shift: int) -> float:
        apart = _apart(reference, ends, shift)
        return float(np.mean(np.abs(apart - np.median(apart)))) if len(apart) >= least else float("inf")

    best = min(range(low, high + 1), key=lambda shift: (spread(shift), abs(shift)), default=0)
    return best if spread(0) > CLEARLY_BETTER * spread(best) else 0


def _distance(reference: I64, ends: I64, shift: int) -> float:
    apart = _apart(reference, ends, shift)
    return float(np.median(np.abs(apart))) if len(apart) else float("inf")


def _apart(reference: I64, ends: I64, shift: int) -> I64:
    """By how much each step of ``ends`` that is also in ``reference`` ends later there."""
    low, high = max(0, shift), min(len(reference), len(ends) + shift)
    if high <= low:
        return np.empty(0, np.int64)
    here, there = reference[low:high], ends[low - shift : high - shift]
    both = (here != NOT_THERE) & (there != NOT_THERE)
    apart: I64 = there[both] - here[both]
    return apart


def _period(reference: I64, ends: I64) -> float:
    """The usual time from one end to the next; infinite where there are no two ends."""
    usual = [float(np.median(np.diff(known))) for one in (reference, ends) if len(known := one[one != NOT_THERE]) > 1]
    return max(usual, default=float("inf"))
