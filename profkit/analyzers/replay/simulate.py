"""When everything of a model happens: the longest path through its dependencies, on all ranks at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from profkit.traces import I64, Index

from .model import Calls, Model, Waits, Work

NEVER = np.iinfo(np.int64).min // 4


class ContradictionError(ValueError):
    """The dependencies of a recording contradict each other, so it cannot be re-played."""


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """When each op of a model starts and ends, and when each call starts, in nanoseconds."""

    call_start: I64
    start: I64
    end: I64


@dataclass(frozen=True, slots=True)
class _Edges:
    """Dependencies between nodes: ``dst`` happens at least ``weight`` ns after ``src``."""

    src: list[I64 | Index] = field(default_factory=list)
    dst: list[I64 | Index] = field(default_factory=list)
    weight: list[I64] = field(default_factory=list)

    def add(self, src: I64 | Index, dst: I64 | Index, weight: I64) -> None:
        """One dependency per row."""
        self.src.append(src)
        self.dst.append(dst)
        self.weight.append(weight)


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Numbers of nodes: starts of calls, of ops, collectives, meetings, and ends of blocking calls, in this order."""

    op: int
    collective: int
    meeting: int
    blocked: int
    count: int

    @classmethod
    def of(cls, model: Model) -> _Nodes:
        """The nodes of ``model``."""
        calls, work = model.calls, model.work
        sizes = len(calls), len(work), _count(work.collective), _count(calls.meeting), int((calls.awaited >= 0).sum())
        # Each kind begins where the one before it ends; calls begin at 0.
        return cls(*np.cumsum(sizes).tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The dependencies ``src`` and ``dst`` in an order in which they can be followed: those of a node before its own.

    ``edge`` are their rows in that order, ``source`` and ``target`` the nodes. Holds for all models alike in these.
    """

    src: I64
    dst: I64
    edge: Index
    source: list[int]
    target: list[int]

    @classmethod
    def of(cls, src: I64, dst: I64, count: int) -> Order:
        """The order for ``count`` nodes; raises ``ContradictionError`` where there is none."""
        by_source = np.argsort(src, kind="stable")
        bound = np.searchsorted(src[by_source], np.arange(count + 1)).tolist()
        place = np.empty(count, np.int64)
        place[_sorted(dst[by_source].tolist(), bound, np.bincount(dst, minlength=count).tolist())] = np.arange(count)
        edge = np.argsort(place[dst], kind="stable")
        return cls(src, dst, edge, src[edge].tolist(), dst[edge].tolist())

    def fits(self, src: I64, dst: I64) -> bool:
        """Whether these are the dependencies that the order was made of."""
        return np.array_equal(self.src, src) and np.array_equal(self.dst, dst)


@dataclass(slots=True)
class Player:
    """Plays models one after the other; the order is found anew only where the dependencies are other ones."""

    order: Order | None = None

    def order_of(self, src: I64, dst: I64, count: int) -> Order:
        """The order of these dependencies."""
        if self.order is None or not self.order.fits(src, dst):
            self.order = Order.of(src, dst, count)
        return self.order


def simulate(model: Model, player: Player | None = None) -> Played:
    """Play ``model``; raises ``ContradictionError`` where something waits for itself."""
    work, nodes = model.work, _Nodes.of(model)
    base, delay = np.full(nodes.count, NEVER, np.int64), np.zeros(nodes.count, np.int64)
    edges = _Edges()
    _host(model, nodes, base, edges)
    _device(work, model.waits, nodes, base, edges)
    delay[nodes.op : nodes.collective] = work.delay
    src, dst, weight = (np.concatenate(part) for part in (edges.src, edges.dst, edges.weight))
    order = (player or Player()).order_of(src, dst, nodes.count)
    time = _longest_paths(base, delay, weight, order)
    return Played(time[: nodes.op], time[nodes.op : nodes.collective], _ends(work, nodes, time))


def _host(model: Model, nodes: _Nodes, base: I64, edges: _Edges) -> None:
    calls, first = model.calls, model.calls.first
    base[np.flatnonzero(first)] = calls.origin[first]
    end, taken = _call_ends(model, nodes, edges)
    meets = np.flatnonzero((calls.meeting >= 0) & ~first)
    place = nodes.meeting + calls.meeting[meets]
    edges.add(end[meets - 1], place, taken[meets - 1])
    edges.add(place, meets, calls.before[meets])
    alone = np.flatnonzero((calls.meeting < 0) & ~first)
    edges.add(end[alone - 1], alone, taken[alone - 1] + calls.before[alone])


def _call_ends(model: Model, nodes: _Nodes, edges: _Edges) -> tuple[Index, I64]:
    """The node, and the time behind it, at which each call ends."""
    calls: Calls = model.calls
    blocks = np.flatnonzero(calls.awaited >= 0)
    own = nodes.blocked + np.arange(len(blocks))
    edges.add(blocks, own, calls.duration[blocks])
    _behind(model.work, nodes, calls.awaited[blocks], own, calls.wake[blocks], edges)
    end, taken = np.arange(len(calls)), calls.duration.copy()
    end[blocks], taken[blocks] = own, 0
    return end, taken


def _device(work: Work, waits: Waits, nodes: _Nodes, base: I64, edges: _Edges) -> None:
    op = nodes.op + np.arange(len(work))
    launched = work.call >= 0
    edges.add(work.call[launched], op[launched], work.lag[launched])
    follows = np.flatnonzero(~work.first)
    _behind(work, nodes, follows - 1, op[follows], work.gap[follows], edges)
    _behind(work, nodes, waits.on, op[waits.op], waits.gap, edges)
    fixed = work.first & ~launched
    fixed[waits.op] = False
    base[op[fixed]] = work.origin[fixed]
    together = work.collective >= 0
    edges.add(op[together], nodes.collective + work.collective[together], np.zeros(int(together.sum()), np.int64))


def _behind(work: Work, nodes: _Nodes, op: I64 | Index, dst: I64 | Index, extra: I64, edges: _Edges) -> None:
    """``dst`` happens ``extra`` ns after the end of ``op``: for a collective, after its transfer."""
    together = work.collective[op] >= 0
    edges.add(nodes.op + op, dst, np.where(together, 0, work.duration[op]) + extra)
    shared = op[together]
    edges.add(nodes.collective + work.collective[shared], dst[together], work.duration[shared] + extra[together])


def _ends(work: Work, nodes: _Nodes, time: I64) -> I64:
    start = time[nodes.op : nodes.collective]
    together = work.collective >= 0
    end: I64 = start + np.where(together, 0, work.duration)
    began = time[nodes.collective + work.collective[together]]
    end[together] = np.maximum(end[together], began + work.duration[together])
    return end


def _count(numbers: I64) -> int:
    return int(numbers.max(initial=-1)) + 1


def _sorted(target: list[int], bound: list[int], waiting: list[int]) -> list[int]:
    """The nodes, each behind all that it waits for: ``waiting`` is how many those are."""
    ready = [node for node, count in enumerate(waiting) if not count]
    done: list[int] = []
    while ready:
        node = ready.pop()
        done.append(node)
        for other in target[bound[node] : bound[node + 1]]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    if len(done) < len(waiting):
        raise ContradictionError("the recorded dependencies contradict each other: some op would wait for itself")
    return done


def _longest_paths(base: I64, delay: I64, weight: I64, order: Order) -> I64:
    """The time of each node: the latest of its base and its dependencies, and its delay."""
    time = base.tolist()
    cost = (weight + delay[order.src])[order.edge].tolist()
    for source, target, taken in zip(order.source, order.target, cost, strict=True):
        then = time[source] + taken
        if then > time[target]:
            time[target] = then
    return np.array(time, np.int64) + delay
