"""What a person asks of a change: the host, waiting for other ranks, transfers, the work of each phase."""

from __future__ import annotations

import numpy as np

from profkit.analyzers.vocabulary import HOST_PARTS, PART, PARTS, PHASE, PHASES
from profkit.traces import F64, I64, Bools

from .grid import Grid, change
from .noise import Noise, change_of_means
from .result import Change, RankChange, StoryChange
from .side import NO_CLASS, Side

GAPS = {"host": HOST_PARTS, "graph_gaps": ("gap_in_graph",), "queue": ("gap_queue", "gap_unknown")}


def story_changes(grid: Grid, ranks: tuple[RankChange, ...], *, one_target: bool) -> tuple[StoryChange, ...]:
    """The changes by what they are about, largest first: sums of cells of the slowest ranks; of collectives, the rank
    that changed most. With ``one_target``, plain decoding and verifying are one phase, ``target``.
    """
    rows = [*_of_cells(grid, one_target), *_of_collectives(ranks)]
    return tuple(sorted(rows, key=lambda row: -abs(row.change.delta_ns)))


def _of_cells(grid: Grid, one_target: bool) -> list[StoryChange]:
    asked = _asked(grid.codes, one_target)
    if not asked:
        return []
    weights = np.stack([mask.astype(np.float64) for _, _, mask in asked], axis=1)
    noise = grid.noise(weights)
    significant = noise.significant()
    means = [(table @ weights).mean(axis=0) for table in grid.slowest]
    return [
        StoryChange(about, phase, grid.ranks[1], change(means[0][place], means[1][place], noise, place, significant))
        for place, (about, phase, _) in enumerate(asked)
    ]


def _asked(codes: I64, one_target: bool) -> list[tuple[str, str | None, Bools]]:
    part = codes // (NO_CLASS + 1) % len(PARTS)
    phase = codes // (NO_CLASS + 1) // len(PARTS)
    asked: list[tuple[str, str | None, Bools]] = [
        (about, None, np.isin(part, [PART[name] for name in parts])) for about, parts in GAPS.items()
    ]
    asked.append(("copies", None, part == PART["copy"]))
    merged = np.where(phase == PHASE["decode"], PHASE["verify"], phase) if one_target else phase
    for number in np.unique(merged[part == PART["compute"]]).tolist():
        name = "target" if one_target and number == PHASE["verify"] else PHASES[number]
        asked.append(("compute", name, (part == PART["compute"]) & (merged == number)))
    return [(about, name, mask) for about, name, mask in asked if mask.any()]


def _of_collectives(ranks: tuple[RankChange, ...]) -> list[StoryChange]:
    rows = []
    for about in ("waiting", "transfer"):
        found: list[tuple[int, Change | None]] = [(row.rank, getattr(row, about)) for row in ranks]
        known = [(rank, change) for rank, change in found if change is not None and (change.a_ns or change.b_ns)]
        if known:
            rank, largest = max(known, key=lambda item: abs(item[1].delta_ns))
            rows.append(StoryChange(about, None, rank, largest))
    return rows


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
            waiting=of(place * width + 1) if known else None,
            transfer=of(place * width + 2) if known else None,
        )
        for place, (x, _) in enumerate(shared)
    )


def _rank_columns(side: Side, device: int, known: bool) -> F64:
    """Wall time of each step of ``device`` and, where ``known``, waiting and transfer in its collectives."""
    wall = np.diff(side.bounds(device)).astype(np.float64)
    if not known:
        return wall[:, None]
    own = side.matched.instances[device]
    paired = own.skew >= 0
    step = side.places(device, own.row[paired])
    waiting = np.bincount(step, weights=own.skew[paired], minlength=len(wall))
    whole = np.bincount(step, weights=(own.end - own.start)[paired], minlength=len(wall))
    return np.stack([wall, waiting, whole - waiting], axis=1)
