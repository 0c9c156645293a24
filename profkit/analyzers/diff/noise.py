"""How sure a change of means is: intervals by block bootstrap over steps, and significance corrected for many cells.

With 8 to 20 steps a plain percentile interval is too narrow, and steps resemble their neighbours. So the bootstrap
distribution is widened to the larger of two standard errors, that of blocks and that of steps with their lag-1
autocorrelation, and from a normal to a Student quantile whose degrees of freedom are those of as many independent
steps. ``docs/diff.md`` says what was measured.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.traces import F64, I64, Bools

from .student import reach_95, two_sided

MIN_STEPS = 4
LEVEL = 0.05
RESAMPLES = 1000
SEED = 20_240_517
LARGEST = 128
"""More steps than this are averaged with their neighbours first: blocks of many steps, and a bounded cost."""

STRONGEST = 0.6
"""Autocorrelations are taken to be no larger: more could not be told from a drift."""

THRIFT, LEAST = 0.8, 1 / 3
"""Degrees of freedom per independent step, as the standard error itself rests on few steps; and per step at least."""

NORMAL = 1.959964
CLOCK_VARIANCE = 1 / 12
"""Of a time that is rounded to whole nanoseconds."""

ROUNDING = 1e-9
"""What varies by less than this share of its mean is constant, but for the rounding of fractions."""


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """For each of k columns: change of the mean, its 95 % interval, two-sided p-value, and weight in a family.

    ``known`` is false where a side has fewer than ``MIN_STEPS`` steps; intervals are then infinite and p-values 1.
    """

    delta: F64
    low: F64
    high: F64
    p: F64
    weight: F64
    known: bool

    @classmethod
    def join(cls, noises: Sequence[Noise]) -> Noise:
        """The columns of ``noises`` as one family."""
        delta, low, high, p, weight = (
            np.concatenate(columns)
            for columns in zip(*((n.delta, n.low, n.high, n.p, n.weight) for n in noises), strict=True)
        )
        return cls(delta, low, high, p, weight, all(noise.known for noise in noises))

    def significant(self) -> Bools:
        """Which changes are none of chance, all columns together at ``LEVEL``; their intervals leave out 0."""
        outside = (self.low > 0) | (self.high < 0)
        return holm(self.p, self.weight) & outside


def holm(p: F64, weight: F64) -> Bools:
    """Which hypotheses fall at ``LEVEL`` for the whole family; ``weight`` shares the level out (Holm, 1979)."""
    order = np.argsort(p / weight, kind="stable")
    left = np.cumsum(weight[order][::-1])[::-1]
    fails = p[order] > LEVEL * weight[order] / left
    fallen = np.zeros(len(p), np.bool_)
    fallen[order[: int(np.argmax(fails)) if fails.any() else len(p)]] = True
    return fallen


def change_of_means(a: F64, b: F64, tokens: tuple[float, float] = (1.0, 1.0)) -> Noise:
    """The change from ``a`` to ``b``, arrays of nanoseconds of shape (steps, k), rows in order of time.

    The means of A and B, and what their steps differ by, are divided by ``tokens``.
    """
    means = a.mean(axis=0) / tokens[0], b.mean(axis=0) / tokens[1]
    delta = means[1] - means[0]
    # The more time a column takes, the more of the family's level it gets; whether it changed plays no part in it.
    weight = np.sqrt(np.maximum(means[0] + means[1], 1.0))
    if min(len(a), len(b)) < MIN_STEPS:
        far = np.full(len(delta), np.inf)
        return Noise(delta, -far, far, np.ones(len(delta)), weight, False)
    sides = [_side(a).over(tokens[0]), _side(b).over(tokens[1])]
    variance = sides[0].variance + sides[1].variance
    welch = np.square(variance) / sum(np.square(side.variance) / side.freedom for side in sides)
    error = np.sqrt(variance)
    draws = _resampled(sides[1].rows, SEED + 1) - _resampled(sides[0].rows, SEED)
    low, high = _widened(draws, error, reach_95(welch))
    # If nothing changed, both sides have the same noise, and their degrees of freedom add up.
    p = two_sided(np.abs(delta) / error, sides[0].freedom + sides[1].freedom)
    return Noise(delta, delta + low, delta + high, np.where(delta == 0, 1.0, p), weight, True)


def agree(a: I64, b: I64) -> bool:
    """Whether the steps of two ranks take equally long within noise; as many steps are compared one by one.

    ``False`` where there are too few to tell.
    """
    if min(len(a), len(b)) < MIN_STEPS:
        return False
    if len(a) == len(b):
        apart = (b - a).astype(np.float64)[:, None]
        side = _side(apart)
        return bool(abs(apart.mean()) <= (reach_95(side.freedom) * np.sqrt(side.variance))[0])
    noise = change_of_means(a.astype(np.float64)[:, None], b.astype(np.float64)[:, None])
    return bool(noise.low[0] <= 0 <= noise.high[0])


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """Centred rows, the variance of their mean, and its degrees of freedom, by column."""

    rows: F64
    variance: F64
    freedom: F64

    def over(self, tokens: float) -> _Side:
        """The same per token."""
        return _Side(self.rows / tokens, self.variance / tokens**2, self.freedom)


def _side(values: F64) -> _Side:
    rows = _thinned(values)
    mean = rows.mean(axis=0)
    rows = rows - mean
    rows[:, np.abs(rows).max(axis=0) < ROUNDING * np.maximum(np.abs(mean), 1.0)] = 0.0
    count = len(rows)
    square = np.square(rows).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        lagged = np.where(square > 0, (rows[1:] * rows[:-1]).sum(axis=0) / square, 0.0)
    # Kendall's correction of the bias that few steps bring; columns without any noise say nothing.
    correlation = np.where(square > 0, (lagged + 1 / count) / (1 - 3 / count), 0.0)
    common = correlation[square > 0].mean() if np.any(square > 0) else 0.0
    correlation = np.clip(np.maximum(correlation, common), 0.0, STRONGEST)
    inflation = (1 + correlation) / (1 - correlation)
    by_step = square / (count - 1) / count * inflation
    blocks = np.square(_block_sums(rows)).mean(axis=0) / (_block(count) * count) / (1 - _block(count) / count)
    variance = np.maximum(by_step, blocks) + CLOCK_VARIANCE / count
    return _Side(rows, variance, np.maximum(THRIFT * count / inflation - 1, LEAST * count))


def _thinned(values: F64) -> F64:
    """``values``, or at most ``LARGEST`` averages of as many neighbours."""
    size = -(-len(values) // LARGEST)
    if size == 1:
        return values
    whole = len(values) // size * size
    averaged: F64 = values[:whole].reshape(-1, size, values.shape[1]).mean(axis=1)
    return averaged


def _block(count: int) -> int:
    """The length of blocks: the cube root of the number of steps, and at least 2."""
    return max(2, round(float(count ** (1 / 3))))


def _block_sums(rows: F64) -> F64:
    """Sums of the blocks that begin at each row; the last ones go on with the first rows."""
    sums: F64 = np.sum([np.roll(rows, -shift, axis=0) for shift in range(_block(len(rows)))], axis=0)
    return sums


def _resampled(rows: F64, seed: int) -> F64:
    """``RESAMPLES`` means of blocks drawn at random, of shape (resamples, k), around 0."""
    means: F64 = _picks(len(rows), seed) @ _block_sums(rows)
    return means


@functools.cache
def _picks(count: int, seed: int) -> F64:
    """How much the block that begins at each of ``count`` rows weighs in each resampled mean; always the same."""
    block = _block(count)
    draws = -(-count // block)
    picked = np.random.default_rng(seed).multinomial(draws, np.full(count, 1 / count), size=RESAMPLES)
    # As many blocks as reach over all rows may be a little more than the rows: their mean varies a little less.
    weights: F64 = picked / (draws * block) * np.sqrt(draws * block / count)
    return weights


def _widened(draws: F64, error: F64, reach: F64) -> tuple[F64, F64]:
    """The percentile interval of ``draws``, stretched to the standard errors and to ``reach`` of them."""
    spread = draws.std(axis=0)
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.where(spread > 0, error / spread * reach / NORMAL, 0.0)
    # Never narrower than the t interval: with few blocks the percentiles themselves are coarse.
    return np.minimum(low * stretch, -reach * error), np.maximum(high * stretch, reach * error)
