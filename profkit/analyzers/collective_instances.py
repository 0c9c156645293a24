"""The collectives of the decode steps of one device, as they are matched over ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN, Index

from .arrays import occurring
from .attribution import Attribution
from .vocabulary import CLASS


@dataclass(frozen=True, slots=True, eq=False)
class Instances:
    """Collectives of the decode steps of one device, in order of start.

    ``row`` is the op; ``skew`` is ``UNKNOWN`` where the instance has no partner; ``last`` is the device that all
    waited for, ``UNKNOWN`` likewise.
    """

    row: Index
    step: I64
    start: I64
    end: I64
    skew: I64
    last: I64


def instances_of(attribution: Attribution, device: int, number: I64) -> Instances:
    """Those of ``device``, not matched yet, from the step number of every op."""
    ops = attribution.trace.ops
    row = np.flatnonzero((number >= 0) & (attribution.kernel_class == CLASS["collective"]))
    row = row[np.argsort(ops.start[row], kind="stable")]
    unknown = np.full(len(row), UNKNOWN, np.int64)
    return Instances(row, number[row], ops.start[row], ops.end[row], unknown, unknown)


def told_steps(own: Instances, steps: int) -> int:
    """Of the ``steps`` of a device, those whose waiting is told from transfer: not those without any partner."""
    alone = occurring(own.step[own.skew == UNKNOWN])
    paired = occurring(own.step[own.skew != UNKNOWN])
    return max(steps - len(np.setdiff1d(alone, paired)), 1)
