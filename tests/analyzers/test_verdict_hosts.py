"""Planted causes on the host: slow Python is told from blocking calls, also where it is slow in some steps only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.analyzers.attribution import attribute
from profkit.analyzers.lateness import blocking_cost
from tests.analyzers.engine import Plan, run, step_ns
from tests.analyzers.test_verdict import CALM, cost_of, near, verdict_of
from tests.builders import TraceBuilder

LATE = replace(CALM, late_before_target=8_000_000)
SLOWER = replace(CALM, late_before_target=500_000)
FETCHING = replace(SLOWER, fetch_after_draft=True)


def late_in(every: int, first: int) -> Plan:
    return replace(LATE, late_steps=(every, first))


@pytest.mark.parametrize(("every", "first"), [(2, 1), (3, 2), (4, 1)])
def test_a_rank_that_is_late_in_some_steps(every: int, first: int) -> None:
    planted = run(CALM, late_in(every, first))
    found = verdict_of(planted)[0]
    assert (found.cause, found.rank, found.phase) == ("straggler_host", 1, "verify")
    assert near(found.ns_per_step, cost_of(planted, run(CALM, CALM)))


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_are_late_in_turn(ranks: int) -> None:
    """Each is held by the others before its own slow step, in a call that costs nothing in steps without one."""
    planted = run(*(late_in(ranks, rank) for rank in range(ranks)), steps=16)
    faults = [cause for cause in verdict_of(planted) if cause.cause.startswith("straggler")]
    assert {cause.cause for cause in faults} == {"straggler_host"}
    assert "sync" not in {cause.cause for cause in verdict_of(planted)}
    calm = run(*(CALM,) * ranks, steps=16)
    assert near(sum(cause.ns_per_step for cause in faults), cost_of(planted, calm) / 2)


def test_a_rank_that_is_late_before_the_first_collective_of_each_step() -> None:
    """The recording's first collective has none before it: its wait is taken to be as those of the other steps."""
    late = replace(CALM, late_before_draft=4_000_000)
    found = verdict_of(run(CALM, late))[0]
    assert (found.cause, found.rank, found.phase) == ("straggler_host", 1, "draft")
    assert near(found.ns_per_step, steady(CALM, late) - steady(CALM, CALM))


def test_a_rank_that_begins_late_is_not_blamed_for_it() -> None:
    """Where no other step waits at that place, there is nothing to go by."""
    begins_late = replace(CALM, late_before_draft=4_000_000, late_steps=(100, 0))
    assert [cause.cause for cause in verdict_of(run(CALM, begins_late)) if cause.rank is not None] == []


def steady(*plans: Plan) -> float:
    """The time of a step behind the first ones, which have no run-ahead to use up."""
    return (16 * step_ns(run(*plans, steps=16), 16) - 8 * step_ns(run(*plans), 8)) / 8


def test_a_copy_to_pageable_memory_on_every_rank() -> None:
    """Its call is named async, and returns only when the drafter and the copy are done."""
    planted = run(FETCHING, FETCHING)
    found = verdict_of(planted)[0]
    assert (found.cause, found.rank) == ("sync", None)
    assert near(found.ns_per_step, cost_of(planted, run(SLOWER, SLOWER)))
    assert "cudaMemcpyAsync" in found.text


def test_a_copy_to_pageable_memory_on_one_rank() -> None:
    planted = run(SLOWER, FETCHING)
    found = verdict_of(planted)[0]
    assert (found.cause, found.rank) == ("sync", 1)
    assert near(found.ns_per_step, cost_of(planted, run(SLOWER, SLOWER)))


def test_a_copy_that_waits_for_nothing_is_not_blamed() -> None:
    """The GPU is done before the copy is asked for: that the host is late is its own doing."""
    plan = Plan(eager=True, python_per_launch=400_000, fetch_after_draft=True)
    found = verdict_of(run(plan, plan))
    assert found[0].cause == "host_late"
    assert "sync" not in {cause.cause for cause in found}


@pytest.mark.parametrize(("work_ends", "cost"), [(149, 0), (151, 100)])
def test_a_copy_holds_the_host_that_waits_for_half_of_its_call(work_ends: int, cost: int) -> None:
    """Its call takes 100 ns from 100 on, and waits for the kernel before it for 49 or 51 of them.

    The GPU then idles from 190 to 300: no call can cost more than it takes.
    """
    builder = TraceBuilder().rank(0).range(0, 260, "step:decode bs=1")
    builder.launch(10, 20, "gemm", 30, work_ends).launch(100, 200, "DtoH", work_ends, 190)
    builder.launch(250, 255, "gemm", 300, 400)
    assert blocking_cost(attribute(builder.trace()), 0).total == cost
