"""Which module each op belongs to: from the creation of graph nodes and the plugin's record of graph captures.

A node is created while the forward is captured, on the trace's clock; modules are called on the monotonic clock of
their process. How far these are apart is found from the times themselves: under the right offset every innermost
module call holds the creation of a node, and under any other a good part of them does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profkit.traces import I32, I64, UNKNOWN, Index, ModuleCalls, Trace

from .module_names import full_names
from .owners import pair_keys
from .steps import spans_at

COARSE, FINE = 20_000, 2_000
EARLIEST, LATEST = -2_000_000, 8_000_000
"""The first node is created from 2 ms before to 8 ms after the first module is called; tried in steps of 20 us."""

ALIKE = 0.25
"""Captures whose calls take longer or shorter than the creation of the nodes by more than this share are not tried."""

LAYER = re.compile(r"(?:\w+\.)*(?:layers|blocks|h)\.\d+(?:\.\w+)*")
"""How a range names a module of a layer."""

ENOUGH = 64
"""So many calls tell the right offset from all others; the rest is looked at about there only."""

HELD = 0.9
"""Share of the innermost calls that must hold a node."""

AHEAD = 1.1
"""By this factor the right capture must hold more calls than the next."""


@dataclass(frozen=True, slots=True, eq=False)
class OpModules:
    """The module of each op: ``of_op`` indexes ``names``, ``UNKNOWN`` where there is none.

    ``unknown`` says why no op has one, or is ``None``; ``borrowed`` that they are those of another recording's kernels.
    """

    names: tuple[str, ...]
    of_op: I32
    unknown: str | None = None
    borrowed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Captured:
    """The module calls of one captured graph, by start."""

    batch_size: int
    row: Index
    start: I64
    end: I64
    leaf_start: I64
    leaf_end: I64

    def held(self, time: I64, offsets: I64, every: int = 1) -> I64:
        """How many of the innermost calls hold one of the moments, which are in order, moved by each of ``offsets``.

        Only each ``every``-th call is looked at.
        """
        start, end = self.leaf_start[::every], self.leaf_end[::every]
        first = np.searchsorted(time, start[None, :] - offsets[:, None])
        last = np.searchsorted(time, end[None, :] - offsets[:, None])
        count: I64 = np.count_nonzero(last > first, axis=1)
        return count


def op_modules(trace: Trace, innermost: I64) -> OpModules:
    """The modules of the ops of ``trace``: of graph nodes by their creation, of others by ranges named like modules.

    ``innermost`` is the row of the innermost range around the launch of each op.
    """
    graphs = _graph_modules(trace)
    ranges = _range_modules(trace, innermost)
    if not ranges.names:
        return graphs
    both = np.where(graphs.of_op >= 0, graphs.of_op, np.where(ranges.of_op >= 0, ranges.of_op + len(graphs.names), -1))
    return OpModules((*graphs.names, *ranges.names), both.astype(np.int32))


def _range_modules(trace: Trace, innermost: I64) -> OpModules:
    """Modules from ranges such as SGLang's layer markers: the innermost range around a launch that names one."""
    ranges = trace.ranges
    named: dict[str, int] = {}
    of_text = np.full(len(trace.strings) + 1, UNKNOWN, np.int64)
    for number in np.unique(ranges.text).tolist():
        found = LAYER.search(trace.strings[number]) if number >= 0 else None
        if found:
            of_text[number] = named.setdefault(found[0], len(named))
    module = np.full(len(innermost), UNKNOWN, np.int64)
    row = innermost if named else np.full(len(innermost), UNKNOWN, np.int64)
    while np.any(row >= 0):
        module = np.where((module < 0) & (row >= 0), of_text[ranges.text[row]], module)
        row = np.where((row >= 0) & (module < 0), ranges.parent[row], UNKNOWN)
    return OpModules(tuple(named), module.astype(np.int32))


