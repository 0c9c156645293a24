"""Work of several streams beside each other: what another stream hides costs nothing, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from profkit.traces import Trace
from tests.analyzers.engine import LATENCY, Meeting, Rank, run, step_ns
from tests.analyzers.test_verdict import figures_of, verdict_of

STEPS = 12


@dataclass(frozen=True)
class Streams:
    """One rank's step on two streams: by how much its kernels before collectives take longer."""

    longer: int = 0
    drafter: int = 60_000
    orphans: bool = False


def planned(programme: Callable[[Rank, Streams, int], Meeting], *plans: Streams) -> Trace:
    return run(*plans, steps=STEPS, programme=programme)  # type: ignore[arg-type]


def hidden(rank: Rank, plan: Streams, steps: int) -> Meeting:
    """Collectives on a stream of their own, beside a long kernel; a longer kernel before makes that one shorter."""
    for _ in range(steps):
        begin = rank.now
        rank.python(20_000)
        for _ in range(6):
            rank.launch("gemm", 60_000 + plan.longer)
            rank.wait_for(20, 7)
            yield from rank.all_reduce(20_000, stream=20)
            rank.launch("fused_moe_kernel", 400_000 - plan.longer)
            rank.wait_for(7, 20)
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=4")


def micro_batches(rank: Rank, plan: Streams, steps: int) -> Meeting:
    """Steps in turn on two streams: collectives of both wait at once."""
    for number in range(steps):
        begin, stream = rank.now, 7 + number % 2
        rank.python(20_000)
        for _ in range(6):
            rank.launch("gemm", 60_000 + plan.longer, stream)
            yield from rank.all_reduce(20_000, stream)
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=4")


def drafting_beside(rank: Rank, plan: Streams, steps: int) -> Meeting:
    """The next draft runs on a stream of its own beside verify, which takes 1.2 ms."""
    for _ in range(steps):
        begin = rank.now
        rank.python(5_000)
        rank.launch("gemm", plan.drafter, stream=21)
        rank.builder.rank(rank.number).range(begin, rank.now, "draft")
        target = rank.now
        yield from rank.graph([("gemm", 100_000), ("all_reduce", 20_000)] * 10, 1_000, gap=0)
        rank.builder.rank(rank.number).range(target, rank.now, "target")
        rank.wait_for(7, 21)
        rank.wait_for(21, 7)
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=4")


@pytest.mark.parametrize("drafter", [300_000, 3_000_000])
def test_a_free_drafter_saves_what_verify_does_not_hide(drafter: int) -> None:
    planted = planned(drafting_beside, Streams(drafter=drafter), Streams(drafter=drafter))
    costs = {cause.cause: cause.ns_per_step for cause in verdict_of(planted)}
    free = planned(drafting_beside, Streams(drafter=1_000), Streams(drafter=1_000))
    saved = step_ns(planted, STEPS) - step_ns(free, STEPS)
    assert abs(costs.get("drafter_cost", 0) - saved) <= 0.02 * step_ns(planted, STEPS)


def test_a_wait_that_compute_hides_is_no_straggler() -> None:
    found = verdict_of(planned(hidden, Streams(), Streams(longer=200_000)))
    assert [cause for cause in found if cause.rank is not None] == []


def test_collectives_that_wait_at_once_are_not_counted_twice() -> None:
    """What one stream waits while the other computes is not charged either, so the cost is what is found, or more."""
    planted = planned(micro_batches, Streams(), Streams(longer=100_000))
    (first,) = (cause for cause in verdict_of(planted) if cause.rank is not None)
    cost = step_ns(planted, STEPS) - step_ns(planned(micro_batches, Streams(), Streams()), STEPS)
    assert (first.cause, first.rank) == ("straggler_compute", 1)
    assert cost / 2 < first.ns_per_step <= cost


def test_what_a_token_of_micro_batches_costs_is_not_told_by_the_median_period() -> None:
    """Both of a pair begin within 100 us; a step takes half of what the pair does."""
    planted = planned(micro_batches, Streams(), Streams())
    cycle = figures_of(planted).cycle
    assert cycle.period_ns_median is not None and cycle.us_per_token is not None
    assert cycle.batch_size and cycle.accept_len and cycle.period_ns_median < 0.5 * step_ns(planted, STEPS)
    per_step = 1000 * cycle.us_per_token * cycle.batch_size * cycle.accept_len
    assert abs(per_step - step_ns(planted, STEPS)) <= 0.15 * step_ns(planted, STEPS)


def dependents(rank: Rank, plan: Streams, steps: int) -> Meeting:
    """The kernel behind each all-reduce begins with it and waits for its end (programmatic dependent launch)."""
    for _ in range(steps):
        begin = rank.now
        rank.python(20_000)
        for _ in range(6):
            rank.launch("gemm", 60_000 + plan.longer)
            entered = max(rank.now + LATENCY, rank.free[7])
            yield from rank.all_reduce(20_000)
            rank.call(1_000, "cudaLaunchKernelExC")
            rank.builder.rank(rank.number).op("rms_norm", entered + 2_000, rank.free[7] + 5_000)
            rank.free[7] += 5_000
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=4")


def test_a_dependent_kernel_that_waits_too_hides_nothing() -> None:
    planted = planned(dependents, Streams(), Streams(longer=200_000))
    (first,) = (cause for cause in verdict_of(planted) if cause.rank is not None)
    cost = step_ns(planted, STEPS) - step_ns(planned(dependents, Streams(), Streams()), STEPS)
    assert (first.cause, first.rank) == ("straggler_compute", 1)
    assert abs(first.ns_per_step - cost) <= 0.02 * cost
