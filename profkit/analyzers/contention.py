"""Transfers that take longer because memory copies use the link at the same time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN, OpKind

from .attribution import Attribution
from .intervals import covered_before, merge
from .matching import MatchedCollectives
from .vocabulary import CLASS, PHASES

MIN_OVERLAP = 0.2
"""A copy must run during so much of a transfer to count as its neighbour on the link."""

MIN_SLOWDOWN = 1.3
MIN_INSTANCES = 3


@dataclass(frozen=True, slots=True)
class Contention:
    """Transfers of the window beside copies: how many on one device, how much longer than those without, and where."""

    count: int
    excess_ns: int
    phase: str | None


def contended_transfer(attribution: Attribution, matched: MatchedCollectives) -> Contention:
    """Compare transfers with and without copies to or from the host, or between devices, running beside them.

    Like is compared with like: the same collective rule and phase. Of all devices the least excess counts.
    """
    found = [_on_device(attribution, matched, device) for device in matched.instances]
    return min(found, key=lambda contention: contention.excess_ns, default=Contention(0, 0, None))


def _copies(attribution: Attribution) -> tuple[I64, I64]:
    """When any device copies over a link, merged."""
    ops, strings = attribution.trace.ops, attribution.trace.strings
    over_link = np.array([("HtoD" in t or "DtoH" in t or "PtoP" in t) for t in strings] or [False])
    rows = np.flatnonzero(
        (ops.kind == OpKind.MEMCPY) & over_link[ops.name] & (attribution.kernel_class != CLASS["collective"])
    )
    return merge(ops.start[rows], ops.end[rows])


def _on_device(attribution: Attribution, matched: MatchedCollectives, device: int) -> Contention:
    own = matched.instances[device]
    start, end = own.start + np.maximum(own.skew, 0), own.end
    length = end - start
    copies = _copies(attribution)
    shared = covered_before(*copies, end) - covered_before(*copies, start)
    beside = (shared >= MIN_OVERLAP * length) & (length > 0) & (own.skew != UNKNOWN)
    count, excess, by_phase = 0, 0, np.zeros(len(PHASES), np.int64)
    group = attribution.collective[own.row].astype(np.int64) * len(PHASES) + attribution.phase[own.row]
    for code in np.unique(group[beside]).tolist():
        with_copies = length[beside & (group == code)]
        alone = length[~beside & (group == code) & (length > 0)]
        if min(len(with_copies), len(alone)) < MIN_INSTANCES:
            continue
        usual = int(np.median(alone))
        if np.median(with_copies) >= MIN_SLOWDOWN * usual:
            longer = int(np.maximum(with_copies - usual, 0).sum())
            count, excess = count + len(with_copies), excess + longer
            by_phase[code % len(PHASES)] += longer
    return Contention(count, excess, PHASES[int(np.argmax(by_phase))] if excess else None)
