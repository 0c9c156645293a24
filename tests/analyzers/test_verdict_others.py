"""Planted causes beside the engine: other processes on its GPUs, and copies that hold one rank up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profkit.traces import Samples, Trace
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


def sampled(trace: Trace, clocks: tuple[float, ...]) -> Trace:
    """``trace`` with the SM clock of each GPU, sampled every millisecond."""
    times = np.arange(0, int(trace.ops.end.max()), 1_000_000)
    count = len(times) * len(clocks)
    samples = Samples(
        time=np.tile(times, len(clocks)),
        device=np.repeat(np.arange(len(clocks), dtype=np.int32), len(times)),
        counter=np.full(count, len(trace.strings), np.int32),
        value=np.repeat(np.array(clocks), len(times)),
    )
    return replace(trace, samples=samples, strings=(*trace.strings, "sm_clock_mhz"))


@pytest.mark.parametrize(
    ("clocks", "advice"),
    [
        ((1980.0, 1410.0, 1980.0), "as its SM clock is 1,410 MHz and the others' 1,980 MHz"),
        (
            (1980.0, 1970.0, 1980.0),
            "over the ranks, as its SM clock is as high as the others'",
        ),
        ((), "compare the GPU's clocks with the others'"),
    ],
)
def test_sampled_clocks_tell_a_throttled_gpu(clocks: tuple[float, ...], advice: str) -> None:
    trace = run(CALM, replace(CALM, speed=1.4), CALM)
    first = verdict_of(sampled(trace, clocks) if clocks else trace)[0]
    assert (first.cause, first.rank) == ("straggler_compute", 1)
    assert first.text.endswith(advice)


def test_a_rank_with_more_requests() -> None:
    """Data-parallel attention: each rank has requests of its own."""
    first = verdict_of(run(CALM, replace(CALM, speed=1.4, batches=(16,)), replace(CALM, batches=(4,))))[0]
    assert (first.cause, first.rank) == ("straggler_compute", 1)
    assert first.text.endswith("as its steps serve 16 and the others' at most 4")
