"""Ranks that are slow in turn: one cause with all that it costs, not one of each that costs too little to be seen."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.traces import Trace
from tests.analyzers.engine import Meeting, Rank, run, step_ns
from tests.analyzers.test_verdict import near, verdict_of

STEPS, LAYERS = 16, 8


@dataclass(frozen=True)
class Experts:
    """How much longer the experts of one rank take in each layer; ``ranks`` take turns, or rank 0 only."""

    extra: int = 0
    ranks: int = 1
    orphans: bool = False


def layered(rank: Rank, plan: Experts, steps: int) -> Meeting:
    for number in range(steps):
        begin = rank.now
        if len(rank.step_ends) > 1:
            rank.block(rank.step_ends[-2], "cudaEventSynchronize")
        rank.python(20_000)
        hot = [(number * LAYERS + layer) % plan.ranks == rank.number for layer in range(LAYERS)]
        experts = [("fused_moe_kernel", 60_000 + (plan.extra if own else 0)) for own in hot]
        yield from rank.graph([node for one in experts for node in (one, ("all_reduce", 10_000))], 1_000)
        rank.step_ends.append(rank.free[7])
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=1")


def planted(plan: Experts, ranks: int) -> Trace:
    return run(*(plan,) * ranks, steps=STEPS, programme=layered)  # type: ignore[arg-type]


def test_eight_ranks_whose_experts_are_uneven_in_turn() -> None:
    """Each by itself costs less than what counts as a fault."""
    trace = planted(Experts(20_000, 8), 8)
    first = verdict_of(trace)[0]
    cost = step_ns(trace, STEPS) - step_ns(planted(Experts(), 8), STEPS)
    assert (first.cause, first.rank, first.part) == ("straggler_compute", None, "compute")
    assert near(first.ns_per_step, cost)
    assert first.text.startswith("8 ranks hold the others up in turn, 1")
    assert [cause for cause in verdict_of(trace) if cause.rank is not None] == []


def test_three_of_eight_ranks_in_turn() -> None:
    first = verdict_of(planted(Experts(100_000, 3), 8))[0]
    assert first.text.startswith("ranks 0, 1 and 2 hold the others up in turn, 8")


def test_a_single_slow_rank_takes_no_turns() -> None:
    first = verdict_of(planted(Experts(100_000, 1), 8))[0]
    assert (first.cause, first.rank) == ("straggler_compute", 0)
