"""Steps that take many times as long as the others: a mean step then is none that ever ran."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Index

from .attribution import Attribution
from .cycle import device_steps
from .graph_fallbacks import step_walls
from .partition import DeviceTimeline
from .vocabulary import PARTS
from .words import counted, duration, listed

FAR = 3
"""A step of so many times the median is an outlier,"""

MIN_EXCESS = 0.05
"""and told where all of them together make the steps longer by this share."""

MOST_SHARE = 0.25
"""Where more of the steps are long, they are no exception."""

MIN_ALIKE = 3
"""With fewer steps of its batch size nothing is usual for a step."""


@dataclass(frozen=True, slots=True)
class Outliers:
    """Steps of one device, counted from 0: how long each takes, the median, and of how many they are."""

    steps: tuple[int, ...]
    wall_ns: tuple[int, ...]
    median_ns: int
    of: int
    excess_ns: dict[str, int]
    """How much longer they take in each part than as many median steps."""

    @property
    def text(self) -> str:
        """``1 of 20 steps takes 41.8 ms (step 7, counted from 0), the median step 1.79 ms``."""
        shown = [str(step) for step in self.steps[:3]] + (["others"] if len(self.steps) > 3 else [])
        longest = duration(max(self.wall_ns))
        took = f"takes {longest} (step" if len(self.steps) == 1 else f"take up to {longest} (steps"
        of = f"{len(self.steps)} of {counted(self.of, 'step')}"
        return f"{of} {took} {listed(shown)}, counted from 0), the median step {duration(self.median_ns)}"


def outliers_of(attribution: Attribution, device: int) -> Outliers | None:
    """The outliers of ``device``, if they matter. Steps that a prefill follows are not judged.

    Each is compared with the other steps of its batch size.
    """
    steps = device_steps(attribution, device)
    wall = step_walls(attribution, device, steps)
    known = wall >= 0
    batch = attribution.plan.steps.batch_size[steps.row]
    usual = _usual_walls(wall, batch)
    far = np.flatnonzero(known & (usual > 0) & (wall > FAR * usual))
    excess = int((wall - usual)[far].sum())
    if not 0 < len(far) <= MOST_SHARE * known.sum() or excess < MIN_EXCESS * int(wall[known].sum()):
        return None
    parts = _excess_by_part(attribution.devices[device], steps.first_op, wall, batch, far)
    return Outliers(tuple(far.tolist()), tuple(wall[far].tolist()), int(np.median(usual[far])), len(wall), parts)


def _usual_walls(wall: I64, batch: I64) -> I64:
    """For each step the median of the steps of its batch size; 0 where there are fewer than ``MIN_ALIKE``."""
    usual = np.zeros(len(wall), np.int64)
    for size in np.unique(batch).tolist():
        alike = (batch == size) & (wall >= 0)
        if alike.sum() >= MIN_ALIKE:
            usual[batch == size] = int(np.median(wall[alike]))
    return usual


def _excess_by_part(timeline: DeviceTimeline, first_op: I64, wall: I64, batch: I64, far: Index) -> dict[str, int]:
    owner, segment, length = timeline.within(first_op, first_op + np.maximum(wall, 0))
    cell = owner * len(PARTS) + timeline.part[segment]
    spent = np.bincount(cell, weights=length, minlength=len(wall) * len(PARTS)).reshape(len(wall), len(PARTS))
    usual = {size: np.median(spent[(wall >= 0) & (batch == size)], axis=0) for size in np.unique(batch[far]).tolist()}
    longer = sum((spent[step] - usual[int(batch[step])] for step in far.tolist()), np.zeros(len(PARTS)))
    return {part: round(ns) for part, ns in zip(PARTS, longer.tolist(), strict=True)}
