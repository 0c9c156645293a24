"""What a person asks of a change: the host, waiting for other ranks, transfers, the work of each phase."""

from __future__ import annotations

import numpy as np

from profkit.analyzers.collectives import blame
from profkit.analyzers.vocabulary import HOST_PARTS, PART, PARTS
from profkit.traces import F64, I64, Bools

from .grid import Grid, change
from .noise import Noise, change_of_means
from .phases import NAMES
from .result import Change, RankChange, StoryChange
from .side import NO_CLASS, Side, cells_of

MOST_OF_IT = 0.5
"""A change of waiting follows from another rank's host gaps if these account for so much of it."""

HOST = [PART[name] for name in HOST_PARTS]
GAPS = {"host": HOST_PARTS, "graph_gaps": ("gap_in_graph",), "queue": ("gap_queue", "gap_unknown")}


def story_changes(
    grid: Grid, ranks: tuple[RankChange, ...], sides: tuple[Side, Side], tokens: tuple[float, float]
) -> tuple[StoryChange, ...]:
    """The changes by what they are about, largest first: sums of cells of the slowest ranks; of collectives, the rank
    that changed most; and of host gaps, the rank for which that one waited because of them, if its gaps changed more.
    """
    rows = [*_of_cells(grid), *_of_collectives(ranks, sides, tokens)]
    follows = next((row.follows for row in rows if row.follows is not None), None)
    cause = next((row.host for row in ranks if row.rank == follows), None)
    host = next((row for row in rows if row.about == "host"), None)
    if follows is not None and cause and abs(cause.delta_ns) > abs(host.change.delta_ns if host else 0):
        rows = [row for row in rows if row is not host] + [StoryChange("host", None, follows, follows, cause)]
    return tuple(sorted(rows, key=lambda row: -abs(row.change.delta_ns)))


def _of_cells(grid: Grid) -> list[StoryChange]:
    asked = _asked(grid.codes)
    if not asked:
        return []
    weights = np.stack([mask.astype(np.float64) for _, _, mask in asked], axis=1)
    noise = grid.noise(weights)
    significant = noise.significant()
    means = [(table @ weights).mean(axis=0) for table in grid.slowest]
    return [
        StoryChange(about, phase, *grid.ranks, change(means[0][place], means[1][place], noise, place, significant))
        for place, (about, phase, _) in enumerate(asked)
    ]


def _asked(codes: I64) -> list[tuple[str, str | None, Bools]]:
    part = _parts_of(codes)
    phase = codes // (NO_CLASS + 1) // len(PARTS)
    asked: list[tuple[str, str | None, Bools]] = [
        (about, None, np.isin(part, [PART[name] for name in parts])) for about, parts in GAPS.items()
    ]
    asked.append(("copies", None, part == PART["copy"]))
    for number in np.unique(phase[part == PART["compute"]]).tolist():
        asked.append(("compute", NAMES[number], (part == PART["compute"]) & (phase == number)))
    return [(about, name, mask) for about, name, mask in asked if mask.any()]


def _of_collectives(
    ranks: tuple[RankChange, ...], sides: tuple[Side, Side], tokens: tuple[float, float]
) -> list[StoryChange]:
    rows = []
    for about in ("waiting", "transfer"):
        found: list[tuple[int, Change | None]] = [(row.rank, getattr(row, about)) for row in ranks]
        known = [(rank, change) for rank, change in found if change is not None and (change.a_ns or change.b_ns)]
        if known:
            rank, largest = max(known, key=lambda item: abs(item[1].delta_ns))
            follows = _followed(rank, largest.delta_ns, sides, tokens) if about == "waiting" else None
            rows.append(StoryChange(about, None, rank, rank, largest, follows))
    return rows


def _followed(rank: int, delta_ns: int, sides: tuple[Side, Side], tokens: tuple[float, float]) -> int | None:
    """The rank whose host gaps ``rank`` waited out in A and B so differently that most of ``delta_ns`` comes of it."""
    a, b = (_waited_out(side, rank, each) for side, each in zip(sides, tokens, strict=True))
    change = {last: b.get(last, 0.0) - a.get(last, 0.0) for last in sorted(a.keys() | b.keys())}
    if not change:
        return None
    last = max(change, key=lambda one: abs(change[one]))
    return last if change[last] * np.sign(delta_ns) >= MOST_OF_IT * abs(delta_ns) > 0 else None


def _waited_out(side: Side, rank: int, tokens: float) -> dict[int, float]:
    """Host gaps of other ranks, by rank, for which ``rank`` waited: nanoseconds per step over ``tokens``."""
    device = next(device for device in side.devices() if side.ranks[device] == rank)
    each = tokens * (len(side.bounds(device)) - 1)
    totals = blame(side.attribution, side.matched, device)
    return {side.ranks[last]: float(total[HOST].sum()) / each for last, total in totals.items()}


def rank_changes(a: Side, b: Side, tokens: tuple[float, float]) -> tuple[RankChange, ...]:
    """Each rank that both sides have; waiting and transfer are ``None`` where they cannot be told apart."""
    known = a.matched.known and b.matched.known and bool(a.steps and b.steps)
    shared = [(x, y) for x in a.devices() for y in b.devices() if a.ranks[x] == b.ranks[y]]
    if not shared:
        return ()
    tables = [(_rank_columns(a, x, known) / tokens[0], _rank_columns(b, y, known) / tokens[1]) for x, y in shared]
    noise = Noise.join([change_of_means(*both) for both in tables])
    significant = noise.significant()
    means = [np.concatenate([both[side].mean(axis=0) for both in tables]) for side in (0, 1)]

    def of(place: int) -> Change:
        return change(float(means[0][place]), float(means[1][place]), noise, place, significant)

    width = len(noise.delta) // len(shared)
    return tuple(
        RankChange(
            rank=a.ranks[x],
            wall=of(place * width),
            waiting=of(place * width + 2) if known else None,
            transfer=of(place * width + 3) if known else None,
            host=of(place * width + 1),
        )
        for place, (x, _) in enumerate(shared)
    )


def _rank_columns(side: Side, device: int, known: bool) -> F64:
    """Wall time and host gaps of each step of ``device``; where ``known``, waiting and transfer in collectives."""
    wall = np.diff(side.bounds(device)).astype(np.float64)
    cells = cells_of(side, device)
    host = cells.table[:, np.isin(_parts_of(cells.codes), HOST)].sum(axis=1)
    if not known:
        return np.stack([wall, host], axis=1)
    own = side.matched.instances[device]
    paired = own.skew >= 0
    step = side.places(device, own.row[paired])
    waiting = np.bincount(step, weights=own.skew[paired], minlength=len(wall))
    whole = np.bincount(step, weights=(own.end - own.start)[paired], minlength=len(wall))
    return np.stack([wall, host, waiting, whole - waiting], axis=1)


def _parts_of(codes: I64) -> I64:
    return codes // (NO_CLASS + 1) % len(PARTS)
