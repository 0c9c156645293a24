"""Where the host holds a step back, so that what a lever does on the GPU is not seen in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..replay.model import Model
from ..replay.pace import pace_at
from ..replay.steps import periods, step_ns
from ..replay.transform import scaled_hosts
from ..step_cost import step_cost
from .case import Case
from .changes import Change

SEEN = 0.5
"""A lever of which less than this share is seen is held back by the host."""

MINOR = 0.005
"""What moves the step of a host that takes no time by less than this share is not hidden by another one."""

HELD = "held back by the host as recorded"


@dataclass(frozen=True, slots=True)
class Host:
    """How fast the host may be at most, relative to the recording, and why."""

    pace: float
    said: str

    def sped_up(self, model: Model) -> Model:
        """The model with such a host."""
        return _hosts(model, self.pace)


def held_back(case: Case, changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes on the GPU that the host hides: each by itself, or, where none is, all together.

    Graphs are another host: what it hides is told with them.
    """
    on_gpu = [one for one in changes if one.on_gpu]
    anew = [one for one in changes if one.low.least]
    alone = tuple(one for one in on_gpu if _hidden(case, anew, [*anew, one]))
    if alone or len(on_gpu) < 2:
        return alone
    return tuple(on_gpu) if _hidden(case, [one for one in changes if not one.on_gpu], changes) else ()


def fastest_host(case: Case) -> Host:
    """The host without what recording may have cost at most, where that was measured; else one that takes no time."""
    cost = step_cost(case.attribution.trace, case.cycle)
    if cost is None or cost.measured is None:
        return Host(0.0, f"{HELD}; at the lower bound the host takes no time (what recording cost is not known)")
    ratio, recorded = max(cost.ratios[1], 1.0), step_ns(periods(case.model.work, case.start))
    most = f"recording made a step at most {ratio:.2f} times as long"
    pace = pace_at(case.model, recorded / ratio, recorded, case.player) if ratio > 1 else 1.0
    if pace is None:
        return Host(0.0, f"{HELD}; at the lower bound the host takes no time: {most}, which no pace of it explains")
    return Host(pace, f"{HELD}; at the lower bound the host takes {pace:.2f} times as long: {most}")


def _hidden(case: Case, before: Sequence[Change], after: Sequence[Change]) -> bool:
    first, then = _usually(case, before), _usually(case, after)
    free = partial(_hosts, pace=0.0)
    seen, there = _step(case, then) - _step(case, first), _step(case, free(then)) - _step(case, free(first))
    return abs(there) >= MINOR * _step(case, free(first)) and abs(seen) < SEEN * abs(there)


def _usually(case: Case, changes: Sequence[Change]) -> Model:
    model = case.model
    for one in changes:
        model = one.usual.change(model)
    return model


def _step(case: Case, model: Model) -> int:
    return step_ns(periods(model.work, case.played(model)))


def _hosts(model: Model, pace: float) -> Model:
    return scaled_hosts(model, np.full(int(model.calls.thread.max(initial=-1)) + 1, pace))
