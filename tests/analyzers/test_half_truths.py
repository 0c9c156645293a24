"""Sentences and checks that would be half true: of healthy recordings, and of causes that only look like another."""

from __future__ import annotations

import pytest

from profkit import Recording, Trace, analyze
from profkit.analyzers.attribution import attribute
from profkit.analyzers.lateness import blocking_cost
from profkit.analyzers.result import TraceFigures
from tests.builders import TraceBuilder
from tests.resources import calls_of

MS = 1_000_000


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("case", "case", trace)])[0].traces[0]


def warned(figures: TraceFigures, check: str) -> list[str]:
    return [one.detail for one in figures.health.checks if one.id == check and one.status == "warn"]


def begin_step(builder: TraceBuilder, at: int, length: int = MS, batch: int = 1) -> None:
    builder.range(at, at + length - 10_000, f"step:decode bs={batch}").range(at + 1, at + length - 20_000, "target")


def long_steps(every: int, batch: int) -> Trace:
    """20 steps of 1 ms; each n-th has ``batch`` and a kernel of 10 ms. The host is late by 200 us in all of them."""
    builder, at = TraceBuilder().rank(0), 0
    for number in range(20):
        is_long = number % every == 2
        length = 10 * MS if is_long else MS
        begin_step(builder, at, length, batch if is_long else 1)
        builder.launch(at + 200_000, at + 200_500, "gemm", at + 201_000, at + length - 5_000)
        at += length
    return builder.trace()


def test_a_long_kernel_in_one_step_is_not_why_the_host_is_late_in_all() -> None:
    figures = figures_of(long_steps(100, 1))
    assert figures.verdict[0].cause == "host_late" and "But" not in figures.summary
    assert len(warned(figures, "outliers")) == 1


def test_larger_batches_are_no_outliers() -> None:
    assert warned(figures_of(long_steps(6, 128)), "outliers") == []


@pytest.mark.parametrize(("batch", "cut"), [(1, 0), (8, 1)])
def test_a_last_step_of_a_smaller_batch_is_whole(batch: int, cut: int) -> None:
    """Its graph has fewer kernels; with the batch of the others some would be missing."""
    builder = TraceBuilder().rank(0)
    for number in range(12):
        at, is_last = number * MS, number == 11
        begin_step(builder, at, batch=batch if is_last else 8)
        starts = range(at + 10_000, at + 10_000 + (18 if is_last else 20) * 40_000, 40_000)
        builder.graph(at + 10, at + 5_000, *[("gemm", start, start + 35_000) for start in starts])
    assert len(warned(figures_of(builder.trace()), "cut_steps")) == cut


def test_a_hidden_transfer_is_not_looked_at_first() -> None:
    """6 ms of it run beside compute: shortening it would save nothing."""
    builder = TraceBuilder()
    for rank in (0, 1):
        builder.rank(rank)
        for at in range(0, 120 * MS, 10 * MS):
            begin_step(builder, at, 10 * MS)
            for number in range(15):
                start = at + 5_000 + number * 120_000
                builder.launch(at + 10 + number * 300, at + 100 + number * 300, "all_reduce", start, start + 100_000)
            builder.launch(at + 8_000, at + 8_100, "all_reduce", at + 2 * MS, at + 8 * MS, 8)
            builder.launch(at + 8_200, at + 8_300, "gemm", at + 2 * MS + 100, at + 8 * MS + 100_000)
    (transfer,) = [cause for cause in figures_of(builder.trace()).verdict if cause.cause == "link_bound"]
    assert "take 1.50 ms" in transfer.text and "look at that one" not in transfer.text


def test_more_compute_than_copying_is_compute() -> None:
    """60 us longer in each of two kernels and 110 us in a copy: the copy is the dearest single place."""
    builder = TraceBuilder()
    for rank in (0, 1):
        builder.rank(rank)
        more, copied = (0, 0) if rank else (60_000, 110_000)
        for at in range(0, 12 * MS, MS):
            begin_step(builder, at)
            builder.range(at + 1, at + 300_000, "draft")
            builder.launch(at + 10, at + 20, "gemm", at + 1_000, at + 200_000 + more)
            builder.launch(at + 300_010, at + 300_020, "gemm", at + 301_000, at + 400_000 + more)
            copy = at + 400_000 + more
            builder.launch(at + 300_030, at + 300_040, "HtoD", copy, copy + 10_000 + copied)
            builder.launch(at + 300_050, at + 300_060, "all_reduce", copy + 10_000 + copied, at + 700_000)
    (late,) = [cause for cause in figures_of(builder.trace()).verdict if cause.cause == "straggler_compute"]
    assert (late.rank, late.part) == (0, "compute") and "works longer" in late.text


