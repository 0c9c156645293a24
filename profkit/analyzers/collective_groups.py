"""Which collectives are matched apart: those of one rule and communicator are a group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN

from .attribution import Attribution
from .steps import spans_at
from .vocabulary import CLASS


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """What is matched apart: a code per op, ``UNKNOWN`` for what is no collective or has no partner.

    ``rule`` and ``communicator`` (a string id, or ``UNKNOWN``) are those of each code.
    """

    code: I64
    rule: I64
    communicator: I64

    @classmethod
    def of(cls, attribution: Attribution) -> Groups:
        """The groups of the collectives of a trace, by rule and communicator."""
        paired = np.array([rule.paired for rule in attribution.collective_rules] or [False])
        rule = attribution.collective
        rows = np.flatnonzero((rule >= 0) & paired[np.maximum(rule, 0)])
        many = len(attribution.trace.strings) + 1
        both = rule[rows].astype(np.int64) * many + communicators(attribution)[rows] + 1
        distinct, place = np.unique(both, return_inverse=True)
        code = np.full(len(rule), UNKNOWN, np.int64)
        code[rows] = place
        return cls(code, distinct // many, distinct % many - 1)


def communicators(attribution: Attribution) -> I64:
    """The communicator (a string id) of each op's collective call, or ``UNKNOWN``."""
    call = call_of_op(attribution)
    comm = attribution.trace.collective_calls.comm
    return np.where(call >= 0, comm[np.maximum(call, 0)], UNKNOWN) if len(comm) else call


def call_of_op(attribution: Attribution) -> I64:
    """The row of ``trace.collective_calls`` in which each collective op was launched, or ``UNKNOWN``."""
    calls, launches = attribution.trace.collective_calls, attribution.trace.launches
    call = np.full(len(attribution.launch), UNKNOWN, np.int64)
    asked = np.flatnonzero((attribution.kernel_class == CLASS["collective"]) & (attribution.launch >= 0))
    if not len(calls) or not len(asked):
        return call

    launch = attribution.launch[asked]
    end = np.maximum(calls.end, calls.start + 1)
    call[asked] = spans_at(
        calls.pid, calls.tid, calls.start, end, launches.pid[launch], launches.tid[launch], launches.start[launch]
    )
    return call
