"""Which ranks are compared: the slowest, and of those that are equally slow the one that the others wait for.

Collectives let all ranks of a step end together, so which of them is slower by a hair is chance. What made the step
slow is seen on the one that spends least time in collectives.
"""

from __future__ import annotations

import numpy as np

from profkit.analyzers.partition import COLLECTIVE

from .noise import agree
from .side import Side, cells_of, part_of

CLEARLY = 2.0
"""A's ranks say which one is waited for if their times in collectives differ so many times as much as B's."""

EQUAL = 1e-3
"""Steps of ranks that differ by less than this share of their time are equally long."""


def equal(side: Side) -> list[int]:
    """The devices whose steps take as long as those of the slowest one, but for a hair; by rank, with itself."""
    longest = side.wall(side.slowest())
    # A whole recording is as long as it was left running, on each rank.
    least = longest * (1 - EQUAL) if side.steps else longest
    return [one for one in side.devices() if side.wall(one) >= least]


def tied(side: Side) -> list[int]:
    """The devices whose steps take as long as those of the slowest one, within noise."""
    slowest, same = side.slowest(), equal(side)
    if not side.steps:
        return same
    longest = np.diff(side.bounds(slowest))
    return [one for one in side.devices() if one in same or agree(np.diff(side.bounds(one)), longest)]


def compared_devices(a: Side, b: Side) -> tuple[int, int]:
    """The slowest devices of A and B: of those that are equal, one rank on both sides, the one that is waited for."""
    return _awaited_of(a, b, equal(a), equal(b))


def one_rank(a: Side, b: Side) -> tuple[int, int]:
    """The devices whose kernels are compared: the rank that is waited for among those that are tied in B.

    A's is of the same rank, if A has it, so that like is compared with like.
    """
    first, second = _awaited_of(a, b, tied(a), tied(b))
    same = device_of(a, b.ranks[second])
    return (first if same is None else same), second


def _awaited_of(a: Side, b: Side, of_a: list[int], of_b: list[int]) -> tuple[int, int]:
    """Of the given devices those that the others wait for: of one rank, if one is among both."""
    mine, theirs = ({side.ranks[one]: one for one in some} for side, some in ((a, of_a), (b, of_b)))
    both = sorted(mine.keys() & theirs.keys())
    if not both:
        return _awaited(a, mine), _awaited(b, theirs)
    times = [[_in_collectives(side, of[rank]) for rank in both] for side, of in ((a, mine), (b, theirs))]
    spread = [max(each) - min(each) for each in times]
    decisive = times[0] if spread[0] > CLEARLY * spread[1] else times[1]
    rank = both[decisive.index(min(decisive))]
    return mine[rank], theirs[rank]


def device_of(side: Side, rank: int) -> int | None:
    """The device of ``rank``, or ``None``."""
    return next((device for device in side.devices() if side.ranks[device] == rank), None)


def _awaited(side: Side, tied: dict[int, int]) -> int:
    return min(tied.values(), key=lambda device: (_in_collectives(side, device), side.ranks[device]))


def _in_collectives(side: Side, device: int) -> float:
    cells = cells_of(side, device)
    return float(cells.table[:, part_of(cells.codes) == COLLECTIVE].sum()) / len(cells.table)
