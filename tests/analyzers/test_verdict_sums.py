"""No nanosecond is laid to two causes that have nothing to do with each other, and none to the wrong one."""

from __future__ import annotations

import pytest

from profkit.analyzers.result import Cause
from tests.analyzers.test_verdict import verdict_of
from tests.builders import TraceBuilder

US = 1_000
STEP = 1_000 * US
STEPS = range(0, 8 * STEP, STEP)


def causes(builder: TraceBuilder) -> dict[str, Cause]:
    return {cause.cause: cause for cause in verdict_of(builder.trace())}


def test_a_kernels_launch_call_that_holds_the_host_up_is_told_as_one() -> None:
    """It began before the GPU fell idle, so the gap is a queue by its part; of the drafter it is no cost."""
    builder = TraceBuilder().rank(0)
    for at in STEPS:
        builder.range(at, at + 990 * US, "step:decode bs=1").range(at + US, at + 480 * US, "draft")
        builder.launch(at + 5 * US, at + 10 * US, "gemm", at + 12 * US, at + 200 * US)
        builder.launch(at + 20 * US, at + 470 * US, "gemm", at + 480 * US, at + 500 * US)
        builder.range(at + 481 * US, at + 985 * US, "target")
        builder.launch(at + 485 * US, at + 490 * US, "gemm", at + 500 * US, at + STEP)
    found = causes(builder)
    late = found["host_late"]
    assert (late.phase, late.part) == ("draft", "gap_launch")
    assert "mostly in launch calls while launching draft" in late.text
    assert late.ns_per_step == pytest.approx(290 * US, rel=0.02)
    assert found["drafter_cost"].ns_per_step == pytest.approx(208 * US, rel=0.02)
    assert "queue" not in found


@pytest.mark.parametrize("thread", [100, 777])
def test_time_of_a_thread_without_steps_is_not_between_them(thread: int) -> None:
    builder = TraceBuilder().rank(0)
    for at in STEPS:
        builder.thread(100).range(at, at + 900 * US, "step:decode bs=1").range(at + US, at + 800 * US, "target")
        builder.launch(at + 5 * US, at + 10 * US, "gemm", at + 12 * US, at + 300 * US)
        builder.thread(thread).launch(at + 700 * US, at + 705 * US, "gemm", at + 707 * US, at + STEP)
    assert "between steps" not in causes(builder)["host_late"].text.partition(":")[0].partition("while")[0]


def test_a_host_function_between_steps_is_no_python() -> None:
    builder = TraceBuilder().rank(0)
    for at in STEPS:
        builder.range(at, at + 100 * US, "step:decode bs=1").range(at + US, at + 90 * US, "target")
        builder.launch(at + 5 * US, at + 10 * US, "gemm", at + 12 * US, at + 300 * US)
        builder.call(at + 310 * US, at + 990 * US, "cudaLaunchHostFunc")
    assert "mostly in cudaLaunchHostFunc between steps" in causes(builder)["host_late"].text


@pytest.mark.parametrize(("ends", "told"), [(250, False), (400, True)])
def test_overheads_within_each_other_count_once(ends: int, told: bool) -> None:
    """Of 500 us in which the GPU waits for its host."""
    builder = TraceBuilder().rank(0)
    for at in STEPS:
        builder.range(at, at + STEP, "step:decode bs=1").range(at + US, at + 999 * US, "target")
        builder.launch(at + 500 * US, at + 510 * US, "gemm", at + 512 * US, at + STEP)
        builder.overhead(at + 100 * US, at + ends * US, "CUPTI Buffer flush")
        builder.overhead(at + 110 * US, at + (ends - 10) * US, "CUPTI Instrumentation")
    text = causes(builder)["host_late"].text
    assert ("mostly in CUPTI Buffer flush, the recorder's own work" in text) is told
    assert told or "mostly in Python while launching decode" in text


