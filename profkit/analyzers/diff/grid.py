"""The steps of two recordings as one grid of cells, and the change of any sum of cells with its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.traces import F64, I64, Bools

from .devices import compared_devices, device_of, tied
from .noise import Noise, change_of_means
from .phases import joining
from .result import Change, Interval
from .side import Side, cells_of

Tables = tuple[F64, F64]


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """``codes`` names the columns; ``tables`` holds the steps of one rank in A and in B, in ns of shape (steps, k).

    Where these are two different ranks, ``own`` holds each of them in A and in B: a change counts only if a rank shows
    it by itself, since which of two ranks is slower by a hair is chance. ``ranks`` are those of A and B. Means are per
    step over ``tokens``. ``phases`` says which phase stands for each.
    """

    codes: I64
    tables: Tables
    own: tuple[Tables, ...]
    ranks: tuple[int, int]
    tokens: tuple[float, float]
    phases: I64

    @classmethod
    def of(cls, a: Side, b: Side, tokens: tuple[float, float], devices: tuple[int, int] | None = None) -> Grid:
        """The grid of ``devices`` of ``a`` and ``b``; of those that are compared, if none are given."""
        first, second = devices or compared_devices(a, b)
        ranks = a.ranks[first], b.ranks[second]
        others = [(device_of(a, rank), device_of(b, rank)) for rank in ranks if ranks[0] != ranks[1]]
        phases = joining(a.cycle, b.cycle)
        found = [
            (cells_of(a, x, phases), cells_of(b, y, phases))
            for x, y in [(first, second), *others]
            if x is not None and y is not None
        ]
        codes = np.unique(np.concatenate([cells.codes for both in found for cells in both]))
        tables = [(x.spread(codes), y.spread(codes)) for x, y in found]
        return cls(codes, tables[0], tuple(tables[1:]), ranks, tokens, phases)

    def noise(self, weights: F64) -> Noise:
        """The changes of the sums that the columns of ``weights`` (k, m) take over cells."""
        noise, *own = (change_of_means(a @ weights, b @ weights, self.tokens) for a, b in (self.tables, *self.own))
        return confirmed(noise, own)

    def means(self, weights: F64) -> Tables:
        """Those sums in A and in B, the means."""
        a, b = ((table @ weights).mean(axis=0) / each for table, each in zip(self.tables, self.tokens, strict=True))
        return a, b

    def totals(self) -> tuple[I64, I64, int, int]:
        """Whole nanoseconds by cell in A and in B, and what they sum to."""
        values = self.means(np.eye(len(self.codes)))
        sums = [round(float(value.sum())) for value in values]
        return apportioned(values[0], sums[0]), apportioned(values[1], sums[1]), sums[0], sums[1]


def grids_of_tied(a: Side, b: Side, tokens: tuple[float, float]) -> list[Grid]:
    """The grid that is compared, and those of the other ranks that are as slow in B within noise.

    Any rank of B is compared with the same one of A, if that is among A's slowest, else with A's slowest.
    """
    compared = compared_devices(a, b)
    slow = {a.ranks[device]: device for device in tied(a)}
    others = [device for device in tied(b) if device != compared[1]]
    pairs = [compared, *((slow.get(b.ranks[device], compared[0]), device) for device in others)]
    return [Grid.of(a, b, tokens, devices) for devices in pairs]


def confirmed(noise: Noise, own: Sequence[Noise]) -> Noise:
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
