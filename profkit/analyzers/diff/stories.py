"""What a person asks of a change: the host, waiting for other ranks, transfers, the work of each phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec.structs import replace

from profkit.analyzers.collectives import blame
from profkit.analyzers.partition import COLLECTIVE, COMPUTE, COPY
from profkit.analyzers.vocabulary import HOST_PARTS, PART
from profkit.traces import I64, Bools

from .devices import device_of
from .grid import Grid, change
from .phases import NAMES
from .rank_table import HOST
from .result import Change, RankChange, StoryChange
from .side import Side, part_of, phase_of

MOST_OF_IT = 0.5
"""A change of waiting follows from what another rank did if that accounts for so much of it."""

Cause = Literal["host", "compute"]
CAUSES: dict[Cause, list[int]] = {"host": HOST, "compute": [COMPUTE]}
GAPS = {
    "host": HOST_PARTS,
    "graph_launch": ("gap_graph_launch",),
    "graph_gaps": ("gap_in_graph",),
    "queue": ("gap_queue", "gap_unknown"),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Both:
    """The two sides, by what their times are divided, and what changed on each rank of both."""

    sides: tuple[Side, Side]
    tokens: tuple[float, float]
    ranks: tuple[RankChange, ...]


def story_changes(
    grid: Grid, ranks: tuple[RankChange, ...], sides: tuple[Side, Side], tokens: tuple[float, float]
) -> tuple[StoryChange, ...]:
    """The changes by what they are about, largest first: sums of cells of the ranks compared; of collectives, the rank
    that changed most, behind what it waited for; and of that, the rank that was waited for.
    """
    both = _Both(sides, tokens, ranks)
    told = _of_collectives(both)
    rows = [row for row in _of_cells(grid) if row.about != "collectives" or not _explained(row, ranks)]
    waiting = next((row for row in told if row.follows is not None), None)
    if waiting is not None:
        rows = _with_cause(rows, waiting, both)
    rows = sorted([*rows, *told], key=lambda row: -abs(row.change.delta_ns))
    return tuple(_behind_its_cause(rows, waiting) if waiting is not None else rows)


def _explained(collectives: StoryChange, ranks: tuple[RankChange, ...]) -> bool:
    """Whether waiting and transfer account for most of a change of ``collectives``, so that they are told instead."""
    for row in ranks:
        if row.rank == collectives.b_rank and row.waiting is not None and row.transfer is not None:
            known = row.waiting.delta_ns + row.transfer.delta_ns
            return collectives.a_rank != row.rank or _most_of(known, collectives.change.delta_ns)
    return False


def _of_cells(grid: Grid) -> list[StoryChange]:
    asked = _asked(grid.codes)
    if not asked:
        return []
    weights = np.stack([mask.astype(np.float64) for _, _, mask in asked], axis=1)
    noise = grid.noise(weights)
    significant = noise.significant()
    a, b = grid.means(weights)
    rows = [
        StoryChange(about, phase, *grid.ranks, change(a[place], b[place], noise, place, significant))
        for place, (about, phase, _) in enumerate(asked)
    ]
    # Launches of graphs are host gaps; they are told apart where they are all that changed.
    host = next((row.change.significant for row in rows if row.about == "host"), False)
    return [row for row in rows if row.about != "graph_launch" or (row.change.significant and not host)]


def _asked(codes: I64) -> list[tuple[str, str | None, Bools]]:
    part, phase = part_of(codes), phase_of(codes)
    asked: list[tuple[str, str | None, Bools]] = [
        (about, None, np.isin(part, [PART[name] for name in parts])) for about, parts in GAPS.items()
    ]
    asked += [("copies", None, part == COPY), ("collectives", None, part == COLLECTIVE)]
    for number in np.unique(phase[part == COMPUTE]).tolist():
        asked.append(("compute", NAMES[number], (part == COMPUTE) & (phase == number)))
    return [(about, name, mask) for about, name, mask in asked if mask.any()]


def _of_collectives(both: _Both) -> list[StoryChange]:
    rows = []
    for about in ("waiting", "transfer"):
        found: list[tuple[int, Change | None]] = [(row.rank, getattr(row, about)) for row in both.ranks]
        known = [(rank, change) for rank, change in found if change is not None and (change.a_ns or change.b_ns)]
        if known:
            rank, largest = max(known, key=lambda item: abs(item[1].delta_ns))
            row = StoryChange(about, None, rank, rank, largest)
            rows.append(_with_follows(row, both) if about == "waiting" else row)
    return rows


def _with_follows(waiting: StoryChange, both: _Both) -> StoryChange:
    """``waiting`` with the rank that it follows, and what of that rank it comes of: what accounts for most of it."""
    a, b = (_waited_out(side, waiting.a_rank, each) for side, each in zip(both.sides, both.tokens, strict=True))
    changes = {key: b.get(key, 0.0) - a.get(key, 0.0) for key in sorted(a.keys() | b.keys())}
    delta = waiting.change.delta_ns
    for (last, cause), found in sorted(changes.items(), key=lambda item: -abs(item[1])):
        if not _most_of(found, delta):
            break
        if cause == "host" or _most_of(_computing(both, last), delta):
            return replace(waiting, follows=last, cause=cause)
    return waiting


def _most_of(part: float, whole: float) -> bool:
    return (part > 0) == (whole > 0) and abs(part) >= MOST_OF_IT * abs(whole) > 0


def _computing(both: _Both, rank: int) -> int:
    """By how much longer ``rank`` computes in B; 0 where that may be noise."""
    found = next((row.compute for row in both.ranks if row.rank == rank), None)
    return found.delta_ns if found is not None and found.significant else 0


def _waited_out(side: Side, rank: int, tokens: float) -> dict[tuple[int, Cause], float]:
    """What other ranks did while ``rank`` waited for them, by rank and cause: nanoseconds per step over ``tokens``."""
    device = device_of(side, rank)
    if device is None:
        return {}
    each = tokens * (len(side.bounds(device)) - 1)
    return {
        (side.ranks[last], cause): float(total[parts].sum()) / each
        for last, total in blame(side.attribution, side.matched, device).items()
        for cause, parts in CAUSES.items()
    }


def _with_cause(rows: list[StoryChange], waiting: StoryChange, both: _Both) -> list[StoryChange]:
    """``rows`` with what caused ``waiting`` on its own rank, if that changed more than on the ranks compared."""
    a, b = both.sides
    first, second = (device_of(side, waiting.follows or 0) for side in both.sides)
    if first is None or second is None:
        return rows
    own = [row for row in _of_cells(Grid.of(a, b, both.tokens, (first, second))) if row.about == waiting.cause]
    here = [row for row in rows if row.about == waiting.cause]
    if _sum(own) <= _sum(here):
        return rows
    return [*(row for row in rows if row.about != waiting.cause), *own]


def _sum(rows: list[StoryChange]) -> int:
    return abs(sum(row.change.delta_ns for row in rows))


def _behind_its_cause(rows: list[StoryChange], waiting: StoryChange) -> list[StoryChange]:
    """``rows`` with ``waiting`` behind the largest story of what it follows."""
    cause = next((row for row in rows if row.about == waiting.cause), None)
    if cause is None or rows.index(cause) < rows.index(waiting):
        return rows
    rest = [row for row in rows if row is not cause]
    at = rest.index(waiting)
    return [*rest[:at], cause, *rest[at:]]
