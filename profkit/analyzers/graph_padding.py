"""Bucket padding: graphs replayed for fewer requests than they were captured for, and what that can cost at most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN, Index

from .arrays import distinct
from .attribution import Attribution


@dataclass(frozen=True, slots=True)
class Padding:
    """Usual batch size and the one captured for it, steps with padded rows, and the most that they cost.

    ``None`` where the recording cannot tell.
    """

    real: int | None
    captured: int | None
    steps: int | None
    ns: int | None


NO_PADDING = Padding(None, None, None, None)


def padding_of(attribution: Attribution, rows: Index) -> Padding:
    """The padding of the graph ops at ``rows``.

    The cost is an upper bound: GPU time times the padded share of the captured batch, as not all work grows with it.
    """
    ops, steps = attribution.trace.ops, attribution.plan.steps
    step = attribution.step[rows]
    real = steps.batch_size[step]
    if not len(rows) or not np.any(real >= 0):
        return NO_PADDING
    captured = captured_sizes(attribution, rows, real)
    usual = int(np.argmax(np.bincount(real[real >= 0])))
    known = captured >= 0
    if not np.any(known):
        return Padding(usual, None, None, None)
    fitting = captured[known & (real == usual)]
    duration = ops.end[rows] - ops.start[rows]
    cost = 0
    for size in distinct(captured[known]).tolist():
        for batch in distinct(real[captured == size]).tolist():
            spent = int(duration[(captured == size) & (real == batch)].sum())
            cost += spent * (size - batch) // size
    padded = len(distinct(step[known & (captured > real)]))
    return Padding(usual, int(fitting[0]) if len(fitting) else None, padded, cost)


def captured_sizes(attribution: Attribution, rows: Index, real: I64) -> I64:
    """The batch size that the graph of each op at ``rows`` was captured for, or ``UNKNOWN``; ``real`` is its step's.

    Known where the run says which sizes were captured; else the largest batch that replayed the same graph, if that
    is larger than the step's own.
    """
    sizes = np.sort(np.array(attribution.trace.run.graph_batch_sizes, np.int64))
    if len(sizes):
        place = np.searchsorted(sizes, real, "left")
        fits = (place < len(sizes)) & (real >= 0)
        return np.where(fits, sizes[np.minimum(place, len(sizes) - 1)], UNKNOWN)
    return _replayed_sizes(attribution.trace.ops.graph_node[rows], real)


def _replayed_sizes(node: I64, real: I64) -> I64:
    nodes, place = np.unique(node, return_inverse=True)
    largest = np.full(len(nodes), UNKNOWN)
    np.maximum.at(largest, place, real)
    largest[nodes == UNKNOWN] = UNKNOWN
    batches, group = np.unique(real, return_inverse=True)
    captured = np.full(len(batches), UNKNOWN)
    np.maximum.at(captured, group, largest[place])
    return np.where((captured > batches) & (batches >= 0), captured, UNKNOWN)[group]
