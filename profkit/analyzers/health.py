"""What must be known before any figure is believed; a failed check names the figures that it spoils."""

from __future__ import annotations

from .attribution import Attribution
from .health_ranks import checks_of_ranks
from .health_recording import checks_of_recording
from .health_steps import checks_of_steps
from .matching import MatchedCollectives
from .outliers import Outliers
from .result import Cycle, Health, Status

_SEVERITY: dict[Status, int] = {"ok": 0, "warn": 1, "abstain": 2}


def health_of(attribution: Attribution, matched: MatchedCollectives, cycle: Cycle, far: Outliers | None) -> Health:
    """All checks of a trace; ``far`` are the outliers of the slowest device."""
    checks = (
        *checks_of_recording(attribution),
        *checks_of_ranks(attribution, matched),
        *checks_of_steps(attribution, cycle, far),
    )
    worst = max((_SEVERITY[check.status] for check in checks), default=0)
    return Health(next(status for status, order in _SEVERITY.items() if order == worst), checks)
