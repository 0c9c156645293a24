"""GPU work of processes that run no step of the engine: neighbours on its GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Bools

from .arrays import distinct
from .attribution import Attribution
from .intervals import covered_before, merge


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Processes beside the engine's on a GPU, dearest first, and how long only they use it in the window, in ns."""

    pids: tuple[int, ...]
    alone_ns: int


def neighbours(attribution: Attribution) -> dict[int, Neighbours]:
    """Who else works on each device, where the engine's processes work on it too."""
    ops = attribution.trace.ops
    ranks = [process.pid for process in attribution.trace.processes if process.rank is not None]
    engine = distinct(np.append(ops.pid[attribution.step >= 0], np.array(ranks, ops.pid.dtype)))
    others = np.setdiff1d(distinct(ops.pid), engine)
    if not np.any(attribution.step >= 0) or not len(others):
        return dict.fromkeys(attribution.devices, Neighbours((), 0))
    foreign = np.isin(ops.pid, others)
    return {device: _on(attribution, device, foreign) for device in attribution.devices}


def _on(attribution: Attribution, device: int, foreign: Bools) -> Neighbours:
    ops, timeline = attribution.trace.ops, attribution.devices[device]
    if timeline.window_start is None or timeline.window_end is None:
        return Neighbours((), 0)
    inside = (ops.device == device) & (ops.end > timeline.window_start) & (ops.start < timeline.window_end)
    rows = np.flatnonzero(inside & foreign)
    start, end = np.maximum(ops.start, timeline.window_start), np.minimum(ops.end, timeline.window_end)
    beside = merge(start[inside & ~foreign], end[inside & ~foreign])
    alone = {int(pid): _alone(*merge(*_of(ops.pid, pid, rows, start, end)), beside) for pid in distinct(ops.pid[rows])}
    together = _alone(*merge(start[rows], end[rows]), beside)
    return Neighbours(tuple(sorted(alone, key=lambda pid: -alone[pid])), together)


def _of(pids: I64, pid: int, rows: I64, start: I64, end: I64) -> tuple[I64, I64]:
    mine = rows[pids[rows] == pid]
    return start[mine], end[mine]


def _alone(start: I64, end: I64, beside: tuple[I64, I64]) -> int:
    """How much of disjoint intervals none of the others covers."""
    shared = covered_before(*beside, end) - covered_before(*beside, start)
    return int((end - start - shared).sum())
