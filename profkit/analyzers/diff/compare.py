"""From recordings to ``Diff``: pairs, their comparability, and what changed in each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from .comparable import SAME, comparability
from .devices import compared_devices, one_rank
from .grid import Grid, grids_of_tied
from .kernels import kernel_changes
from .limits import Limit, judge
from .pairing import pair_up
from .parts import part_changes
from .rank_table import rank_changes
from .result import (
    Change,
    Comparable,
    Diff,
    Judgement,
    KernelChange,
    PairDiff,
    PartChange,
    Per,
    RankChange,
    Recorded,
    StoryChange,
)
from .sentence import summary, whole_summary
from .side import Side
from .stories import story_changes

SCHEMA = "profkit.diff/1"
NONE = (0, 0)
"""The interval of what cannot change."""


def diff(a: Sequence[Side], b: Sequence[Side], per: Per = "step", limits: Sequence[Limit] = ()) -> Diff:
    """Compare the recordings ``a`` with ``b``, paired by concurrency.

    Raises ``UsageError`` where no recording of one has a partner in the other.
    """
    pairs, unpaired = pair_up(a, b)
    verdicts = [comparability(first, second, per) for first, second in pairs]
    grids = [
        grids_of_tied(first, second, tokens_of(first, second, per))
        for (first, second), verdict in zip(pairs, verdicts, strict=True)
        if verdict.status != "no"
    ]
    judged = iter(zip((tied[0] for tied in grids), judge(limits, grids), strict=True))
    compared = tuple(
        _abstained(*pair, per, verdict) if verdict.status == "no" else _compared(*pair, per, verdict, *next(judged))
        for pair, verdict in zip(pairs, verdicts, strict=True)
    )
    first = compared[0]
    return Diff(
        schema=SCHEMA,
        a=first.a,
        b=first.b,
        per=per,
        comparable=first.comparable,
        total=first.total,
        parts=first.parts,
        summary=first.summary,
        limits=first.limits,
        unpaired=unpaired,
        pairs=compared,
    )


def tokens_of(a: Side, b: Side, per: Per) -> tuple[float, float]:
    """What times are divided by."""
    return (a.tokens or 1.0, b.tokens or 1.0) if per == "token" else (1.0, 1.0)


def _abstained(a: Side, b: Side, per: Per, verdict: Comparable) -> PairDiff:
    return _pair(a, b, per, verdict, f"No comparison: {'; '.join(verdict.reasons)}.")


def _compared(a: Side, b: Side, per: Per, verdict: Comparable, grid: Grid, limits: tuple[Judgement, ...]) -> PairDiff:
    total, parts = part_changes(grid)
    if verdict.identical:
        held = tuple(
            replace(limit, status="held", note=None, change=replace(limit.change, ci95_ns=NONE)) for limit in limits
        )
        same, cells = replace(total, ci95_ns=NONE), tuple(replace(row, ci95_ns=NONE) for row in parts)
        return _pair(a, b, per, verdict, f"{SAME}, so nothing changed.", total=same, parts=cells, limits=held)
    tokens = tokens_of(a, b, per)
    ranks = rank_changes(a, b, tokens)
    stories = story_changes(grid, ranks, (a, b), tokens)
    sides = _recorded(a, b)
    return _pair(
        a,
        b,
        per,
        verdict,
        summary(per, total, stories, sides, [row.rank for row in ranks]) if a.steps else whole_summary(sides),
        total=total,
        parts=parts,
        stories=stories,
        ranks=ranks,
        kernels=kernel_changes(a, b, tokens),
        kernel_ranks=_ranks(a, b, one_rank(a, b)),
        limits=limits,
    )


def _pair(
    a: Side,
    b: Side,
    per: Per,
    verdict: Comparable,
    told: str,
    *,
    total: Change | None = None,
    parts: tuple[PartChange, ...] = (),
    stories: tuple[StoryChange, ...] = (),
    ranks: tuple[RankChange, ...] = (),
    kernels: tuple[KernelChange, ...] = (),
    kernel_ranks: tuple[int, int] | None = None,
    limits: tuple[Judgement, ...] = (),
) -> PairDiff:
    return PairDiff(
        a=a.name,
        b=b.name,
        per=per,
        comparable=verdict,
        total=total,
        parts=parts,
        window="steps" if a.steps or b.steps else "recording",
        sides=_recorded(a, b),
        stories=stories,
        ranks=ranks,
        kernels=kernels,
        kernel_ranks=kernel_ranks,
        limits=limits,
        summary=told,
    )


def _ranks(a: Side, b: Side, devices: tuple[int, int]) -> tuple[int, int]:
    return a.ranks[devices[0]], b.ranks[devices[1]]


def _recorded(a: Side, b: Side) -> tuple[Recorded, Recorded]:
    if not a.devices() or not b.devices():
        return _side(a, None), _side(b, None)
    first, second = compared_devices(a, b)
    return _side(a, first), _side(b, second)


def _side(side: Side, device: int | None) -> Recorded:
    """What is known of ``side``, of which ``device`` is compared."""
    ops = side.attribution.trace.ops
    counted = [side.step_of_ops(device)[0] for device in side.devices()]
    rows = np.concatenate(counted) if counted else np.empty(0, np.int64)
    return Recorded(
        name=side.name,
        path=side.path,
        rank=None if device is None else side.ranks[device],
        kind=side.cycle.kind,
        steps=side.steps,
        batch_size=side.cycle.batch_size,
        accept_len=side.cycle.accept_len,
        tokens_per_step=side.tokens,
        concurrency=side.run.concurrency,
        ops=len(rows),
        ops_sum_ns=int((ops.end[rows] - ops.start[rows]).sum()),
        wall_ns=0 if device is None else round(side.wall(device)),
    )
