"""Arithmetic of time intervals ``[start, end)`` in integer nanoseconds, without a loop over intervals."""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, Index


def merge(start: I64, end: I64) -> tuple[I64, I64]:
    """The union of n intervals as disjoint intervals in order; touching ones become one, empty ones vanish."""
    kept = end > start
    order = np.argsort(start[kept], kind="stable")
    starts, ends = start[kept][order], end[kept][order]
    if not len(starts):
        return starts, ends
    reach = np.maximum.accumulate(ends)
    opens = np.concatenate([[True], starts[1:] > reach[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return starts[opens], reach[closes]


def union_length(start: I64, end: I64) -> int:
    """The length of the union, in nanoseconds."""
    starts, ends = merge(start, end)
    return int((ends - starts).sum())


def covered_before(start: I64, end: I64, time: I64) -> I64:
    """How much of the disjoint, ordered intervals lies before each ``time``, in nanoseconds."""
    if not len(start):
        return np.zeros(len(time), np.int64)
    total = np.concatenate([[0], np.cumsum(end - start)])
    row = np.searchsorted(start, time, "right")
    overhang = np.maximum(end[np.maximum(row - 1, 0)] - time, 0)
    return total[row] - np.where(row > 0, overhang, 0)


def latest_active(start: I64, end: I64, time: I64) -> Index:
    """The latest-started interval that is running at each ``time``, or -1.

    ``start`` must ascend; of equal starts the later row counts as later. An interval runs at ``start`` and no
    longer at ``end``. Searches the last row before ``time`` whose end lies behind it in a pyramid of maxima,
    so nested and overlapping intervals cost O(log n) and disjoint ones O(1).
    """
    found = np.searchsorted(start, time, "right") - 1
    if not len(start):
        return found
    reach = np.maximum.accumulate(end)
    row = np.maximum(found, 0)
    idle = (found < 0) | (reach[row] <= time)
    found[idle] = -1
    buried = np.flatnonzero(~idle & (end[row] <= time))
    if len(buried):
        found[buried] = _last_reaching(end, found[buried], time[buried])
    return found


def _last_reaching(end: I64, row: Index, time: I64) -> Index:
    """The last position up to ``row`` whose end lies behind ``time``; it must exist."""
    levels = _pyramid(end)
    node = row.copy()
    level = np.zeros(len(row), np.int64)
    climbing = np.arange(len(row))
    for height, maxima in enumerate(levels):
        level[climbing] = height
        climbing = climbing[maxima[node[climbing]] <= time[climbing]]
        if not len(climbing):
            break
        # An odd node's parent also covers its left sibling; an even node's left neighbour has another parent.
        node[climbing] = (node[climbing] - 1) // 2
    return _descend(levels, node, level, time)


def _pyramid(values: I64) -> list[I64]:
    """Maxima over 1, 2, 4, … neighbouring values."""
    lowest = np.iinfo(np.int64).min
    levels = [values]
    while len(levels[-1]) > 1:
        below = levels[-1]
        if len(below) % 2:
            below = np.append(below, lowest)
        levels.append(below.reshape(-1, 2).max(axis=1))
    return levels


def _descend(levels: list[I64], node: Index, level: I64, time: I64) -> Index:
    for height in range(len(levels) - 1, 0, -1):
        rows = np.flatnonzero(level == height)
        right = node[rows] * 2 + 1
        below = levels[height - 1]
        inside = right < len(below)
        fits = inside & (below[np.minimum(right, len(below) - 1)] > time[rows])
        node[rows] = np.where(fits, right, node[rows] * 2)
        level[rows] = height - 1
    return node
