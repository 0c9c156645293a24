"""The phases of a comparison: what only one of the two sides tells apart is one phase on both.

The target's forward is one phase where one side decodes plainly and the other drafts; what follows the forwards is one
where the phases of only one side are inferred.
"""

from __future__ import annotations

import numpy as np

from profkit.analyzers.result import Cycle
from profkit.analyzers.vocabulary import PHASE, PHASES
from profkit.traces import I64

NAMES = (*PHASES, "target", "rest")
JOINED = {"target": ("decode", "verify"), "rest": ("accept", "kv_append", "step_other")}
"""Phases that stand for several."""

APART: I64 = np.arange(len(NAMES))
"""Each phase by itself."""


def joining(a: Cycle, b: Cycle) -> I64:
    """The phase that stands for each phase, by code, in a comparison of ``a`` with ``b``."""
    phases = APART.copy()
    joined = {"target": {a.kind, b.kind} == {"plain", "speculative"}, "rest": a.phases_inferred != b.phases_inferred}
    for name in (name for name, holds in joined.items() if holds):
        phases[[PHASE[part] for part in JOINED[name]]] = NAMES.index(name)
    return phases
