"""What changed on each rank: wall time, waiting and transfer in collectives, host gaps, and computing."""

from __future__ import annotations

import numpy as np

from profkit.analyzers.partition import COMPUTE
from profkit.analyzers.vocabulary import HOST_PARTS, PART
from profkit.analyzers.waiting import exposed_waits
from profkit.traces import F64

from .devices import device_of
from .grid import change
from .noise import Noise, change_of_means
from .result import Change, RankChange
from .side import Side, cells_of, part_of

HOST = [PART[name] for name in HOST_PARTS]


def rank_changes(a: Side, b: Side, tokens: tuple[float, float]) -> tuple[RankChange, ...]:
    """Each rank that both sides have; waiting and transfer are ``None`` where they cannot be told apart."""
    known = a.matched.known and b.matched.known and bool(a.steps and b.steps)
    shared = [(x, y) for x in a.devices() if (y := device_of(b, a.ranks[x])) is not None]
    if not shared:
        return ()
    tables = [(_rank_columns(a, x, known), _rank_columns(b, y, known)) for x, y in shared]
    noise = Noise.join([change_of_means(*both, tokens) for both in tables])
    significant = noise.significant()
    means = [np.concatenate([both[side].mean(axis=0) / tokens[side] for both in tables]) for side in (0, 1)]

    def of(place: int) -> Change:
        return change(float(means[0][place]), float(means[1][place]), noise, place, significant)

    width = len(noise.delta) // len(shared)
    return tuple(
        RankChange(
            rank=a.ranks[x],
            wall=of(place * width),
            host=of(place * width + 1),
            compute=of(place * width + 2),
            waiting=of(place * width + 3) if known else None,
            transfer=of(place * width + 4) if known else None,
        )
        for place, (x, _) in enumerate(shared)
    )


def _rank_columns(side: Side, device: int, known: bool) -> F64:
    """Wall time, host gaps and computing of each step; where ``known``, waiting that nothing hides, and transfer."""
    wall = np.diff(side.bounds(device)).astype(np.float64)
    cells = cells_of(side, device)
    part = part_of(cells.codes)
    columns = [wall, *(cells.table[:, np.isin(part, codes)].sum(axis=1) for codes in (HOST, [COMPUTE]))]
    if known:
        own = side.matched.instances[device]
        paired = own.skew >= 0
        step = side.places(device, own.row[paired])
        exposed = exposed_waits(side.attribution, device, own)
        transfer = own.end - own.start - own.skew
        columns += [np.bincount(step, weights=ns[paired], minlength=len(wall)) for ns in (exposed, transfer)]
    return np.stack(columns, axis=1)
