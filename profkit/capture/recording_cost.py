"""How many times as long a decode step is with a recorder as without, at the same contexts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profkit.traces import RecordingCost

from .step_clock import Gaps

F64 = npt.NDArray[np.float64]

PER_BIN, MOST_BINS = 12, 16
LEAST_STEPS = 12
TOLERATED = 0.02
PER_BLOCK, MOST_BLOCKS = 4, 10
STUDENT = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""By the number of blocks: how many standard errors hold their mean with 95 %."""


def recording_cost(recorded: Gaps, *without: Gaps) -> RecordingCost | None:
    """The cost in the process whose recorded steps are the longest; ``None`` where contexts or steps are too few.

    Each recorded step is divided by what steps without a recorder take at its context. Steps next to each other are
    alike, and a server drifts: the error comes from the medians of blocks of consecutive steps, on both sides.
    """
    if not recorded:
        return None
    pid = max(recorded, key=lambda one: float(np.median(recorded[one]["ns"])))
    others = [_known(part[pid]) for part in without if pid in part]
    if not sum(map(len, others)):
        return None
    expected = _Expected(np.concatenate(others))
    within, outside = expected.ratios(_known(recorded[pid])), [expected.ratios(part) for part in others]
    if len(within) < LEAST_STEPS or sum(map(len, outside)) < LEAST_STEPS:
        return None
    middle = float(np.median(np.concatenate(outside)))
    ratio = float(np.median(within)) / middle
    error = ratio * float(np.hypot(_error([within]), _error(outside)))
    return RecordingCost(ratio, error, len(within)) if np.isfinite(error) else None


def left_behind(before: Gaps, after: Gaps) -> RecordingCost | None:
    """How many times as long steps are after a recording as before it, if that is more than noise and ``TOLERATED``.

    A recorder that has ended need not be gone: of CUPTI, which all recorders use, calls stay instrumented.
    """
    found = recording_cost(after, before)
    return found if found is not None and found.ratio - found.error > 1 + TOLERATED else None


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


def _error(parts: list[F64]) -> float:
    """Half the width of the 95 % interval of the median of ``parts``, relative to it; infinite for too few steps."""
    every = sum(map(len, parts))
    count = min(MOST_BLOCKS, every // PER_BLOCK)
    blocks = [block for part in parts for block in np.array_split(part, max(1, round(count * len(part) / every)))]
    medians = np.array([np.median(block) for block in blocks if len(block)])
    if len(medians) < min(STUDENT):
        return float("inf")
    scale = STUDENT[min(len(medians), MOST_BLOCKS)] / np.sqrt(len(medians))
    return float(scale * medians.std(ddof=1) / np.median(medians))
