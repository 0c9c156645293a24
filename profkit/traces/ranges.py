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
    depth, parent = [0] * len(order), [-1] * len(order)
    # The number of ranges is small beside the number of ops: one pass with a stack is simplest.
    stack: list[int] = []
    owners, closes = thread.tolist(), ends.tolist()
    for row, (begin, owner) in enumerate(zip(starts.tolist(), owners, strict=True)):
        while stack and (owners[stack[-1]] != owner or closes[stack[-1]] <= begin):
            stack.pop()
        if stack:
            parent[row] = stack[-1]
            depth[row] = len(stack)
        stack.append(row)
    return order, np.array(depth, np.int32), np.array(parent, np.int64)
