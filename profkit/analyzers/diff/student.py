"""Student's t distribution for arrays of degrees of freedom, so that no statistics package is needed."""

from __future__ import annotations

import math

import numpy as np

from profkit.traces import F64

TERMS = 200
PRECISION = 1e-12
FREEDOM = np.array([np.inf, 120, 60, 30, 20, 15, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1])
REACH_95 = np.array(
    [1.95996, 1.97993, 2.00030, 2.04227, 2.08596, 2.13145, 2.17881, 2.22814, 2.30600, 2.36462, 2.44691, 2.57058,
     2.77645, 3.18245, 4.30265, 12.70620]
)  # fmt: skip
"""Quantiles of two-sided 95 % intervals at ``FREEDOM``."""


def reach_95(freedom: F64) -> F64:
    """How many standard errors a 95 % interval reaches to each side, for ``freedom`` of 1 and more.

    Interpolated over 1 / freedom; as the quantile is convex in it, never too small.
    """
    reach: F64 = np.interp(1 / freedom, 1 / FREEDOM, REACH_95)
    return reach


def two_sided(t: F64, freedom: F64) -> F64:
    """The probability of a value at least as far from 0 as ``t``; arrays of equal shape.

    I_x(freedom / 2, 1 / 2) at x = freedom / (freedom + t²), by the continued fraction of the incomplete beta function
    (Numerical Recipes, 6.4).
    """
    x = freedom / (freedom + np.square(t))
    return _incomplete_beta(freedom / 2, np.full_like(freedom, 0.5), x)


def _incomplete_beta(a: F64, b: F64, x: F64) -> F64:
    flipped = x > (a + 1) / (a + b + 2)
    p, q, at = np.where(flipped, b, a), np.where(flipped, a, b), np.where(flipped, 1 - x, x)
    with np.errstate(divide="ignore", invalid="ignore"):
        front = np.exp(p * np.log(at) + q * np.log1p(-at) - _log_beta(p, q)) / p
    value = np.where(at <= 0, 0.0, front * _fraction(p, q, at))
    return np.where(flipped, 1 - value, value)


def _log_beta(a: F64, b: F64) -> F64:
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return np.array([math.lgamma(p) + math.lgamma(q) - math.lgamma(p + q) for p, q in pairs])


def _fraction(a: F64, b: F64, x: F64) -> F64:
    """The continued fraction by Lentz's method; converges for x below (a + 1) / (a + b + 2)."""
    above, below = np.ones_like(x), 1 / (1 - (a + b) * x / (a + 1))
    value = below.copy()
    for m in range(1, TERMS):
        before = value
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            below = 1 / (1 + factor * below)
            above = 1 + factor / above
            value = value * above * below
        if np.all(np.abs(value - before) <= PRECISION * np.abs(value)):
            break
    return value
