"""Steps that take many times as long as the others: a mean step then is none that ever ran."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .attribution import Attribution
from .cycle import device_steps
from .graph_fallbacks import step_walls
from .words import counted, duration, listed

FAR = 3
"""A step of so many times the median is an outlier,"""

MIN_EXCESS = 0.05
"""and told where all of them together make the steps longer by this share."""

MOST_SHARE = 0.25
"""Where more of the steps are long, they are no exception."""


@dataclass(frozen=True, slots=True)
class Outliers:
    """Steps of one device, counted from 0: how long each takes, the median, and of how many they are."""

    steps: tuple[int, ...]
    wall_ns: tuple[int, ...]
    median_ns: int
    of: int

    @property
    def excess_ns(self) -> int:
        """How much longer they take than as many median steps."""
        return sum(self.wall_ns) - len(self.steps) * self.median_ns

    @property
    def text(self) -> str:
        """``1 of 20 steps takes 41.8 ms (step 7), the median step 1.79 ms``; steps are counted from 0."""
        shown = [str(step) for step in self.steps[:3]] + (["others"] if len(self.steps) > 3 else [])
        longest = duration(max(self.wall_ns))
        took = f"takes {longest} (step" if len(self.steps) == 1 else f"take up to {longest} (steps"
        of = f"{len(self.steps)} of {counted(self.of, 'step')}"
        return f"{of} {took} {listed(shown)}), the median step {duration(self.median_ns)}"


def outliers_of(attribution: Attribution, device: int) -> Outliers | None:
    """The outliers of ``device``, if they matter. Steps that a prefill follows are not judged."""
    steps = device_steps(attribution, device)
    wall = step_walls(attribution, device, steps)
    known = wall[wall >= 0]
    if not len(known):
        return None
    median = int(np.median(known))
    far = np.flatnonzero(wall > FAR * median)
    found = Outliers(tuple(far.tolist()), tuple(wall[far].tolist()), median, len(wall))
    few = 0 < len(far) <= MOST_SHARE * len(known)
    return found if few and found.excess_ns >= MIN_EXCESS * int(known.sum()) else None
