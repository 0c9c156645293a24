"""Bucket padding: graphs replayed for fewer requests than they were captured for, and what that can cost at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN, Index

from .arrays import distinct
from .attribution import Attribution
from .graph_result import PaddedBatch


@dataclass(frozen=True, slots=True)
class Padding:
    """Usual batch size, the one that its graphs were mostly captured for, and the steps with padded rows.

    ``None`` where the recording cannot tell.
    """

    real: int | None
    captured: int | None
    padded: tuple[PaddedBatch, ...] | None

    @property
    def steps(self) -> int | None:
        """The number of steps with padded rows."""
        return None if self.padded is None else sum(row.steps for row in self.padded)

    @property
    def ns(self) -> int | None:
        """The most that padded rows cost."""
        return None if self.padded is None else sum(row.padding_ns for row in self.padded)


NO_PADDING = Padding(None, None, None)


def padding_of(attribution: Attribution, rows: Index) -> Padding:
    """The padding of the graph ops at ``rows``.

    The cost is an upper bound: GPU time times the padded share of the captured batch, as not all work grows with it.
    """
    ops, steps = attribution.trace.ops, attribution.plan.steps
    step, place = np.unique(attribution.step[rows], return_inverse=True)
    real = steps.batch_size[step]
    if not np.any(real >= 0):
        return NO_PADDING
    captured = captured_sizes(attribution, ops.graph_node[rows], place, real)
    usual = int(np.argmax(np.bincount(real[real >= 0])))
    if not np.any(captured >= 0):
        return Padding(usual, None, None)
    fitting = captured[(captured >= 0) & (real == usual)]
    spent = np.zeros(len(step), np.int64)
    np.add.at(spent, place, ops.end[rows] - ops.start[rows])
    most = int(np.argmax(np.bincount(fitting))) if len(fitting) else None
    return Padding(usual, most, tuple(_padded(real, captured, spent)))


def _padded(real: I64, captured: I64, spent: I64) -> Iterator[PaddedBatch]:
    """The steps whose graphs are larger than their batch, by both sizes."""
    for batch in distinct(real[captured > real]).tolist():
        for size in distinct(captured[(captured > real) & (real == batch)]).tolist():
            these = (captured == size) & (real == batch)
            cost = int(spent[these].sum()) * (size - batch) // size
            yield PaddedBatch(batch, size, int(these.sum()), cost)


def captured_sizes(attribution: Attribution, node: I64, place: Index, real: I64) -> I64:
    """The batch size that the graphs of each step were captured for, or ``UNKNOWN``.

    ``real`` is the batch size of each step; ``place`` is the step of each op, and ``node`` the graph node that it is
    of. Known where the run says which sizes were captured: the smallest that fits. Else, where a graph of the step
    replayed several batch sizes, the largest of them.
    """
    sizes = np.sort(np.array(attribution.trace.run.graph_batch_sizes, np.int64))
    if not len(sizes):
        return _replayed_sizes(node, place, real)
    above = np.searchsorted(sizes, real, "left")
    fits = (above < len(sizes)) & (real >= 0)
    return np.where(fits, sizes[np.minimum(above, len(sizes) - 1)], UNKNOWN)


def _replayed_sizes(node: I64, place: Index, real: I64) -> I64:
    """The largest batch that replayed a graph of each step, ``UNKNOWN`` where none of them served different ones."""
    known = (node != UNKNOWN) & (real[place] >= 0)
    nodes, code = np.unique(node[known], return_inverse=True)
    batch, step = real[place[known]], place[known]
    largest, least = np.full(len(nodes), UNKNOWN), np.full(len(nodes), np.iinfo(np.int64).max)
    np.maximum.at(largest, code, batch)
    np.minimum.at(least, code, batch)
    served = np.full(len(real), UNKNOWN)
    np.maximum.at(served, step, np.where(largest > least, largest, UNKNOWN)[code])
    return served
