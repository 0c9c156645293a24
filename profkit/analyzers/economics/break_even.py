"""Break-even with its interval, and the batch size at which it meets the accept length."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .result import Crossing, Range

FINE = 1e9
"""Logarithms are taken in billionths: the bootstrap adds the rounding of a clock that counts whole units."""


def spread_of_ratio(plain: Sequence[int], speculative: Sequence[int]) -> Range | None:
    """Factors that make a 95 % interval out of speculative over plain step time; ``None`` with too few steps.

    A moving-block bootstrap over both series of step times, of the logarithms, whose change of means is the
    logarithm of a ratio. The same steps always give the same factors, and 1 lies between them.
    """
    from ..diff.noise import change_of_means

    if not plain or not speculative:
        return None
    noise = change_of_means(_logarithms(plain), _logarithms(speculative))
    if not noise.known:
        return None
    return math.exp((noise.low[0] - noise.delta[0]) / FINE), math.exp((noise.high[0] - noise.delta[0]) / FINE)


def _logarithms(periods: Sequence[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Shape (steps, 1), relative to the first step."""
    return FINE * np.log(np.asarray(periods, np.float64) / periods[0])[:, None]


def crossing(batch_sizes: Sequence[int], margins: Sequence[float | None]) -> Crossing:
    """Up to where ``margins``, as straight lines over the binary logarithm of the batch size, are not negative.

    Batch sizes ascend. Where a margin is not known, or there is none, neither is the crossing.
    """
    known = [margin for margin in margins if margin is not None]
    if not known or len(known) < len(margins):
        return Crossing("unknown")
    if known[0] < 0:
        return Crossing("below")
    lost = next((place for place, margin in enumerate(known) if margin < 0), None)
    if lost is None:
        return Crossing("above")
    before, after = known[lost - 1], known[lost]
    low, high = math.log2(batch_sizes[lost - 1]), math.log2(batch_sizes[lost])
    return Crossing("between", 2 ** (low + (high - low) * before / (before - after)))
