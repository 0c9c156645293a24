"""The ops of decode steps that no graph holds, and what launched them: phase, range and API call."""

from __future__ import annotations

import re

import numpy as np

from profkit.traces import I64, UNKNOWN, Bools, Index, Trace

from .attribution import Attribution
from .flame import LIBRARY_DOMAINS
from .graph_launches import decode_rows, in_graph
from .graph_result import OutsideOps
from .owners import range_at
from .steps import STEP
from .vocabulary import PHASES


def outside_ops(attribution: Attribution, device: int) -> tuple[OutsideOps, ...]:
    """Every op of the decode steps of ``device`` outside of graphs, grouped, most GPU time first."""
    trace = attribution.trace
    ops, launches = trace.ops, trace.launches
    rows = decode_rows(attribution, device)
    rows = rows[~in_graph(attribution, rows)]
    call = attribution.launch[rows]
    labels = RangeLabels(trace)
    owner = labels.of_row(attribution.range[rows])
    group, first = group_by(attribution.phase[rows], ops.name[rows], owner, launches.api[call])
    size = len(first)
    count = np.bincount(group, minlength=size)
    gpu_ns = _sums(group, ops.end[rows] - ops.start[rows], size)
    leading = _first_of_each(call, ops.start[rows])
    calls = np.bincount(group[leading], minlength=size)
    host_ns = _sums(group[leading], (launches.end - launches.start)[call[leading]], size)
    found = [
        OutsideOps(
            phase=PHASES[attribution.phase[rows[at]]],
            name=plain_text(trace, int(ops.name[rows[at]])),
            range=labels.text(int(owner[at])),
            api=plain_text(trace, int(launches.api[call[at]])),
            ops=int(count[number]),
            gpu_ns=int(gpu_ns[number]),
            calls=int(calls[number]),
            host_ns=int(host_ns[number]),
        )
        for number, at in enumerate(first.tolist())
    ]
    return tuple(sorted(found, key=lambda row: (-row.gpu_ns, row.phase, row.name, row.range or "", row.api)))


def plain_text(trace: Trace, number: int) -> str:
    """A string of the trace with its white space folded; empty where there is none."""
    return re.sub(r"\s+", " ", trace.strings[number]) if number >= 0 else ""


class RangeLabels:
    """What the innermost ranges of the engine around launch calls are called.

    Ranges of libraries are passed over: they stand around every call of theirs and do not tell where in the engine it
    was made. Steps are called alike whatever their batch size.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        named = np.array([*(text in LIBRARY_DOMAINS for text in trace.strings), False])
        self._library: Bools = named[trace.ranges.domain]
        self._texts: dict[str, int] = {}
        self._code = np.full(len(trace.strings) + 1, UNKNOWN)
        for number in np.unique(trace.ranges.text).tolist():
            step = STEP.match(trace.strings[number]) if number >= 0 else None
            text = f"step:{step[1]}" if step else plain_text(trace, number)
            self._code[number] = self._texts.setdefault(text, len(self._texts))

    def of_row(self, row: I64) -> I64:
        """The label of each range, or of the first one around it that is the engine's own."""
        while np.any(passed := (row >= 0) & self._library[row] if len(self._library) else np.zeros(len(row), bool)):
            row = np.where(passed, self._trace.ranges.parent[row], row)
        return self._label(row)

    def at(self, pid: I64, tid: I64, time: I64) -> I64:
        """The label of the innermost range that is open on thread (pid, tid) at each ``time``."""
        return self._label(range_at(self._trace.ranges, ~self._library, pid, tid, time))

    def text(self, label: int) -> str | None:
        """The text of a label."""
        return list(self._texts)[label] if label >= 0 else None

    def _label(self, row: I64) -> I64:
        if not len(self._library):
            return np.full(len(row), UNKNOWN)
        return np.where(row >= 0, self._code[self._trace.ranges.text[row]], UNKNOWN)


def group_by(*columns: np.ndarray) -> tuple[I64, Index]:
    """The group of each row, rows with equal codes being of one group, and the first row of each group."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        place = column.astype(np.int64) + 1
        dense = np.cumsum(np.bincount(place) > 0) - 1 if len(place) else place
        key = key * (int(dense.max(initial=0)) + 1) + dense[place]
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return group, first


def _first_of_each(call: I64, start: I64) -> Index:
    """The place of the earliest op of each launch call."""
    order = np.lexsort((start, call))
    return order[np.unique(call[order], return_index=True)[1]]


def _sums(group: I64, values: I64, size: int) -> I64:
    # Sums of int64 stay exact in float64 below 2**53 ns, which is 104 days.
    return np.bincount(group, weights=values, minlength=size).astype(np.int64)
