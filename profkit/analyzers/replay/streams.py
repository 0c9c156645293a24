"""Which ops wait for an op of another stream: recordings show that a stream is told to wait, but not for what."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.traces import I64, Bools, Index

from ..arrays import distinct
from ..attribution import Attribution
from ..owners import pair_keys
from .model import NONE

AT_ONCE = 40_000
"""An op that starts so soon after one of another stream, and long after it could have, waited for it."""


def told_to_wait(attribution: Attribution, row: Index, lane: I64, start: I64, end: I64) -> tuple[I64, I64]:
    """Which ops their lane was told to hold back until other lanes were done: the op, and what it waits for.

    Each ``cudaStreamWaitEvent`` joins one stream: the first op that a thread launches behind n such calls waits for the
    last ops of n other lanes, the latest first, of those that the thread has launched since the lane of this op was
    told to wait before. Ops that the recording shows it not to have waited for are left out.
    ``row`` are rows of ``trace.ops``; ``lane``, ``start`` and ``end`` are in the same order.
    """
    launches = attribution.trace.launches
    call = attribution.launch[row]
    known = np.flatnonzero(call >= 0)
    waits = wait_calls(attribution)
    pairs: list[tuple[int, int]] = []
    if len(waits) and len(known):
        called, waited = pair_keys(
            (launches.pid[call[known]], launches.tid[call[known]]), (launches.pid[waits], launches.tid[waits])
        )
        order = np.lexsort((start[known], launches.start[call[known]], called))
        op, thread = known[order], called[order]
        for number in distinct(waited):
            mine = op[thread == number]
            behind = np.searchsorted(np.sort(launches.start[waits[waited == number]]), launches.start[call[mine]])
            pairs += _joins(mine, lane[mine], start[mine], end[mine], np.diff(behind, prepend=0))
    told, on = np.array(pairs, np.int64).reshape(-1, 2).T
    return told, on


def _joins(op: Index, lane: I64, start: I64, end: I64, told: I64) -> Iterator[tuple[int, int]]:
    """Ops of a thread in order of launch, ``told[i]`` times told to wait: pairs of an op and one it waits for."""
    ended = end.tolist()
    last: dict[int, int] = {}
    joined: dict[int, int] = {}
    for place, (own, begun, calls) in enumerate(zip(lane.tolist(), start.tolist(), told.tolist(), strict=True)):
        if calls:
            since = joined.get(own, -1)
            others = sorted(there for other, there in last.items() if other != own and there > since)
            for there in [there for there in others if ended[there] <= begun][-calls:]:
                yield int(op[place]), int(op[there])
            joined[own] = place
        last[own] = place


def wait_calls(attribution: Attribution) -> Index:
    """The calls (rows of ``trace.launches``) that tell a stream to wait."""
    launches, strings = attribution.trace.launches, attribution.trace.strings
    named = np.array(["StreamWaitEvent" in text for text in strings] or [False])
    return np.flatnonzero(named[launches.api]) if len(launches) else np.empty(0, np.intp)


def recorded_order(group: I64, lane: I64, start: I64, end: I64) -> tuple[I64, I64]:
    """Within each group (``NONE``: none), the op of each other lane that ended last before an op started: both ops."""
    pairs = [np.empty((2, 0), np.int64)]
    for number in distinct(group[group != NONE]):
        mine = np.flatnonzero(group == number)
        lanes = distinct(lane[mine])
        for own, other in ((own, other) for own in lanes for other in lanes if own != other):
            asked, there = mine[lane[mine] == own], mine[lane[mine] == other]
            there = there[np.argsort(end[there], kind="stable")]
            place = np.searchsorted(end[there], start[asked], "right") - 1
            new = (place >= 0) & (np.diff(place, prepend=-1) != 0)
            pairs.append(np.stack([asked[new], there[place[new]]]))
    op, on = np.concatenate(pairs, axis=1)
    return op, on


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
