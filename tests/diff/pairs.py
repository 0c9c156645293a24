"""Pairs of recordings of a pretend engine with noise, alike but for what is planted in one of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from profkit.analyzers import attribute
from profkit.analyzers.diff import Context, Diff, PairDiff, Per, Side, diff
from profkit.traces import Device, Run, Trace
from tests.analyzers.engine import Meeting, Rank, run


@dataclass(frozen=True)
class Served:
    """How one rank serves: lengths in nanoseconds, ``jitter`` the spread of each, ``shared`` that of a whole step."""

    seed: int = 0
    jitter: float = 0.01
    shared: float = 0.005
    gemm: int = 30_000
    speed: float = 1.0
    attention: str = "attention"
    transfer: int = 12_000
    inserted: tuple[str, int] | None = None
    blocks: bool = False
    eager: bool = False
    drafts: bool = True
    layers: int = 6
    batch: int = 1
    orphans: bool = False


def served(rank: Rank, plan: Served, steps: int) -> Meeting:
    """Steps whose every length varies a little."""
    own = random.Random(f"{plan.seed}, {rank.number}")
    for _ in range(steps):
        begin, pace = rank.now, own.gauss(1, plan.shared)
        if len(rank.step_ends) > 1:
            rank.block(rank.step_ends[-2], "cudaEventSynchronize")

        def vary(ns: float, pace: float = pace) -> int:
            return max(1, round(ns * pace * own.gauss(1, plan.jitter)))

        if plan.drafts:
            yield from _forward(rank, plan, "draft", [("norm_kernel", vary(9_000)), ("gemm", vary(12_000))])
        nodes = [(name, vary(length)) for _ in range(plan.layers) for name, length in _layer(plan)]
        if plan.inserted:
            nodes.insert(4, (plan.inserted[0], vary(plan.inserted[1])))
        if plan.blocks:
            rank.block(rank.free[7])
        yield from _forward(rank, plan, "target", nodes)
        yield from _forward(rank, plan, "accept", [("argmax_kernel", vary(6_000))])
        rank.step_ends.append(rank.free[7])
        rank.builder.rank(rank.number).range(begin, rank.now, f"step:decode bs={plan.batch}")


def _layer(plan: Served) -> Sequence[tuple[str, float]]:
    names = ("norm_kernel", 8_000), ("gemm", plan.gemm), (plan.attention, 20_000), ("all_reduce", plan.transfer)
    return [(name, length * (plan.speed if name != "all_reduce" else 1)) for name, length in names]


def _forward(rank: Rank, plan: Served, text: str, nodes: Sequence[tuple[str, int]]) -> Meeting:
    begin = rank.now
    rank.python(5_000)
    if plan.eager:
        for name, length in nodes:
            rank.python(40_000)
            if name == "all_reduce":
                yield from rank.all_reduce(length)
            else:
                rank.launch(name, length)
    else:
        yield from rank.graph(nodes, {"draft": 1_000, "target": 5_000, "accept": 9_000}[text], call_ns=20_000)
    rank.builder.rank(rank.number).range(begin, rank.now, text)


def trace_of(plan: Served, steps: int = 12, ranks: int = 2, slow_rank: float = 1.0) -> Trace:
    """The recording of ``ranks`` ranks that serve alike; the last one's kernels take ``slow_rank`` times as long."""
    plans = [plan] * (ranks - 1) + [replace(plan, speed=plan.speed * slow_rank)]
    return run(*plans, steps=steps, programme=served)


def side_of(trace: Trace, name: str = "x", context: Context | None = None) -> Side:
    """A side of a comparison."""
    return Side.of(name, name, attribute(trace), context or Context())


def compared(a: Trace, b: Trace, per: Per = "step") -> PairDiff:
    """The comparison of two recordings."""
    return whole_diff([a], [b], per).pairs[0]


def whole_diff(a: Sequence[Trace], b: Sequence[Trace], per: Per = "step") -> Diff:
    """The comparison of several recordings with several."""
    first = [side_of(trace, f"a{n}") for n, trace in enumerate(a)]
    return diff(first, [side_of(trace, f"b{n}") for n, trace in enumerate(b)], per)


def at_concurrency(trace: Trace, concurrency: int, accept_len: float | None = None, gpu: str = "") -> Trace:
    """``trace`` as a sweep would give it."""
    known = replace(trace, devices=tuple(Device(device.device, gpu) for device in trace.devices))
    return known.with_run(Run(concurrency=concurrency, accept_len=accept_len))
