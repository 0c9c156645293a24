"""Step times of a played model, and how far chance moves their median."""

from __future__ import annotations

import numpy as np

from profkit.traces import F64, I64

from ..arrays import distinct
from .model import Work

SEED = 7
SAMPLES = 1_000


def periods(work: Work, start: I64) -> F64:
    """From each step's first op to the next one's, in ns, of each device with steps: shape (devices, periods).

    Only steps that all these devices have, and the next one too.
    """
    mine = np.flatnonzero(work.step >= 0)
    devices = distinct(work.device[mine])
    steps = int(work.step.max(initial=-1)) + 1
    first = np.full((len(devices), steps), np.inf)
    np.minimum.at(first, (np.searchsorted(devices, work.device[mine]), work.step[mine]), start[mine])
    both = np.isfinite(first).all(axis=0)
    found: F64 = (first[:, 1:] - np.where(both, first, 0)[:, :-1])[:, both[1:] & both[:-1]]
    return found


def step_ns(found: F64) -> int:
    """The median period of the slowest device, in ns."""
    return int(np.median(found, axis=1).max())


def bootstrap(found: F64) -> int:
    """Half the width of the 95 % interval of ``step_ns`` when steps are drawn again, in ns."""
    drawn = np.random.default_rng(SEED).integers(found.shape[1], size=(SAMPLES, found.shape[1]))
    medians = np.median(found[:, drawn], axis=2).max(axis=0)
    low, high = np.percentile(medians, [2.5, 97.5])
    return int((high - low) / 2)
