"""Planted causes: the verdict names the cause, the rank and the size.

What a cause costs is the difference of two runs of the pretend engine, with and without it; in the real recordings it
is what was planted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from profkit import Recording, analyze, open_trace
from profkit.analyzers.result import Cause, TraceFigures
from profkit.traces import Run, Trace
from tests.analyzers import planting
from tests.analyzers.engine import Plan, run, step_ns
from tests.builders import TraceBuilder
from tests.shared_files import shared

CALM = Plan()
LATE = replace(CALM, late_before_target=4_000_000)
EAGER = Plan(eager=True, python_per_launch=150_000)
WORK = {"verify_cost", "drafter_cost", "link_bound", "graph_gaps"}
"""What every step costs by itself; a planted fault comes before it."""


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("planted", "planted", trace)])[0].traces[0]


def verdict_of(trace: Trace) -> tuple[Cause, ...]:
    return figures_of(trace).verdict


def cost_of(planted: Trace, clean: Trace) -> float:
    return step_ns(planted) - step_ns(clean)


def near(found: float, cost: float) -> bool:
    return abs(found - cost) <= 0.02 * cost


FAULTS = {
    "late host, the second of two": ((CALM, LATE), (CALM, CALM), "straggler_host", 1, "verify"),
    "late host, the first of two": ((LATE, CALM), (CALM, CALM), "straggler_host", 0, "verify"),
    "late host, one of four": ((CALM, CALM, LATE, CALM), (CALM,) * 4, "straggler_host", 2, "verify"),
    "slow GPU of two": ((CALM, replace(CALM, speed=1.5)), (CALM, CALM), "straggler_compute", 1, "verify"),
    "slow GPU of three": ((replace(CALM, speed=1.5), CALM, CALM), (CALM,) * 3, "straggler_compute", 0, "verify"),
    "every host late": ((LATE, LATE), (CALM, CALM), "host_late", None, "verify"),
    "the only host late": ((LATE,), (CALM,), "host_late", None, "verify"),
    "blocking call on every rank": (
        (replace(CALM, late_before_target=500_000, block_after_draft=True),) * 2,
        (replace(CALM, late_before_target=500_000),) * 2,
        "sync", None, "step_other",
    ),
    "blocking call on one rank": (
        (replace(CALM, late_before_target=500_000), replace(CALM, late_before_target=500_000, block_after_draft=True)),
        (replace(CALM, late_before_target=500_000),) * 2,
        "sync", 1, "step_other",
    ),
    "copies on the link": (
        (replace(CALM, copies_beside=5_000_000, contended=60_000),) * 2, (CALM, CALM), "link_contended", None, "verify",
    ),
    "event wait on every rank": ((replace(CALM, wait_before_target=10**6),) * 2, (CALM, CALM), "queue", None, "verify"),
    "event wait on one rank": ((CALM, replace(CALM, wait_before_target=10**6)), (CALM, CALM), "queue", 1, "verify"),
    "slow replay on one rank": ((replace(CALM, gap=20_000), CALM), (CALM, CALM), "graph_gaps", 0, "verify"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str) -> None:
    plans, calm, cause, rank, phase = FAULTS[name]
    planted = run(*plans)
    first = verdict_of(planted)[0]
    assert (first.cause, first.rank, first.phase) == (cause, rank, phase)
    assert near(first.ns_per_step, cost_of(planted, run(*calm)))


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_else_is_blamed(name: str) -> None:
    planted = run(*FAULTS[name][0])
    # With one rank alone, what is waiting in its collectives and what transfer cannot be known.
    rest = [c for c in verdict_of(planted)[1:] if c.cause not in WORK and c.part != "collective"]
    assert all(cause.ns_per_step < 0.02 * step_ns(planted) for cause in rest), rest


def test_two_stragglers_are_told_apart() -> None:
    """What each of them alone would cost overlaps; together they are what the step grew by."""
    planted = run(CALM, LATE, replace(CALM, speed=1.5), CALM)
    found = {(cause.cause, cause.rank): cause.ns_per_step for cause in verdict_of(planted) if cause.rank is not None}
    assert set(found) == {("straggler_host", 1), ("straggler_compute", 2)}
    assert near(sum(found.values()), cost_of(planted, run(*(CALM,) * 4)))


OWN_WORK = {
    "slow link": (replace(CALM, transfer=200_000, contended=200_000), replace(CALM, transfer=0), "link_bound"),
    "large drafter": (replace(CALM, drafter=40), None, "drafter_cost"),
    "gaps in graphs": (replace(CALM, gap=60_000), replace(CALM, gap=0), "graph_gaps"),
    "large target": (replace(CALM, layers=48), None, "verify_cost"),
}


@pytest.mark.parametrize("name", OWN_WORK)
def test_own_work(name: str) -> None:
    plan, without, cause = OWN_WORK[name]
    planted = run(plan, plan)
    first = verdict_of(planted)[0]
    assert (first.cause, first.rank) == (cause, None)
    if without is not None:
        assert near(first.ns_per_step, cost_of(planted, run(without, without)))


def test_a_free_drafter_saves_what_it_takes() -> None:
    """Two layers of 60 * 40 us and 20 us, two all-reduces of 10 us, two small kernels of 5 us, and 5 gaps of 0.5."""
    planted = run(replace(CALM, drafter=40), replace(CALM, drafter=40))
    drafter = next(cause for cause in verdict_of(planted) if cause.cause == "drafter_cost")
    assert drafter.ns_per_step == 2 * (2_400_000 + 20_000 + 10_000) + 2 * 5_000 + 5 * 500


def test_work_without_launch_records_is_unexplained() -> None:
    planted = run(*(replace(CALM, gap=20_000, orphans=True),) * 2)
    first = verdict_of(planted)[0]
    assert first.cause == "unexplained"
    assert near(first.ns_per_step, cost_of(planted, run(*(replace(CALM, gap=0),) * 2)))


def test_a_calm_engine_has_no_fault() -> None:
    assert {cause.cause for cause in verdict_of(run(CALM, CALM))} <= WORK


def test_a_blocking_call_that_costs_nothing_is_not_blamed() -> None:
    """The calm engine blocks in every step until the step before the last is done; its GPU never runs dry."""
    trace = run(CALM, CALM)
    assert "cudaEventSynchronize" in trace.strings
    assert "sync" not in {cause.cause for cause in verdict_of(trace)}


def test_every_eager_host_is_late() -> None:
    first = verdict_of(run(EAGER, EAGER))[0]
    assert (first.cause, first.rank) == ("host_late", None)
    assert "record with CUDA graphs" in first.text


def test_an_eager_straggler_is_told_to_use_graphs() -> None:
    first = verdict_of(run(EAGER, replace(EAGER, late_before_target=2_000_000)))[0]
    assert (first.cause, first.rank) == ("straggler_host", 1)
    assert "rank 0 waits" in first.text and first.text.endswith("record with CUDA graphs")


def test_padding_by_the_captured_sizes() -> None:
    """A step of batch 5 replays the graph for 8: three of eight rows of all forward work are padding."""
    plan = replace(CALM, batches=(5,))
    figures = figures_of(run(plan, plan).with_run(Run(graph_batch_sizes=(1, 2, 4, 8, 16))))
    found = next(cause for cause in figures.verdict if cause.cause == "padding")
    work = sum(figures.devices["0"].phase_partition_ns[phase]["compute"] or 0 for phase in ("draft", "verify"))
    assert found.ns_per_step == round(work / figures.devices["0"].steps * 3 / 8)
    assert figures.graphs["0"].captured_batch_size == 8


def test_padding_by_replays_of_the_same_graph() -> None:
    """The same nodes served batch 8 before: nothing needs to say which sizes were captured."""
    plan = replace(CALM, batches=(8, 8, 8, 5))
    found = figures_of(run(plan, plan))
    assert found.graphs["0"].captured_batch_size == 8
    assert found.verdict[0].cause == "padding"


def test_no_padding_at_a_captured_size() -> None:
    plan = replace(CALM, batches=(8,))
    figures = figures_of(run(plan, plan).with_run(Run(graph_batch_sizes=(1, 2, 4, 8, 16))))
    assert "padding" not in {cause.cause for cause in figures.verdict}


def test_one_rank_of_several_cannot_tell_waiting_from_transfer() -> None:
    builder = TraceBuilder().note("world_size", "2")
    for step in (0, 100, 200):
        builder.range(step, step + 50, "step:decode bs=1").launch(step, step + 1, "all_reduce", step + 10, step + 90)
    found = figures_of(builder.trace())
    assert ("unexplained", "collective") in {(cause.cause, cause.part) for cause in found.verdict}
    assert "link_bound" not in {cause.cause for cause in found.verdict}


# -- Planted in the real recordings ----------------------------------------------------------------------------------

BY = 2_000_000
GRAPH, RANKS = "ep2-dflash-graph-c1", (765, 766)
STEP_EAGER, RANKS_EAGER = "ep2-dflash-eager-c1", (3406, 3407)


@cache
def recorded(name: str) -> Trace:
    return open_trace(shared(f"captures/{name}.sqlite.xz"))


def size_of(trace: Trace, cause: str, rank: int | None) -> int:
    return next((c.ns_per_step for c in verdict_of(trace) if (c.cause, c.rank) == (cause, rank)), 0)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("plant", "cause"), [("late_host", "straggler_host"), ("slow_gpu", "straggler_compute")])
def test_straggler_planted_in_graphs(plant: str, cause: str, rank: int) -> None:
    """Where the other rank came last before, the first of the planted time makes up for that: up to 160 us a step."""
    trace = getattr(planting, plant)(recorded(GRAPH), RANKS[rank], RANKS[1 - rank], BY)
    first = verdict_of(trace)[0]
    assert (first.cause, first.rank, first.phase) == (cause, rank, "verify")
    before = size_of(recorded(GRAPH), cause, rank)
    assert BY - 160_000 < first.ns_per_step - before <= BY * 1.01
    assert near(first.ns_per_step, BY + before) or first.ns_per_step < BY + before


def test_late_host_planted_in_eager() -> None:
    trace = planting.late_host(recorded(STEP_EAGER), RANKS_EAGER[1], RANKS_EAGER[0], BY)
    first = verdict_of(trace)[0]
    assert (first.cause, first.rank) == ("straggler_host", 1)
    assert near(first.ns_per_step, size_of(recorded(STEP_EAGER), "straggler_host", 1) + BY)


def test_blocking_call_planted_in_graphs() -> None:
    """Each call costs what comes behind it, 600 us, but at most as long as it blocks."""
    trace = planting.synchronised(recorded(GRAPH), RANKS, 600_000)
    launches, api = trace.launches, len(trace.strings) - 1
    costs = []
    for pid in RANKS:
        mine = (launches.pid == pid) & (launches.api == api)
        costs.append(float(np.minimum((launches.end - launches.start)[mine], 600_000).mean()))
    first = verdict_of(trace)[0]
    assert (first.cause, first.rank) == ("sync", None)
    assert near(first.ns_per_step, min(costs))
    assert "cudaStreamSynchronize" in first.text
