"""Planted causes beside the engine: other processes on its GPUs, and copies that hold one rank up."""

from __future__ import annotations

from dataclasses import replace

from tests.analyzers.engine import run
from tests.analyzers.test_verdict import CALM, WORK, cost_of, near, verdict_of

BUSY = replace(CALM, neighbour=1_000_000)
COPIES = replace(CALM, copy_before_target=1_500_000)


def test_another_process_on_one_rank() -> None:
    planted = run(CALM, BUSY, CALM)
    first, *rest = verdict_of(planted)
    assert (first.cause, first.rank, first.phase) == ("straggler_compute", 1, "outside")
    assert near(first.ns_per_step, cost_of(planted, run(CALM, CALM, CALM)))
    assert "process 9001, of which no step is named," in first.text and "ranks 0 and 2 wait 1.00 ms" in first.text
    assert {cause.cause for cause in rest} <= WORK


def test_another_process_on_every_rank() -> None:
    planted = run(BUSY, BUSY)
    first, *rest = verdict_of(planted)
    assert (first.cause, first.rank) == ("other_process", None)
    assert near(first.ns_per_step, cost_of(planted, run(CALM, CALM)))
    assert {cause.cause for cause in rest} <= WORK


def test_another_process_on_the_only_gpu() -> None:
    planted = run(BUSY)
    first = verdict_of(planted)[0]
    assert (first.cause, first.rank) == ("other_process", None)
    assert "process 9000" in first.text and "occupies the GPU for 1.00 ms" in first.text


def test_another_process_beside_a_slow_gpu() -> None:
    """What the rank's own kernels take longer is told apart from what its neighbour takes."""
    planted = run(CALM, replace(BUSY, speed=1.5))
    named = [cause for cause in verdict_of(planted) if cause.rank is not None]
    assert {(cause.cause, cause.rank) for cause in named} == {("straggler_compute", 1)}
    (neighbour,) = (cause.ns_per_step for cause in named if "process 9001, of which no step is named," in cause.text)
    assert near(neighbour, 1_000_000)
    assert near(sum(cause.ns_per_step for cause in named), cost_of(planted, run(CALM, CALM)))


def test_a_rank_that_copies_is_not_told_to_compare_clocks() -> None:
    planted = run(CALM, COPIES)
    first = verdict_of(planted)[0]
    assert (first.cause, first.rank, first.part) == ("straggler_compute", 1, "copy")
    assert near(first.ns_per_step, cost_of(planted, run(CALM, CALM)))
    assert "its GPU copies longer (mostly in verify)" in first.text and "clocks" not in first.text


def test_copies_of_every_rank_are_no_work_of_verify() -> None:
    planted = run(COPIES, COPIES)
    found = verdict_of(planted)
    assert (found[0].cause, found[0].rank, found[0].part) == ("copies", None, "copy")
    assert near(found[0].ns_per_step, cost_of(planted, run(CALM, CALM)))
    assert "mostly memcpy HtoD in verify: copy less, or from and to pinned memory" in found[0].text
    verify = {cause.cause: cause.ns_per_step for cause in found}["verify_cost"]
    assert near(verify, {cause.cause: cause.ns_per_step for cause in verdict_of(run(CALM, CALM))}["verify_cost"])
