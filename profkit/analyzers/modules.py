"""Which module each op belongs to: from the creation of graph nodes and the plugin's record of graph captures.

A node is created while the forward is captured, on the trace's clock; modules are called on the monotonic clock of
their process. How far these are apart is found from the times themselves: under the right offset every innermost
module call holds the creation of a node, and under any other a good part of them does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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

PAUSE = 10_000_000
"""Between nodes of one capture the host takes less than this many nanoseconds, as a rule."""

MOST_PIECES, MOST_RUNS = 96, 64
"""A capture in pieces is looked for among so many consecutive ones, in so many runs of them."""

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

    @property
    def length(self) -> int:
        """From the first call to the end of the last one, in nanoseconds."""
        return int(self.end.max() - self.start[0])

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
    """Nodes as they were captured, before any clone: key, process, thread, creation, and which piece of a capture.

    Pieces are parted by instantiations and by long pauses; a capture may be of several.
    """

    key: I64
    pid: I64
    tid: I64
    created: I64
    piece: I64
    clone: I64
    clone_of: I64
    keys: tuple[I64, I64]

    @classmethod
    def of(cls, trace: Trace) -> _Originals:
        """The originals of the trace's graph nodes, by thread and in order of creation."""
        table, ops = trace.graph_nodes, trace.ops
        key, original, of_op = pair_keys(
            (table.pid, table.node), (table.pid, table.original_node), (ops.pid, ops.graph_node)
        )
        cloned = table.original_node >= 0
        order = np.lexsort((table.created, table.tid, table.pid))
        is_clone = np.isin(key, key[cloned])
        first = order[~is_clone[order]]
        pid, tid, created = table.pid[first], table.tid[first], table.created[first]
        turns = np.cumsum(is_clone[order])[~is_clone[order]]
        new = (np.diff(pid) != 0) | (np.diff(tid) != 0) | (np.diff(turns) != 0) | (np.diff(created) > PAUSE)
        piece = np.concatenate([[0], np.cumsum(new)]) if len(first) else first
        return cls(key[first], pid, tid, created, piece, key[cloned], original[cloned], (of_op, ops.graph_node))

    def of_ops(self, trace: Trace) -> Index:
        """The place among the originals of each op's node, or -1."""
        of_op, node = self.keys
        order = np.argsort(self.clone, kind="stable")
        clone, clone_of = self.clone[order], self.clone_of[order]
        found = of_op.copy()
        for _ in range(len(clone)):
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
    runs = _runs(nodes, mine, max((graph.length for graph in captured), default=0))
    offset = next((found for run in runs if (found := _offset(nodes.created[run], captured)) is not None), None)
    if offset is None:
        return
    time = nodes.created[mine] + offset
    tid = _threads(calls, pid, nodes.tid[mine], time)
    call[mine] = spans_at(calls.pid, calls.tid, calls.start, calls.end, nodes.pid[mine], tid, time)


def _runs(nodes: _Originals, mine: Index, longest: int) -> Iterator[Index]:
    """Pieces that may be a whole capture, largest first; then runs of consecutive ones of a thread."""
    pieces = [mine[nodes.piece[mine] == number] for number in np.unique(nodes.piece[mine]).tolist()]
    yield from sorted(pieces, key=len, reverse=True)
    runs = []
    for first, piece in enumerate(pieces):
        for last in range(first + 1, min(len(pieces), first + MOST_PIECES)):
            end = pieces[last][-1]
            length = nodes.created[end] - nodes.created[piece[0]]
            if nodes.tid[end] != nodes.tid[piece[0]] or length > (1 + ALIKE) * longest:
                break
            runs.append(np.concatenate(pieces[first : last + 1]))
    yield from sorted(runs, key=len, reverse=True)[:MOST_RUNS]


def _threads(calls: ModuleCalls, pid: int, own: I64, time: I64) -> I64:
    """The capturing thread of each node: its own, or, where nsys numbers threads otherwise, the one that captured then.

    Where several threads captured at a time, it cannot be told which: ``UNKNOWN``.
    """
    rows = np.flatnonzero((calls.pid == pid) & (calls.depth == 0))
    threads = np.unique(calls.tid[rows])
    inside = np.zeros((len(threads), len(time)), np.bool_)
    for place, thread in enumerate(threads.tolist()):
        mine = rows[calls.tid[rows] == thread]
        begins, ends = np.sort(calls.start[mine]), np.sort(calls.end[mine])
        inside[place] = np.searchsorted(begins, time, "right") > np.searchsorted(ends, time, "left")
    alone = np.where(inside.sum(axis=0) == 1, threads[np.argmax(inside, axis=0)], UNKNOWN)
    return np.where(np.isin(own, threads), own, alone)


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
        if abs(int(created[-1] - created[0]) - graph.length) > ALIKE * graph.length:
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
