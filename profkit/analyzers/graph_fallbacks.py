"""Fallbacks to eager: steps in which a phase ran without a graph though in other steps it ran in one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Bools

from .attribution import Attribution
from .cycle import device_steps
from .graph_launches import decode_rows, in_graph
from .graph_result import Fallback
from .vocabulary import PHASE, PHASES

FORWARDS = ("draft", "verify", "decode")
"""The phases that engines capture graphs of."""


@dataclass(frozen=True, slots=True, eq=False)
class PhaseSteps:
    """Whether each phase ran in each step, and ran in a graph: arrays of shape (phases, steps).

    ``wall`` is from a step's first op to the next step's, of the last one to the end of the window; ``batch_size``
    is ``UNKNOWN`` where no label says.
    """

    ran: Bools
    graphed: Bools
    wall: I64
    batch_size: I64

    @classmethod
    def of(cls, attribution: Attribution, device: int) -> PhaseSteps:
        """The decode steps of ``device`` in order of their first op."""
        steps = device_steps(attribution, device)
        end = attribution.devices[device].window_end or 0
        place = np.zeros(len(attribution.plan.steps), np.int64)
        place[steps.row] = np.arange(len(steps.row))
        rows = decode_rows(attribution, device)
        ran, graphed = (np.zeros((len(PHASES), len(steps.row)), np.bool_) for _ in range(2))
        ran[attribution.phase[rows], place[attribution.step[rows]]] = True
        inside = rows[in_graph(attribution, rows)]
        graphed[attribution.phase[inside], place[attribution.step[inside]]] = True
        wall = np.diff(np.append(steps.first_op, end)) if len(steps.row) else steps.first_op
        return cls(ran, graphed, wall, attribution.plan.steps.batch_size[steps.row])

    @property
    def fell(self) -> Bools:
        """Whether a phase that has graphs ran without one, by phase and step."""
        fell: Bools = self.ran & ~self.graphed & self.graphed.any(axis=1, keepdims=True)
        return fell

    def extra(self, these: Bools, others: Bools) -> int | None:
        """The median wall time of some steps minus that of others."""
        if not these.any() or not others.any():
            return None
        return int(np.median(self.wall[these])) - int(np.median(self.wall[others]))


def fallbacks(steps: PhaseSteps, known: bool) -> tuple[Fallback, ...]:
    """The fallbacks by phase; without ``known`` steps are missing, and walls say nothing."""
    rows = []
    for code in np.flatnonzero(np.any(steps.fell, axis=1)).tolist():
        these = steps.fell[code]
        rows.append(
            Fallback(
                phase=PHASES[code],
                steps=tuple(np.flatnonzero(these).tolist()),
                batch_sizes=tuple(size if size >= 0 else None for size in steps.batch_size[these].tolist()),
                extra_ns=steps.extra(these, steps.graphed[code]) if known else None,
            )
        )
    return tuple(rows)


def fallback_ns(steps: PhaseSteps, known: bool) -> int | None:
    """What all fallbacks cost together: how much longer their steps took than steps without any, times their number.

    A step counts once, however many of its phases fell back.
    """
    these: Bools = np.any(steps.fell, axis=0)
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
    return tuple(PHASES[code] for code in forwards if steps.ran[code].any() and not graphed[code])
