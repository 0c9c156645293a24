"""Which ops wait for an op of another stream: recordings show that a stream is told to wait, but not for what."""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, Bools, Index

from ..arrays import distinct
from ..attribution import Attribution
from ..owners import pair_keys
from .model import NONE

AT_ONCE = 40_000
"""An op that starts so soon after one of another stream, and long after it could have, waited for it."""


def told_to_wait(attribution: Attribution, row: Index, lane: I64, start: I64, end: I64) -> I64:
    """For each op, the op of another lane that its lane was told to wait for just before its launch, or ``NONE``.

    That is the last op its thread launched before, where ``cudaStreamWaitEvent`` came between the two. ``row`` are rows
    of ``trace.ops``; ``lane``, ``start`` and ``end`` are in the same order.
    """
    launches, strings = attribution.trace.launches, attribution.trace.strings
    after = np.full(len(row), NONE, np.int64)
    call = attribution.launch[row]
    known = np.flatnonzero(call >= 0)
    named = np.array(["StreamWaitEvent" in text for text in strings] or [False])
    waits = np.flatnonzero(named[launches.api]) if len(launches) else np.empty(0, np.intp)
    if not len(waits) or not len(known):
        return after
    called, waited = pair_keys(
        (launches.pid[call[known]], launches.tid[call[known]]), (launches.pid[waits], launches.tid[waits])
    )
    order = np.lexsort((start[known], launches.start[call[known]], called))
    op, thread = known[order], called[order]
    before, behind = op[:-1], op[1:]
    switches = np.flatnonzero(
        (thread[1:] == thread[:-1]) & (lane[before] != lane[behind]) & (end[before] <= start[behind])
    )
    for number in distinct(thread[switches]):
        own = np.sort(launches.start[waits[waited == number]])
        mine = switches[thread[switches] == number]
        counts = [np.searchsorted(own, launches.start[call[side[mine]]]) for side in (before, behind)]
        told = mine[counts[1] > counts[0]]
        after[behind[told]] = before[told]
    return after


def starts_behind(device: I64, lane: I64, start: I64, end: I64, late: Bools) -> I64:
    """For each op that is ``late``, the op of another lane of its device that ended just before it, or ``NONE``."""
    after = np.full(len(lane), NONE, np.int64)
    for number in distinct(device):
        mine = np.flatnonzero(device == number)
        if len(distinct(lane[mine])) < 2:
            continue
        ended = mine[np.argsort(end[mine], kind="stable")]
        asked = mine[late[mine]]
        place = np.searchsorted(end[ended], start[asked], "right") - 1
        cause = ended[np.maximum(place, 0)]
        waits = (place >= 0) & (lane[cause] != lane[asked]) & (start[asked] - end[cause] <= AT_ONCE)
        after[asked[waits]] = cause[waits]
    return after
