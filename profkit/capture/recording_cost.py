"""How many times as long a decode step is with a recorder as without, at the same contexts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from profkit.traces import RecordingCost

from .step_clock import Gaps

F64 = npt.NDArray[np.float64]

PER_BIN, MOST_BINS = 12, 16
LEAST_STEPS = 12
LASTING = 40
"""Consecutive steps whose median is compared where two long times are: what lasts as long shows in its spread."""

TOLERATED = 0.05
"""Share by which steps may be longer after a recording: servers change by as much in seconds."""

STUDENT = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""By the number of medians: how many standard deviations hold 95 %."""


def recording_cost(recorded: Gaps, *without: Gaps) -> RecordingCost | None:
    """The cost in the process whose recorded steps are the longest; ``None`` where contexts or steps are too few.

    Each recorded step is divided by what steps without a recorder take at its context. A server is faster for seconds
    on end, and slower again: the error is how far windows as long as the recorded one lie apart without a recorder.
    """
    found = _ratios(recorded, without)
    return None if found is None else _compared(found[0], found[1], len(found[0]))


def left_behind(before: Gaps, after: Gaps) -> RecordingCost | None:
    """How many times as long steps are after a recording as before it, if that is more than noise and ``TOLERATED``.

    A recorder that has ended need not be gone: eager throughput was seen to stay lower, whichever had recorded.
    """
    ratios = _ratios(after, (before,))
    found = None if ratios is None else _compared(ratios[0], ratios[1], LASTING)
    return found if found is not None and found.ratio - found.error > 1 + TOLERATED else None


def _ratios(recorded: Gaps, without: Sequence[Gaps]) -> tuple[F64, list[F64]] | None:
    """How many times as long as expected the steps of either side are, in the process with the longest ones."""
    if not recorded:
        return None
    pid = max(recorded, key=lambda one: float(np.median(recorded[one]["ns"])))
    others = [_known(part[pid]) for part in without if pid in part]
    if not sum(map(len, others)):
        return None
    expected = _Expected(np.concatenate(others))
    return expected.ratios(_known(recorded[pid])), [expected.ratios(part) for part in others]


def _compared(recorded: F64, without: Sequence[F64], size: int) -> RecordingCost | None:
    """The medians of ``size`` consecutive steps on either side, compared."""
    if len(recorded) < LEAST_STEPS:
        return None
    ours, theirs = _medians([recorded], size), _medians(without, size)
    if len(theirs) < min(STUDENT) or not len(ours):
        return None
    ratio = float(np.median(recorded) / np.median(np.concatenate(without)))
    spread = max(float(side.std(ddof=1)) for side in (ours, theirs) if len(side) >= min(STUDENT))
    scale = STUDENT[min(len(theirs), max(STUDENT))] * np.sqrt(1 / len(ours) + 1 / len(theirs))
    return RecordingCost(ratio, float(scale * spread), len(recorded), len(theirs))


def _medians(parts: Sequence[F64], size: int) -> F64:
    """Of each ``size`` consecutive steps of each part, without the rest."""
    cut = [part[: len(part) // size * size].reshape(-1, size) for part in parts]
    return np.median(np.concatenate(cut), axis=1) if cut else np.empty(0)


def _known(gaps: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    known: npt.NDArray[np.void] = gaps[np.isfinite(gaps["context"])]
    return known


class _Expected:
    """What a step takes by its context: the medians of bins of steps alike, and straight lines between."""

    def __init__(self, gaps: npt.NDArray[np.void]) -> None:
        ordered = gaps[np.argsort(gaps["context"], kind="stable")]
        bins = np.array_split(ordered, max(1, min(MOST_BINS, len(ordered) // PER_BIN)))
        self._context = np.array([np.median(one["context"]) for one in bins])
        self._ns = np.array([np.median(one["ns"]) for one in bins])
        self._span = ordered["context"][0], ordered["context"][-1]

    def ratios(self, gaps: npt.NDArray[np.void]) -> F64:
        """How many times as long as expected each step is; steps at contexts that were not met are left out."""
        met = gaps[(gaps["context"] >= self._span[0]) & (gaps["context"] <= self._span[1])]
        found: F64 = met["ns"] / np.interp(met["context"], self._context, self._ns)
        return found
