"""GPU work of processes that run no step of the engine: neighbours on its GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64

from .arrays import distinct
from .attribution import Attribution
from .intervals import covered_before, merge


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Processes beside the engine's on a GPU, dearest first, and how long only they use it in the window, in ns."""

    pids: tuple[int, ...]
    alone_ns: int


def neighbours(attribution: Attribution, device: int) -> Neighbours:
    """Who else works on ``device``, where the engine's processes work on it too."""
    ops, timeline = attribution.trace.ops, attribution.devices[device]
    engine = distinct(ops.pid[attribution.step >= 0])
    if timeline.window_start is None or timeline.window_end is None or not len(engine):
        return Neighbours((), 0)
    inside = (ops.device == device) & (ops.end > timeline.window_start) & (ops.start < timeline.window_end)
    own = np.isin(ops.pid, engine)
    rows = np.flatnonzero(inside & ~own)
    if not len(rows):
        return Neighbours((), 0)
    start, end = np.maximum(ops.start, timeline.window_start), np.minimum(ops.end, timeline.window_end)
    beside = merge(start[inside & own], end[inside & own])
    pids = distinct(ops.pid[rows])
    alone = {int(pid): _alone(*merge(*_of(ops.pid, pid, rows, start, end)), beside) for pid in pids}
    together = _alone(*merge(start[rows], end[rows]), beside)
    return Neighbours(tuple(sorted(alone, key=lambda pid: -alone[pid])), together)


def _of(pids: I64, pid: int, rows: I64, start: I64, end: I64) -> tuple[I64, I64]:
    mine = rows[pids[rows] == pid]
    return start[mine], end[mine]


def _alone(start: I64, end: I64, beside: tuple[I64, I64]) -> int:
    """How much of disjoint intervals none of the others covers."""
    shared = covered_before(*beside, end) - covered_before(*beside, start)
    return int((end - start - shared).sum())