def _graph_modules(trace: Trace) -> OpModules:
    nothing = np.full(len(trace.ops), UNKNOWN, np.int32)
    if not len(trace.module_calls):
        return OpModules((), nothing, "the recording does not say which modules its kernels belong to")
    if not len(trace.graph_nodes):
        return OpModules((), nothing, "the recording does not hold the creation of graph nodes")
    nodes = _Originals.of(trace)
    call = np.full(len(nodes.created), UNKNOWN, np.int64)
    for pid in np.unique(trace.module_calls.pid).tolist():
        _name_nodes(trace.module_calls, nodes, pid, call)
    if not np.any(call >= 0):
        return OpModules((), nothing, "no captured graph of the plugin's record fits the nodes of the recording")
    texts, place = full_names(trace.module_calls, trace.strings)
    module = np.where(call >= 0, place[call], UNKNOWN)
    return OpModules(texts, np.append(module, UNKNOWN)[nodes.of_ops(trace)].astype(np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class _Originals:
    """Nodes as they were captured, before any clone: key, process, thread, creation, and which capture (a number)."""

    key: I64
    pid: I64
    created: I64
    capture: I64
    clone: I64
    clone_of: I64
    keys: tuple[I64, I64]

    @classmethod
    def of(cls, trace: Trace) -> _Originals:
        """The originals of the trace's graph nodes, in order of creation; captures are parted by instantiations."""
        table, ops = trace.graph_nodes, trace.ops
        key, original, of_op = pair_keys(
            (table.pid, table.node), (table.pid, table.original_node), (ops.pid, ops.graph_node)
        )
        cloned = table.original_node >= 0
        order = np.lexsort((table.created, table.tid, table.pid))
        is_clone = np.isin(key, key[cloned])
        turns = np.cumsum(is_clone[order])
        first = order[~is_clone[order]]
        capture = turns[~is_clone[order]] + (table.pid[first] << 32)
        return cls(key[first], table.pid[first], table.created[first], capture, key[cloned], original[cloned],
                   (of_op, ops.graph_node))  # fmt: skip

    def of_ops(self, trace: Trace) -> Index:
        """The place among the originals of each op's node, or -1."""
        of_op, node = self.keys
        order = np.argsort(self.clone, kind="stable")
        clone, clone_of = self.clone[order], self.clone_of[order]
        found = of_op.copy()
        while len(clone):
            at = np.minimum(np.searchsorted(clone, found), len(clone) - 1)
            again = (clone[at] == found) & (clone_of[at] != found)
            if not again.any():
                break
            found = np.where(again, clone_of[at], found)
        order = np.argsort(self.key, kind="stable")
        at = np.minimum(np.searchsorted(self.key[order], found), len(order) - 1)
        known = (self.key[order][at] == found) & (node >= 0) & (trace.ops.graph_launch >= 0)
        return np.where(known, order[at], -1)


def _name_nodes(calls: ModuleCalls, nodes: _Originals, pid: int, call: I64) -> None:
    """Set the innermost call of each node of one process, where the offset of its clocks can be found."""
    captured = _captured_graphs(calls, pid)
    mine = np.flatnonzero(nodes.pid == pid)
    groups = [mine[nodes.capture[mine] == number] for number in np.unique(nodes.capture[mine]).tolist()]
    groups.sort(key=len, reverse=True)
    offset = next((found for group in groups if (found := _offset(nodes.created[group], captured)) is not None), None)
    if offset is None:
        return
    time = nodes.created[mine] + offset
    inside = spans_at(calls.pid, calls.tid, calls.start, calls.end, nodes.pid[mine], _threads(calls, pid, time), time)
    call[mine] = inside


def _threads(calls: ModuleCalls, pid: int, time: I64) -> I64:
    """The thread that captured at each moment: the plugin's, since nsys numbers some threads otherwise."""
    rows = np.flatnonzero((calls.pid == pid) & (calls.depth == 0))
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    at = np.maximum(np.searchsorted(calls.start[rows], time, "right") - 1, 0)
    return calls.tid[rows[at]]


def _captured_graphs(calls: ModuleCalls, pid: int) -> list[_Captured]:
    found = []
    for number in np.unique(calls.graph[calls.pid == pid]).tolist():
        row = np.flatnonzero((calls.pid == pid) & (calls.graph == number))
        row = row[np.lexsort((-calls.end[row], calls.start[row]))]
        start, end = calls.start[row], calls.end[row]
        leaf = np.append(start[1:] >= end[:-1], True)
        found.append(_Captured(int(calls.batch_size[row[0]]), row, start, end, start[leaf], end[leaf]))
    return found


def _offset(created: I64, captured: list[_Captured]) -> int | None:
    """Monotonic clock minus the trace's, from the nodes of one capture; ``None`` where no capture stands out."""
    best: list[tuple[float, int]] = []
    for graph in captured:
        length = int(graph.end.max() - graph.start[0])
        if abs(int(created[-1] - created[0]) - length) > ALIKE * length:
            continue
        base = int(graph.start[0] - created[0])
        coarse = np.arange(base + EARLIEST, base + LATEST, COARSE)
        rough = graph.held(created, coarse, max(1, len(graph.leaf_start) // ENOUGH))
        middle = int(coarse[np.argmax(rough)])
        fine = np.arange(middle - 4 * COARSE, middle + 4 * COARSE, FINE)
        exact = graph.held(created, fine)
        full = fine[exact == exact.max()]
        best.append((float(exact.max()) / len(graph.leaf_start), int(full[len(full) // 2])))
    best.sort(reverse=True)
    if not best or best[0][0] < HELD or (len(best) > 1 and best[0][0] < AHEAD * best[1][0]):
        return None
    return best[0][1]
