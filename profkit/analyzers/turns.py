"""Ranks that make each other wait in turn: none of them alone is slow, and what each costs alone is not the whole."""

from __future__ import annotations

from collections.abc import Sequence

from .result import Cause
from .view import View
from .words import a_duration, duration, in_phase, launching, listed

MOST_OF_ONE = 0.6
"""Where one rank costs a larger share of what all cost, it is at fault and not their turns."""

TAKES_PART = 0.1
"""Share of what all cost from which a rank counts among those that take turns."""

WHY = {
    "straggler_host": "their hosts are late (mostly {launching})",
    "straggler_compute": "their GPUs work longer (mostly {phase})",
}
ADVICE = "balance experts and sequences over the ranks, as none of them alone makes up most of it"


def in_turn(view: View, causes: Sequence[Cause]) -> list[Cause]:
    """``causes`` of single ranks, those of ranks that take turns as one."""
    turns = [kind for kind in WHY if _take_turns([cause for cause in causes if _is(cause, kind)])]
    rest = [cause for cause in causes if not any(_is(cause, kind) for kind in turns)]
    return [*rest, *(_together(view, [cause for cause in causes if _is(cause, kind)]) for kind in turns)]


def _is(cause: Cause, kind: str) -> bool:
    """Work of other processes, and copies, are a rank's own."""
    own = kind == "straggler_compute" and (cause.phase == "outside" or cause.part == "copy")
    return cause.cause == kind and not own


def _take_turns(causes: Sequence[Cause]) -> bool:
    costs = [cause.ns_per_step for cause in causes]
    return len(costs) > 1 and max(costs) <= MOST_OF_ONE * sum(costs)


def _together(view: View, causes: Sequence[Cause]) -> Cause:
    cost = sum(cause.ns_per_step for cause in causes)
    most = max(causes, key=lambda cause: cause.ns_per_step)
    ranks = sorted(c.rank for c in causes if c.rank is not None and c.ns_per_step >= TAKES_PART * cost)
    phase = most.phase or "step_other"
    why = WHY[most.cause].format(launching=launching(phase), phase=in_phase(phase))
    who = f"ranks {listed([str(rank) for rank in ranks])}" if 1 < len(ranks) <= 3 else f"{len(causes)} ranks"
    advice = most.text.partition(": ")[2] if most.cause == "straggler_host" else ADVICE
    text = (
        f"{who} hold the others up in turn, {duration(cost)} of {a_duration(view.step_ns)} step in all and at most "
        f"{duration(most.ns_per_step)} by one of them, because {why}: {advice}"
    )
    return Cause(most.cause, None, most.phase, most.part, cost, text)
