"""The steps of two recordings as one grid of cells, and the change of any sum of cells with its noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import F64, I64, Bools

from .noise import Noise, change_of_means
from .phases import one_target
from .result import Change, Interval
from .side import Side, cells_of


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """``codes`` names the columns; ``slowest`` holds the steps of the slowest rank in A and in B, shape (steps, k).

    Where these are two different ranks, ``own`` holds each of them in A and in B: a change counts only if a rank shows
    it by itself, since which of two ranks is slower by a hair is chance. ``ranks`` are the slowest in A and B.
    ``one_target`` tells whether plain decoding and verifying are one phase.
    """

    codes: I64
    slowest: tuple[F64, F64]
    own: tuple[tuple[F64, F64], ...]
    ranks: tuple[int, int]
    one_target: bool

    @classmethod
    def of(cls, a: Side, b: Side, tokens: tuple[float, float]) -> Grid:
        """The grid of ``a`` and ``b``; times are divided by ``tokens``."""
        first, second = a.slowest(), b.slowest()
        ranks = a.ranks[first], b.ranks[second]
        devices = [(first, second), *(_same_rank(a, b, rank) for rank in ranks if ranks[0] != ranks[1])]
        one = one_target(a.cycle, b.cycle)
        found = [
            (cells_of(a, x, one_target=one), cells_of(b, y, one_target=one))
            for x, y in devices
            if x is not None and y is not None
        ]
        codes = np.unique(np.concatenate([cells.codes for both in found for cells in both]))
        tables = [(x.spread(codes) / tokens[0], y.spread(codes) / tokens[1]) for x, y in found]
        return cls(codes, tables[0], tuple(tables[1:]), ranks, one)

    def noise(self, weights: F64) -> Noise:
        """The changes of the sums that the columns of ``weights`` (k, m) take over cells."""
        noise = change_of_means(self.slowest[0] @ weights, self.slowest[1] @ weights)
        return confirmed(noise, [change_of_means(a @ weights, b @ weights) for a, b in self.own])

    def totals(self) -> tuple[I64, I64, int, int]:
        """Whole nanoseconds by cell in A and in B, and what they sum to."""
        values = [table.mean(axis=0) for table in self.slowest]
        sums = [round(float(value.sum())) for value in values]
        return apportioned(values[0], sums[0]), apportioned(values[1], sums[1]), sums[0], sums[1]


def _same_rank(a: Side, b: Side, rank: int) -> tuple[int | None, int | None]:
    """The devices of ``rank`` in A and B, ``None`` where there is none."""
    first, second = (next((d for d in side.devices() if side.ranks[d] == rank), None) for side in (a, b))
    return first, second


def confirmed(noise: Noise, own: list[Noise]) -> Noise:
    """``noise`` with the p-values of changes that one of ``own`` shows too, in the same direction."""
    if not own:
        return noise
    p = np.stack([np.where(np.sign(one.delta) == np.sign(noise.delta), one.p, 1.0) for one in own])
    best = np.minimum(p.min(axis=0) * len(own), 1.0)
    return Noise(noise.delta, noise.low, noise.high, np.maximum(noise.p, best), noise.weight, noise.known)


def apportioned(values: F64, total: int) -> I64:
    """``values`` as integers that sum to ``total``: rounded down, and the rest to the largest remainders."""
    floors = np.floor(values).astype(np.int64)
    missing = total - int(floors.sum())
    order = np.argsort(floors - values, kind="stable")
    if missing < 0:
        order = order[::-1]
    floors[order[: abs(missing)]] += np.sign(missing)
    return floors


def interval(noise: Noise, place: int) -> Interval | None:
    """The 95 % interval of one column in whole nanoseconds, rounded outwards."""
    if not noise.known:
        return None
    return int(np.floor(noise.low[place])), int(np.ceil(noise.high[place]))


def change(a: float, b: float, noise: Noise, place: int, significant: Bools) -> Change:
    """The change from ``a`` to ``b``, with the noise of column ``place``."""
    first, second = round(a), round(b)
    return Change(first, second, second - first, interval(noise, place), bool(significant[place]))
