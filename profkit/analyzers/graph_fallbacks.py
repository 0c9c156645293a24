"""Fallbacks to eager: steps in which a phase, or a part of it, ran without the graphs that it has in others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN, Bools

from .arrays import distinct
from .attribution import Attribution
from .cycle import DeviceSteps, device_steps
from .graph_launches import decode_rows, in_graph
from .graph_result import Fallback
from .owners import pair_keys
from .vocabulary import PHASE, PHASES

FORWARDS = ("draft", "verify", "decode")
"""The phases that engines capture graphs of."""

MIN_MOVED = 0.02
"""Share of the ops that a phase usually has in graphs, of which a step must lack as many for a fallback of a part."""


@dataclass(frozen=True, slots=True, eq=False)
class PhaseSteps:
    """Ops of each phase in each step, inside and outside of graphs: arrays of shape (phases, steps).

    ``wall`` is from a step's first op to the next step's, ``UNKNOWN`` where something else comes between them, and
    for the last step, which nothing ends; ``batch_size`` is ``UNKNOWN`` where no label says.
    """

    inside: I64
    outside: I64
    wall: I64
    batch_size: I64

    @classmethod
    def of(cls, attribution: Attribution, device: int) -> PhaseSteps:
        """The decode steps of ``device`` in order of their first op."""
        steps = device_steps(attribution, device)
        place = np.zeros(len(attribution.plan.steps), np.int64)
        place[steps.row] = np.arange(len(steps.row))
        rows = decode_rows(attribution, device)
        cell = attribution.phase[rows].astype(np.int64) * len(steps.row) + place[attribution.step[rows]]
        graphs = in_graph(attribution, rows)

        def counted(these: Bools) -> I64:
            shape = (len(PHASES), len(steps.row))
            return np.bincount(cell[these], minlength=shape[0] * shape[1]).astype(np.int64).reshape(shape)

        batch_size = attribution.plan.steps.batch_size[steps.row]
        return cls(counted(graphs), counted(~graphs), step_walls(attribution, device, steps), batch_size)

    @property
    def graphed(self) -> Bools:
        """Whether a phase ran in a graph, at least in part."""
        return self.inside > 0

    @property
    def fell(self) -> Bools:
        """Whether a phase that has graphs ran without any."""
        ran = (self.inside > 0) | (self.outside > 0)
        fell: Bools = ran & ~self.graphed & self.graphed.any(axis=1, keepdims=True)
        return fell

    @property
    def fell_in_part(self) -> Bools:
        """Whether ops that a phase usually has in graphs ran outside of them, beside others that ran inside.

        What is missing inside must at least by half have come outside: a smaller graph alone is no fallback.
        """
        fell = np.zeros(self.inside.shape, np.bool_)
        for code in np.flatnonzero(self.graphed.any(axis=1)).tolist():
            inside, outside, graphed = self.inside[code], self.outside[code], self.graphed[code]
            missing = np.median(inside[graphed]) - inside
            moved = outside - np.median(outside[graphed & (missing <= 0)])
            enough = missing > MIN_MOVED * np.median(inside[graphed])
            fell[code] = graphed & enough & (moved > 0) & (moved >= missing / 2)
        return fell

    def extra(self, these: Bools, others: Bools) -> int | None:
        """The median wall time of some steps minus that of others, of those whose wall is known."""
        known = self.wall >= 0
        if not np.any(these & known) or not np.any(others & known):
            return None
        return int(np.median(self.wall[these & known])) - int(np.median(self.wall[others & known]))


def step_walls(attribution: Attribution, device: int, steps: DeviceSteps) -> I64:
    """From each step's first op to the next one's, where no other step and no prefill is between them."""
    wall = np.full(len(steps.row), UNKNOWN, np.int64)
    if len(wall) < 2:
        return wall
    plan, ops = attribution.plan.steps, attribution.trace.ops
    prefill = np.sort(ops.start[(ops.device == device) & (attribution.phase == PHASE["prefill"])])
    interrupted = np.diff(np.searchsorted(prefill, steps.first_op)) > 0
    (thread,) = pair_keys((plan.pid, plan.tid))
    other = np.ones(len(plan), np.bool_)
    other[steps.row] = False
    for one in distinct(thread[steps.row]).tolist():
        between = np.sort(plan.start[other & (thread == one)])
        seen = np.searchsorted(between, plan.start[steps.row])
        interrupted |= (thread[steps.row[:-1]] == one) & (np.diff(seen) > 0)
    wall[:-1] = np.where(interrupted, UNKNOWN, steps.periods)
    return wall


def fallbacks(steps: PhaseSteps, known: bool) -> tuple[Fallback, ...]:
    """The fallbacks by phase, whole ones before those of a part; without ``known`` steps are missing.

    Then walls say nothing.
    """
    fell, in_part = steps.fell, steps.fell_in_part
    rows = []
    for code in np.flatnonzero(np.any(fell | in_part, axis=1)).tolist():
        usual = steps.graphed[code] & ~in_part[code]
        for these, partial in ((fell[code], False), (in_part[code], True)):
            if these.any():
                rows.append(
                    Fallback(
                        phase=PHASES[code],
                        steps=tuple(np.flatnonzero(these).tolist()),
                        batch_sizes=tuple(size if size >= 0 else None for size in steps.batch_size[these].tolist()),
                        extra_ns=steps.extra(these, usual) if known else None,
                        partial=partial,
                    )
                )
    return tuple(rows)


def fallback_ns(steps: PhaseSteps, known: bool) -> int | None:
    """What all fallbacks cost together: how much longer their steps took than steps without any, times their number.

    A step counts once, however many of its phases fell back.
    """
    these: Bools = np.any(steps.fell | steps.fell_in_part, axis=0)
    if not these.any():
        return 0
    extra = steps.extra(these, ~these) if known else None
    return None if extra is None else extra * int(these.sum())


def eager_phases(steps: PhaseSteps) -> tuple[str, ...]:
    """The forward phases that never ran in a graph though another one did."""
    graphed: Bools = np.any(steps.graphed, axis=1)
    forwards = [PHASE[name] for name in FORWARDS]
    if not graphed[forwards].any():
        return ()
    return tuple(PHASES[code] for code in forwards if steps.outside[code].any() and not graphed[code])