def test_a_rank_without_named_steps_is_no_stranger() -> None:
    builder = TraceBuilder().rank(0)
    for at in range(0, 12 * MS, MS):
        begin_step(builder, at)
        builder.launch(at + 10, at + 500, "gemm", at + 1_000, at + 400_000)
    builder.rank(1).device(0)
    for at in range(0, 12 * MS, MS):
        builder.launch(at + 410_000, at + 410_500, "gemm", at + 411_000, at + 800_000)
    assert "other_process" not in {cause.cause for cause in figures_of(builder.trace()).verdict}


def test_a_neighbour_is_charged_no_more_than_its_own_time() -> None:
    """Rank 0 works 150 us longer between steps, and another process 100 us behind that: 250 us in all."""
    builder = TraceBuilder()
    for rank in (0, 1):
        builder.rank(rank)
        for at in range(0, 12 * MS, MS):
            builder.launch(at + 10, at + 20, "gemm", at + 1_000, at + (300_000 if rank else 450_000))
            builder.range(at + 200_000, at + 990_000, "step:decode bs=1").range(at + 200_001, at + 980_000, "target")
            ready = at + (300_000 if rank else 550_000)
            builder.launch(at + 200_010, at + 200_020, "all_reduce", ready, at + 600_000)
            builder.launch(at + 200_050, at + 200_060, "gemm", at + 610_000, at + 990_000)
    builder.rank(0).thread(9)
    builder.pid = 9
    for at in range(0, 12 * MS, MS):
        builder.launch(at + 10, at + 20, "gemm", at + 450_000, at + 550_000)
    late = [cause for cause in figures_of(builder.trace()).verdict if cause.cause == "straggler_compute"]
    (neighbour,) = [cause.ns_per_step for cause in late if "process 9" in cause.text]
    (own,) = [cause.ns_per_step for cause in late if "works longer" in cause.text]
    assert (neighbour, neighbour + own) == pytest.approx((100_000, 250_000), rel=0.1)


def test_a_communicator_of_prefill_only_beside_a_mismatch() -> None:
    builder = TraceBuilder()
    for rank in (0, 1):
        builder.rank(rank)
        for number in range(6):
            at = number * 1_000
            begin_step(builder, at, 1_000 + 20_000)
            for place in range(0, 300, 100):
                if (rank, number, place) != (1, 3, 100):
                    builder.collective_call(at + place + 5, at + place + 20, "all_reduce", "decoding")
                    start = at + place + 30
                    builder.launch(at + place + 10, at + place + 15, "all_reduce", start, start + 30)
        builder.range(6_000, 6_900, "step:prefill bs=1").collective_call(6_105, 6_120, "all_reduce", "prefilling")
        builder.launch(6_110, 6_115, "all_reduce", 6_130, 6_160)
    assert "all_reduce differs in 1 of 6 steps" in warned(figures_of(builder.trace()), "collectives")[0]


def test_blocking_calls_cost_as_much_work_as_they_are_many() -> None:
    def cost(steps: int) -> int:
        builder = TraceBuilder().rank(0)
        for at in range(0, steps * MS, MS):
            begin_step(builder, at)
            for place in range(5):
                start = at + 10 + place * 180_000
                builder.launch(start, start + 18_000, "gemm", start + 22_000, start + 90_000)
                builder.call(start + 22_000, start + 90_100, "cudaStreamSynchronize")
        attribution = attribute(builder.trace())
        assert len(blocking_cost(attribution, 0).row) > 4 * steps
        return calls_of(lambda: blocking_cost(attribution, 0))

    assert cost(200) < 2 * cost(20)