def test_what_a_prefill_takes_is_its_own() -> None:
    builder = TraceBuilder().rank(0)
    for at in range(0, 16 * STEP, 2 * STEP):
        builder.range(at, at + 100 * US, "step:decode bs=1").range(at + US, at + 90 * US, "target")
        builder.launch(at + 5 * US, at + 10 * US, "gemm", at + 12 * US, at + STEP)
        late = at + STEP + 500 * US
        builder.range(at + STEP, late + 60 * US, "step:prefill bs=1")
        builder.launch(late, late + 5 * US, "gemm", late + 5 * US, at + 2 * STEP)
    found = causes(builder)
    wall = 15 * STEP / 8
    assert found["prefill"].ns_per_step == pytest.approx(7 * STEP / 8)
    assert sum(cause.ns_per_step for cause in found.values()) <= wall - 988 * US


def test_copies_of_the_drafter_are_copies() -> None:
    builder = TraceBuilder().rank(0)
    for at in STEPS:
        builder.range(at, at + 200 * US, "step:decode bs=1").range(at + US, at + 50 * US, "draft")
        builder.launch(at + 5 * US, at + 10 * US, "HtoD", at + 12 * US, at + 300 * US)
        builder.launch(at + 15 * US, at + 20 * US, "gemm", at + 300 * US, at + 500 * US)
        builder.range(at + 60 * US, at + 150 * US, "target")
        builder.launch(at + 70 * US, at + 80 * US, "gemm", at + 500 * US, at + STEP)
    found = causes(builder)
    cost = {name: found[name].ns_per_step for name in ("copies", "drafter_cost", "verify_cost")}
    assert cost == {"copies": 288 * US, "drafter_cost": 200 * US, "verify_cost": 500 * US}


def test_copies_between_steps_are_not_of_them() -> None:
    builder = TraceBuilder().rank(0)
    for at in STEPS:
        builder.range(at, at + 300 * US, "step:decode bs=1").range(at + US, at + 250 * US, "target")
        builder.launch(at + 5 * US, at + 10 * US, "gemm", at + 12 * US, at + 500 * US)
        builder.call(at + 320 * US, at + 325 * US, "cudaMemcpyAsync").op("HtoD", at + 500 * US, at + 900 * US)
    assert "copies" not in causes(builder)


def test_of_two_ranks_one_may_wait_for_the_other() -> None:
    builder = TraceBuilder()
    for rank, end in ((0, 700), (1, 900)):
        builder.rank(rank)
        for at in STEPS:
            builder.range(at, at + 300 * US, "step:decode bs=1").range(at + US, at + 250 * US, "target")
            builder.launch(at + 5 * US, at + 10 * US, "gemm", at + 12 * US, at + 500 * US)
            builder.launch(at + 15 * US, at + 20 * US, "send_recv", at + 500 * US, at + end * US)
    assert causes(builder)["unexplained"].text.endswith(
        "rank 0 spends 200 µs less in them than the other, which may wait for it"
    )


@pytest.mark.parametrize(("also", "said"), [((1,), "rank 1 is"), ((1, 2), "ranks 1 and 2 are")])
def test_ranks_that_are_late_together_are_named(also: tuple[int, ...], said: str) -> None:
    """Rank 0 comes last, 600 us after those in time; the others that are late 10 us before it, and wait for it too."""
    builder = TraceBuilder()
    for rank in range(5 + len(also)):
        late = 600 if rank == 0 else 590 if rank in also else 0
        builder.rank(rank)
        for at in STEPS:
            builder.range(at, at + 900 * US, "step:decode bs=1").range(at + US, at + 890 * US, "target")
            builder.launch(at + 5 * US, at + 10 * US, "gemm", at + 12 * US, at + 112 * US)
            come = at + (100 + late) * US
            builder.launch(come, come + 5 * US, "all_reduce", come + 12 * US, at + 800 * US)
    late_host = next(cause for cause in verdict_of(builder.trace()) if cause.cause == "straggler_host")
    assert late_host.rank == 0 and late_host.ns_per_step == pytest.approx(600 * US, rel=0.02)
    assert late_host.text.startswith("4 ranks wait 600 µs of a 974 µs step in collectives for rank 0 (")
    assert f" for rank 0 ({said} late with it), whose host is late by 600 µs" in late_host.text
