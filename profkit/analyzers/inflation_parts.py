"""How the time that recording costs is taken out of the parts of a step, in integer nanoseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Bools

from .attribution import Attribution
from .collectives import blame, exposed_collectives
from .cycle import DeviceSteps, device_steps
from .intervals import union_length
from .matching import MatchedCollectives
from .vocabulary import HOST_PARTS, PART, PARTS, PHASE, PHASES

LENGTHENED = (*HOST_PARTS, "gap_in_graph", "gap_queue")
"""Parts that recording lengthens: host time around each call and range, and GPU time between two ops."""

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


def without_excess(recorded: Sequence[int], first: Sequence[Sequence[int]], target: int) -> list[int]:
    """``recorded`` cells less what they exceed ``target`` by: what each of ``first`` holds goes before the next.

    What is still left to take comes from all cells alike. Cells that sum to no more than ``target`` stay.
    """
    left = list(recorded)
    for amounts in (*first, left):
        excess = sum(left) - target
        if excess <= 0:
            break
        available = [min(amount, rest) for amount, rest in zip(amounts, left, strict=True)]
        taken = apportioned(min(excess, sum(available)), available)
        left = [rest - one for rest, one in zip(left, taken, strict=True)]
    return left


@dataclass(frozen=True, slots=True)
class Spread:
    """What a step as recorded, of which ``lengthened`` ns are longer by their nature, may be without a recorder.

    It is between ``low`` and ``high`` ns then, and at one end each part of it is too.
    """

    recorded: int
    lengthened: int
    low: int
    high: int

    def of(self, recorded: int, lengthened: int) -> tuple[int, int]:
        """The least and the most of a part: what lengthened parts give is split anyhow, or all parts give alike."""
        least = recorded - min(lengthened, self._excess(self.low)) - self._forced(recorded - lengthened, self.low)
        others = self.lengthened - lengthened
        given = min(lengthened, max(self._excess(self.high) - others, 0))
        most = recorded - given - self._forced(recorded - lengthened, self.high)
        whole = max(self.recorded, 1)
        alike = recorded * self.low // whole, -(-recorded * self.high // whole)
        return min(math.floor(least), alike[0]), max(math.ceil(most), alike[1])

    def _excess(self, target: int) -> int:
        return max(self.recorded - target, 0)

    def _forced(self, fixed: int, target: int) -> float:
        """What a part must give of its ``fixed`` ns because all lengthened ones together are too short."""
        missing = max(self._excess(target) - self.lengthened, 0)
        return fixed * missing / max(self.recorded - self.lengthened, 1)


@dataclass(frozen=True, slots=True, eq=False)
class MiddleStep:
    """The mean of the steps in the middle of a device's periods: ``cells`` of shape (parts, phases) sum to the period.

    ``ops`` (how many) and ``unions`` (ns) are by phase, per step.
    """

    cells: I64
    ops: dict[str, int]
    unions: dict[str, int]


def middle_step(attribution: Attribution, device: int, period: int) -> MiddleStep:
    """The middle half of the steps, those with a prefill left out where there are others, at the length ``period``."""
    steps = device_steps(attribution, device)
    table = attribution.devices[device].totals_of(steps.first_op[:-1], steps.first_op[1:])
    plain = table[:, :, PHASE["prefill"]].sum(axis=1) == 0
    kept = plain if plain.any() else np.ones(len(plain), np.bool_)
    low = np.quantile(steps.periods[kept], MIDDLE[0], method="lower")
    high = np.quantile(steps.periods[kept], MIDDLE[1], method="higher")
    kept = kept & (steps.periods >= low) & (steps.periods <= high)
    cells = np.array(apportioned(period, table[kept].sum(axis=0).ravel().tolist()), np.int64)
    ops = _ops(attribution, device, steps)
    unions = _unions(attribution, device, steps.row[:-1][kept], period / max(int(steps.periods[kept].sum()), 1))
    return MiddleStep(cells.reshape(len(PARTS), len(PHASES)), ops, unions)


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


def _unions(attribution: Attribution, device: int, row: I64, per_step: float) -> dict[str, int]:
    """The union of each phase's ops in the steps ``row``, times ``per_step``."""
    ops = attribution.trace.ops
    own = _decode_ops(attribution, device) & np.isin(attribution.step, row)
    found = {}
    for code, name in enumerate(PHASES):
        mine = own & (attribution.phase == code)
        if mine.any():
            found[name] = round(union_length(ops.start[mine], ops.end[mine]) * per_step)
    return found


def lengthened(attribution: Attribution, matched: MatchedCollectives, device: int, cells: I64) -> I64:
    """How much of each of ``cells`` (parts, phases) recording makes longer by its nature.

    Of collectives that is the waiting for what the last rank does in such parts.
    """
    found = np.zeros_like(cells)
    codes = [PART[name] for name in LENGTHENED]
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
