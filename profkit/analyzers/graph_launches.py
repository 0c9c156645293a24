"""The graph launches of the decode steps, and what the device was doing when they were made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I8, I64, Bools, Index, OpKind, Trace

from .attribution import Attribution
from .owners import pair_keys


@dataclass(frozen=True, slots=True, eq=False)
class GraphLaunches:
    """Graph launches of one device's decode steps by the start of their first op: its row, the call's row, the phase.

    ``size`` is the number of recorded ops.
    """

    first: Index
    call: I64
    phase: I8
    size: I64


def decode_rows(attribution: Attribution, device: int) -> Index:
    """The ops of the decode steps on ``device``."""
    return np.flatnonzero((attribution.trace.ops.device == device) & attribution.in_decode)


def in_graph(attribution: Attribution, rows: Index) -> Bools:
    """Which of the ops at ``rows`` a graph launch started."""
    ops = attribution.trace.ops
    inside: Bools = (ops.graph_launch[rows] >= 0) | (ops.kind[rows] == OpKind.GRAPH)
    return inside


def graph_launches(attribution: Attribution, device: int) -> GraphLaunches:
    """The graph launches of the decode steps of ``device``."""
    ops = attribution.trace.ops
    rows = decode_rows(attribution, device)
    rows = rows[ops.graph_launch[rows] >= 0]
    (keys,) = pair_keys((ops.pid[rows], ops.graph_launch[rows]))
    order = np.lexsort((ops.start[rows], keys))
    _, place, size = np.unique(keys[order], return_index=True, return_counts=True)
    first = rows[order][place]
    by_time = np.argsort(ops.start[first], kind="stable")
    first = first[by_time]
    return GraphLaunches(first, attribution.launch[first], attribution.phase[first], size[by_time])


def graph_launch_rows(trace: Trace) -> Index:
    """Rows of ``trace.launches`` that launch a graph."""
    names = np.array(["GraphLaunch" in text for text in trace.strings] or [False])
    return np.flatnonzero(names[trace.launches.api]) if len(trace.launches) else np.empty(0, np.intp)


def earlier_work(attribution: Attribution, device: int, first: Index) -> tuple[I64, Bools]:
    """When the work of ``device`` that started before each op of ``first`` ended, and whether there was any."""
    ops = attribution.trace.ops
    rows = np.flatnonzero(ops.device == device)
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    before = np.searchsorted(ops.start[rows], ops.start[first], "left") - 1
    has = before >= 0
    if not len(rows):
        return np.zeros(len(first), np.int64), has
    reach = np.maximum.accumulate(ops.end[rows])
    return reach[np.maximum(before, 0)], has


def launch_leads(attribution: Attribution, device: int, first: Index) -> I64:
    """For each op in ``first``: end of the device's work before it, minus start of its launch call.

    Positive where the host was ahead. Ops without earlier work on the device are left out.
    """
    end, has = earlier_work(attribution, device, first)
    lead: I64 = end[has] - attribution.trace.launches.start[attribution.launch[first[has]]]
    return lead


def median(values: I64) -> int | None:
    """The median in whole nanoseconds, ``None`` of nothing."""
    return int(np.median(values)) if len(values) else None
