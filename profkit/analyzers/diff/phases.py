"""The phases of a comparison: the target's forward is one phase where one side decodes plainly and the other drafts."""

from __future__ import annotations

import numpy as np

from profkit.analyzers.result import Cycle
from profkit.analyzers.vocabulary import PHASE, PHASES
from profkit.traces import I64

TARGET = len(PHASES)
"""Stands for ``decode`` and ``verify`` together."""

NAMES = (*PHASES, "target")
FORWARDS = ("decode", "verify")


def one_target(a: Cycle, b: Cycle) -> bool:
    """Whether one of the two decodes plainly and the other speculates."""
    return {a.kind, b.kind} == {"plain", "speculative"}


def merged(phase: I64, one: bool) -> I64:
    """``phase`` with ``TARGET`` for plain decoding and verifying if they are ``one`` phase."""
    return np.where(np.isin(phase, [PHASE[name] for name in FORWARDS]), TARGET, phase) if one else phase
