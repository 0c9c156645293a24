"""Who owns an op: the launch call that enqueued it, and the range in which that call started."""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, UNKNOWN, Bools, Index, Launches, Ops, Ranges

from .arrays import distinct
from .intervals import latest_active


def pair_keys(*tables: tuple[I64, I64]) -> tuple[I64, ...]:
    """One int64 key per (pid, correlation) pair, comparable over all the given tables."""
    pids = distinct(np.concatenate([distinct(pid) for pid, _ in tables]))
    return tuple(_key(np.searchsorted(pids, pid), correlation) for pid, correlation in tables)


def _key(process: Index, correlation: I64) -> I64:
    # In place: these are the longest columns of a trace.
    key: I64 = process.astype(np.int64, copy=False)
    key <<= 44
    key |= correlation
    return key


def launch_of_op(ops: Ops, launches: Launches) -> I64:
    """The row of ``launches`` that enqueued each op, or ``UNKNOWN``.

    Joined on (pid, correlation): ranks reuse ids. Where two host rows carry one id (a runtime call and the
    driver call inside it), the one that starts first is the launch.
    """
    op_keys, launch_keys = pair_keys((ops.pid, ops.correlation), (launches.pid, launches.correlation))
    usable = np.flatnonzero(launches.correlation >= 0)
    order = usable[np.lexsort((launches.start[usable], launch_keys[usable]))]
    keys = launch_keys[order]
    if not len(keys):
        return np.full(len(ops), UNKNOWN, np.int64)
    row = np.minimum(np.searchsorted(keys, op_keys, "left"), len(keys) - 1)
    found = (keys[row] == op_keys) & (ops.correlation >= 0)
    return np.where(found, order[row], UNKNOWN)


def range_at(ranges: Ranges, eligible: Bools, pid: I64, tid: I64, time: I64) -> I64:
    """The innermost eligible range that is open on thread (pid, tid) at each ``time``, or ``UNKNOWN``.

    Ranges must be ordered by thread and start, as readers leave them.
    """
    owner = np.full(len(time), UNKNOWN, np.int64)
    rows = np.flatnonzero(eligible)
    if not len(rows) or not len(time):
        return owner
    range_thread, asked_thread = pair_keys((ranges.pid[rows], ranges.tid[rows]), (pid, tid))
    for thread in distinct(range_thread):
        mine = rows[range_thread == thread]
        asked = np.flatnonzero(asked_thread == thread)
        found = latest_active(ranges.start[mine], ranges.end[mine], time[asked])
        owner[asked] = np.where(found >= 0, mine[np.maximum(found, 0)], UNKNOWN)
    return owner
