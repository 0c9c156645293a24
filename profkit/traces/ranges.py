"""Nesting of annotated ranges, and which range is open at a moment of a thread."""

from __future__ import annotations

import numpy as np

from .model import I32, I64, Index


def nest(start: I64, end: I64, pid: I64, tid: I64) -> tuple[Index, I32, I64]:
    """Order ranges by thread and start, and find the parent and depth of each.

    Arguments are columns of n ranges, in nanoseconds. Returns ``(order, depth, parent)``: ``order`` sorts the
    ranges by pid, tid, start and falling end; ``depth`` and ``parent`` (a row of the sorted table, or -1)
    belong to the sorted rows. The parent of a range is the latest-started range of its thread still open when it
    starts; a child that overhangs its parent by a tick keeps it.
    """
    order = np.lexsort((-end, start, tid, pid))
    starts, ends = start[order], end[order]
    thread = np.zeros(len(order), np.int64)
    if len(order):
        changed = (np.diff(pid[order]) != 0) | (np.diff(tid[order]) != 0)
        thread[1:] = np.cumsum(changed)
    depth = np.zeros(len(order), np.int32)
    parent = np.full(len(order), -1, np.int64)
    # The number of ranges is small beside the number of ops: one pass with a stack is simplest.
    stack: list[int] = []
    for row, (begin, owner) in enumerate(zip(starts.tolist(), thread.tolist(), strict=True)):
        while stack and (thread[stack[-1]] != owner or ends[stack[-1]] <= begin):
            stack.pop()
        if stack:
            parent[row] = stack[-1]
            depth[row] = len(stack)
        stack.append(row)
    return order, depth, parent
