"""How the time that recording costs is taken out of the parts of a step, in integer nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Bools

from .attribution import Attribution
from .collectives import blame, exposed_collectives
from .cycle import DeviceSteps, device_steps
from .intervals import union_length
from .matching import MatchedCollectives
from .vocabulary import CLASS, HOST_PARTS, PART, PARTS, PHASE, PHASES

HOST_SHARE = 100
"""How many times as much recording lengthens host time as GPU time of the same length.

Eager, kernels take as long by every recorder, while host time differs by a factor of two (docs/inflation.md).
"""

MIDDLE = (0.25, 0.75)


def apportioned(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` in proportion to ``weights``, by largest remainder: it sums exactly, and no share exceeds its weight
    unless ``total`` exceeds their sum."""
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    shares = [divmod(total * weight, whole) for weight in weights]
    found = [quotient for quotient, _ in shares]
    order = sorted(range(len(shares)), key=lambda place: -shares[place][1])
    for place in order[: total - sum(found)]:
        found[place] += 1
    return found


def without_excess(
    recorded: Sequence[int], host: Sequence[int], target: int, most: Sequence[int] | None = None
) -> list[int]:
    """``recorded`` cells less what they exceed ``target`` by, in proportion to their size.

    Of each cell the part that is ``host`` time counts ``HOST_SHARE`` times. A cell gives at most what ``most`` says,
    unless all together cannot give as much: what it cannot give the others do. Cells that sum to no more than
    ``target`` stay.
    """
    left = list(recorded)
    able = list(recorded if most is None or sum(most) < sum(recorded) - target else most)
    while (excess := sum(left) - target) > 0:
        weights = [own if can else 0 for own, can in zip(_elastic(left, host), able, strict=True)]
        wanted = apportioned(excess, weights)
        given = [min(one, can, rest) for one, can, rest in zip(wanted, able, left, strict=True)]
        left = [rest - one for rest, one in zip(left, given, strict=True)]
        able = [can - one for can, one in zip(able, given, strict=True)]
    return left


def brought_to(target: int, cells: Sequence[int], host: Sequence[int]) -> list[int]:
    """``cells`` at the sum ``target``: what is amiss is mostly ``host`` time, as kernels hardly vary."""
    if sum(cells) >= target:
        return without_excess(cells, host, target)
    more = apportioned(target - sum(cells), _elastic(cells, host))
    return [own + one for own, one in zip(cells, more, strict=True)]


def _elastic(cells: Sequence[int], host: Sequence[int]) -> list[int]:
    return [min(late, own) * (HOST_SHARE - 1) + own for late, own in zip(host, cells, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class MiddleStep:
    """The mean of the steps in the middle of a device's periods: ``cells`` of shape (parts, phases) sum to it.

    ``ops`` (how many), ``unions`` and ``attention`` (ns: of all ops, of attention's alone) are by phase, per step.
    """

    cells: I64
    ops: dict[str, int]
    unions: dict[str, int]
    attention: dict[str, int]


def middle_step(attribution: Attribution, device: int) -> MiddleStep:
    """The middle half of the steps, those with a prefill left out where there are others."""
    steps = device_steps(attribution, device)
    table = attribution.devices[device].totals_of(steps.first_op[:-1], steps.first_op[1:])
    plain = table[:, :, PHASE["prefill"]].sum(axis=1) == 0
    kept = plain if plain.any() else np.ones(len(plain), np.bool_)
    low = np.quantile(steps.periods[kept], MIDDLE[0], method="lower")
    high = np.quantile(steps.periods[kept], MIDDLE[1], method="higher")
    kept = kept & (steps.periods >= low) & (steps.periods <= high)
    count, whole = int(kept.sum()), int(steps.periods[kept].sum())
    cells = np.array(apportioned(round(whole / count), table[kept].sum(axis=0).ravel().tolist()), np.int64)
    own = _decode_ops(attribution, device) & np.isin(attribution.step, steps.row[:-1][kept])
    return MiddleStep(
        cells.reshape(len(PARTS), len(PHASES)),
        _ops(attribution, device, steps),
        _unions(attribution, own, 1 / count),
        _unions(attribution, own & (attribution.kernel_class == CLASS["attention"]), 1 / count),
    )


def _decode_ops(attribution: Attribution, device: int) -> Bools:
    own: Bools = (attribution.trace.ops.device == device) & attribution.in_decode
    return own


def _ops(attribution: Attribution, device: int, steps: DeviceSteps) -> dict[str, int]:
    """The median over steps of the number of kernels, copies and memsets in each phase.

    Together, because a small copy inside a GPU is a copy to CUPTI and a kernel to the PyTorch profiler.
    """
    rows = np.flatnonzero(_decode_ops(attribution, device))
    place = np.full(len(attribution.plan.steps), -1)
    place[steps.row] = np.arange(len(steps.row))
    cell = place[attribution.step[rows]] * len(PHASES) + attribution.phase[rows]
    counts = np.bincount(cell, minlength=len(steps.row) * len(PHASES)).reshape(-1, len(PHASES))
    medians = np.median(counts, axis=0)
    return {name: round(float(medians[code])) for code, name in enumerate(PHASES) if medians[code]}


def _unions(attribution: Attribution, own: Bools, per_step: float) -> dict[str, int]:
    """The union of each phase's ops among ``own``, times ``per_step``."""
    ops = attribution.trace.ops
    found = {}
    for code, name in enumerate(PHASES):
        mine = own & (attribution.phase == code)
        if mine.any():
            found[name] = round(union_length(ops.start[mine], ops.end[mine]) * per_step)
    return found


def lengthened(attribution: Attribution, matched: MatchedCollectives, device: int, cells: I64) -> I64:
    """How much of each of ``cells`` (parts, phases) is time of a host, this rank's or that of another it waits for."""
    found = np.zeros_like(cells)
    codes = [PART[name] for name in HOST_PARTS]
    found[codes] = cells[codes]
    exposed = exposed_collectives(attribution, matched).get(device)
    window = attribution.devices[device].window_totals()
    if exposed is not None and window is not None:
        totals = sum(blame(attribution, matched, device).values(), np.zeros_like(cells))
        late = totals[codes].sum() / max(int(totals.sum()), 1)
        whole = np.maximum(window[PART["collective"]], 1)
        waiting = np.minimum(exposed.skew / whole, 1.0)
        found[PART["collective"]] = (cells[PART["collective"]] * waiting * late).astype(np.int64)
    return found
