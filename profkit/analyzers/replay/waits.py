"""What blocking calls wait for. Recordings do not say; what had ended when a call returned does."""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, Bools, Index, OpKind

from ..attribution import Attribution
from .model import NONE, Work

RETURNED = 5_000
"""A call that waits for an op returns no sooner than this many nanoseconds before the op's recorded end: clocks."""

QUICK = 10_000
"""A blocking call takes at most so long where it finds the work done."""

SAME_STEP, EARLIER_STEPS = 0, (1, 2)
ALMOST_ALL = 0.95

UNHEARD = "what the blocking calls wait for cannot be told, so they are taken to last as recorded"


def awaited_ops(
    attribution: Attribution, rows: Index, blocking: Bools, step: I64, thread: I64, work: Work, end: I64
) -> tuple[I64, tuple[str, ...]]:
    """For each call, the op (a row of ``work``) that it waits for, or ``NONE``; and how that was found, in words.

    A call that owns ops waits for the last of them; a stream or device synchronisation for the last op that its thread
    launched; an event synchronisation for the last copy to the host (op, if there is none) of its own step, where one
    is seen to last until then, or else of the nearest earlier step where it had ended whenever such a call returned.
    """
    launches, strings = attribution.trace.launches, attribution.trace.strings
    last = _last_op(work.call, len(rows))
    latest = _latest(np.where(last >= 0, np.arange(len(rows)), NONE), thread)
    returned = launches.end[rows] + RETURNED
    events = np.array(["event" in text.lower() for text in strings] or [False])[launches.api[rows]] & blocking
    simple = np.flatnonzero(blocking & ~events)
    call = latest[simple]
    found = np.where(call >= 0, last[np.maximum(call, 0)], NONE) if len(last) else call
    awaited = np.full(len(rows), NONE, np.int64)
    ended = (found >= 0) & (end[np.maximum(found, 0)] <= returned[simple]) if len(end) else found >= 0
    awaited[simple[ended]] = found[ended]
    asked = np.flatnonzero(events)
    if not len(asked):
        return awaited, ()
    results = _result_calls(attribution, work, last)
    start = launches.start[rows[asked]]
    for back in (SAME_STEP, *EARLIER_STEPS):
        op = _results_before(asked, results, step, thread, last, back)
        done = end[np.maximum(op, 0)] <= returned[asked]
        blocked = bool(np.any((op >= 0) & done & (end[np.maximum(op, 0)] > start + QUICK)))
        fits = bool(np.any(op >= 0)) and float(np.mean(done[op >= 0])) >= ALMOST_ALL
        # Engines that wait for a step right after launching it have no use for an event.
        if fits and (blocked or back != SAME_STEP):
            awaited[asked] = np.where((op >= 0) & done, op, NONE)
            return awaited, (_said(back, blocked),)
    return awaited, (UNHEARD,)


def blocking_columns(start: I64, end: I64, awaited: I64, op_end: I64) -> tuple[I64, I64]:
    """How long each call takes by itself, and how long after its op it returns."""
    duration, wake = end - start, np.zeros(len(start), np.int64)
    blocks = np.flatnonzero(awaited >= 0)
    ended = op_end[awaited[blocks]]
    blocked = ended > start[blocks]
    own = duration[blocks]
    duration[blocks] = np.where(blocked, np.minimum(own, QUICK), own)
    since = end[blocks] - ended
    wake[blocks] = np.where(blocked, since, np.minimum(since, QUICK))
    return duration, wake


def _said(back: int, blocked: bool) -> str:
    whose = ("the same step", "the step before", "the last step but one")[back]
    seen = "" if blocked else ", though none of them had to wait long in the recording"
    return f"event synchronisations wait for the last result that {whose} copies to the host{seen}"


def _last_op(call: I64, calls: int) -> I64:
    """The last op of each call."""
    last = np.full(calls, NONE, np.int64)
    launched = np.flatnonzero(call >= 0)
    np.maximum.at(last, call[launched], launched)
    return last


def _latest(value: I64, thread: I64) -> I64:
    """The largest value so far on the same thread, this row's included."""
    if not len(value):
        return value
    lift = thread * (len(value) + 2)
    found: I64 = np.maximum.accumulate(value + lift) - lift
    return np.maximum(found, NONE)


def _result_calls(attribution: Attribution, work: Work, last: I64) -> Bools:
    """Which calls copy to the host; where none does, which launch anything."""
    ops, strings = attribution.trace.ops, attribution.trace.strings
    to_host = np.array(["dtoh" in text.lower() for text in strings] or [False])
    copies = (ops.kind[work.row] == OpKind.MEMCPY) & to_host[ops.name[work.row]] & (work.call >= 0)
    found = np.zeros(len(last), np.bool_)
    found[work.call[copies]] = True
    return found if found.any() else last >= 0


def _results_before(asked: Index, results: Bools, step: I64, thread: I64, last: I64, back: int) -> I64:
    """The op of the last result before each call of ``asked`` that was launched at least ``back`` steps earlier."""
    rows = np.flatnonzero(results)
    if not len(rows):
        return np.full(len(asked), NONE, np.int64)
    # Rows are ordered by thread, and the steps of a thread ascend.
    place = thread * (int(step.max(initial=0)) + 2) + step + 1
    behind = np.searchsorted(place, place[asked] - back, "right")
    found = rows[np.maximum(np.searchsorted(rows, np.minimum(behind, asked)) - 1, 0)]
    there = (found < np.minimum(behind, asked)) & (thread[found] == thread[asked]) & (step[asked] >= back)
    return np.where(there, last[found], NONE)
