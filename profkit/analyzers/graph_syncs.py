"""Blocking CUDA calls between the forward phases: how long each holds the host, and how long the GPU idles for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN, Index

from .arrays import distinct, expand
from .attribution import Attribution
from .graph_boundaries import Crossings
from .graph_outside import RangeLabels, group_by, plain_text
from .graph_result import Synchronisation
from .owners import pair_keys
from .partition import blocking_calls
from .vocabulary import PART, PHASES


@dataclass(frozen=True, slots=True, eq=False)
class _Calls:
    """Blocking calls by thread and start; what runs inside another one is part of it, so they exclude each other.

    ``row`` is that in ``trace.launches``, ``crossing`` the entry of ``Crossings`` after which the call came.
    """

    row: Index
    start: I64
    end: I64
    crossing: I64
    idle: I64


def synchronisations(
    attribution: Attribution, device: int, found: Crossings, idle_known: bool
) -> tuple[Synchronisation, ...]:
    """The blocking calls between forward phases, and those elsewhere behind which ``device`` idles, dearest first."""
    trace = attribution.trace
    calls = _with_idle(attribution, device, found)
    kept = np.flatnonzero((calls.crossing >= 0) | (calls.idle > 0))
    row, crossing, host = calls.row[kept], calls.crossing[kept], (calls.end - calls.start)[kept]
    labels = RangeLabels(trace)
    owner = labels.at(trace.launches.pid[row], trace.launches.tid[row], trace.launches.start[row])
    before = _phase_at(found, crossing, crossing)
    after = _phase_at(found, crossing, crossing + 1)
    later = (crossing >= 0) & np.append(found.next_step, False)[crossing]
    group, first = group_by(before, after, later, trace.launches.api[row], owner)
    rows = []
    for number, at in enumerate(first.tolist()):
        mine = group == number
        rows.append(
            Synchronisation(
                before=PHASES[before[at]] if before[at] >= 0 else None,
                after=PHASES[after[at]] if after[at] >= 0 else None,
                next_step=bool(later[at]),
                api=plain_text(trace, int(trace.launches.api[row[at]])),
                range=labels.text(int(owner[at])),
                calls=int(mine.sum()),
                host_ns=int(host[mine].sum()),
                gap_sync_ns=int(calls.idle[kept][mine].sum()) if idle_known else None,
            )
        )
    return tuple(sorted(rows, key=lambda one: (-(one.gap_sync_ns or 0), -one.host_ns, one.api, one.range or "")))


def _phase_at(found: Crossings, crossing: I64, place: I64) -> I64:
    phase = np.append(found.phase.astype(np.int64), UNKNOWN)
    return np.where(crossing >= 0, phase[np.where(crossing >= 0, place, -1)], UNKNOWN)


def _with_idle(attribution: Attribution, device: int, found: Crossings) -> _Calls:
    """All blocking calls of the threads that launch work of ``device``."""
    launches, timeline = attribution.trace.launches, attribution.devices[device]
    blocking = np.flatnonzero(blocking_calls(attribution.trace, attribution.rules))
    gaps = np.flatnonzero(_waited_for(attribution, device))
    launch = attribution.launch[timeline.op[gaps]]
    called, launching, crossed = pair_keys(
        *((launches.pid[rows], launches.tid[rows]) for rows in (blocking, launch, found.call))
    )
    pieces = []
    for thread in distinct(np.concatenate([launching, crossed])):
        row, start, end = _exclusive(attribution, blocking[called == thread])
        mine = gaps[launching == thread]
        idle = _overlap(start, end, timeline.start[mine], timeline.end[mine])
        pieces.append(_Calls(row, start, end, _crossing_of(attribution, found, crossed == thread, row), idle))
    names = _Calls.__slots__
    empty = np.empty(0, np.int64)
    return _Calls(*(np.concatenate([empty, *(getattr(piece, name) for piece in pieces)]) for name in names))


def _waited_for(attribution: Attribution, device: int) -> np.ndarray:
    """The stretches of the window that the partition calls ``gap_sync``."""
    timeline = attribution.devices[device]
    if timeline.window_start is None or timeline.window_end is None:
        return np.zeros(len(timeline.start), np.bool_)
    inside = (timeline.start >= timeline.window_start) & (timeline.end <= timeline.window_end)
    waited: np.ndarray = inside & (timeline.part == PART["gap_sync"])
    return waited


def _exclusive(attribution: Attribution, rows: Index) -> tuple[Index, I64, I64]:
    """The calls at ``rows``, all of one thread, that do not lie inside another one, cut where they overlap."""
    launches = attribution.trace.launches
    row = rows[np.lexsort((-launches.end[rows], launches.start[rows]))]
    start, end = launches.start[row], launches.end[row]
    if not len(row):
        return row, start, end
    reach = np.concatenate([start[:1], np.maximum.accumulate(end)[:-1]])
    kept = (end > reach) | (start >= reach)
    return row[kept], np.maximum(start, reach)[kept], end[kept]


def _overlap(start: I64, end: I64, gap_start: I64, gap_end: I64) -> I64:
    """How much of the gaps lies within each of the intervals, which are in order and exclude each other."""
    gap, place = expand(np.searchsorted(end, gap_start, "right"), np.searchsorted(start, gap_end, "left"))
    length = np.minimum(end[place], gap_end[gap]) - np.maximum(start[place], gap_start[gap])
    total = np.zeros(len(start), np.int64)
    np.add.at(total, place, np.maximum(length, 0))
    return total


def _crossing_of(attribution: Attribution, found: Crossings, mine: np.ndarray, row: Index) -> I64:
    """The crossing during which each call began, or ``UNKNOWN``; ``mine`` are the entries of the calls' thread."""
    launches = attribution.trace.launches
    entries = np.flatnonzero(mine)
    place = np.searchsorted(launches.start[found.call[entries]], launches.start[row], "right") - 1
    if not len(entries):
        return np.full(len(row), UNKNOWN)
    entry = entries[np.maximum(place, 0)]
    return np.where((place >= 0) & found.leads[entry], entry, UNKNOWN)
