"""Steps worked out by hand: bound by the host, by the GPU, by a late rank, by a synchronisation between phases."""

from __future__ import annotations

import pytest

from profkit.traces import Run, Trace
from tests.analyzers.replay.steps import launches, model_of, off_by, periods_of, predicted, with_graphs
from tests.builders import TraceBuilder

STEPS = 5
PERIODS = STEPS - 1


def host_bound() -> Trace:
    """Ten kernels of 1 us, launched 10 us apart; a step every 200 us."""
    builder = TraceBuilder().rank(0)
    for at in range(0, STEPS * 200_000, 200_000):
        builder.range(at, at + 150_000, "step:decode bs=1").range(at + 5_000, at + 140_000, "target")
        launches(builder, at + 10_000, [1_000] * 10)
    return builder.trace()


def gpu_bound() -> Trace:
    """Ten kernels of 30 us, launched 5 us apart; a step every 200 us on the host, every 310 us on the GPU."""
    builder = TraceBuilder().rank(0)
    free = 0
    for at in range(0, STEPS * 200_000, 200_000):
        builder.range(at, at + 150_000, "step:decode bs=1").range(at + 5_000, at + 140_000, "target")
        free = launches(builder, at + 10_000, [30_000] * 10, every=5_000, free=free)
    return builder.trace()


def one_late() -> Trace:
    """Two ranks that meet in an all-reduce of 5 us; the second launches 20 us apart, the first 10 us."""
    builder = TraceBuilder()
    for rank, every in ((0, 10_000), (1, 20_000)):
        builder.rank(rank)
        for at in range(0, STEPS * 300_000, 300_000):
            builder.range(at, at + 250_000, "step:decode bs=1").range(at + 5_000, at + 240_000, "target")
            launches(builder, at + every, [1_000] * 9, every)
            begin = at + 10 * every
            builder.launch(begin, begin + 2_000, "all_reduce", begin + 3_000, at + 208_000)
    return builder.trace()


def synchronised() -> Trace:
    """A draft whose last kernel takes 50 us, a synchronisation that waits for it, and the target; 400 us a step."""
    builder = TraceBuilder().rank(0)
    for at in range(0, STEPS * 400_000, 400_000):
        builder.range(at, at + 300_000, "step:decode bs=1")
        builder.range(at + 5_000, at + 104_000, "draft").range(at + 158_000, at + 290_000, "target")
        launches(builder, at + 10_000, [1_000] * 9 + [50_000])
        builder.call(at + 105_000, at + 155_000, "cudaStreamSynchronize")
        launches(builder, at + 160_000, [1_000] * 10)
    return builder.trace()


CASES = {"host-bound": host_bound, "GPU-bound": gpu_bound, "one rank late": one_late, "synchronised": synchronised}


@pytest.mark.parametrize("case", CASES)
def test_as_recorded(case: str) -> None:
    assert off_by(CASES[case]()) == 0


def test_host_bound() -> None:
    assert periods_of(model_of(host_bound())) == [[200_000] * PERIODS]
    # 108 us from the last launch of a step to the first of the next one, and 20 us for the one call between.
    assert periods_of(with_graphs(host_bound())) == [[128_000] * PERIODS]


def test_gpu_bound() -> None:
    assert periods_of(model_of(gpu_bound())) == [[310_000] * PERIODS]
    # Ten kernels, nine gaps of 0.5 us inside the graph and 1 us between graphs.
    assert periods_of(with_graphs(gpu_bound())) == [[305_500] * PERIODS]


def test_waiting_for_a_late_rank_vanishes() -> None:
    assert periods_of(model_of(one_late())) == [[300_000] * PERIODS] * 2
    first, second = periods_of(with_graphs(one_late()))
    # The first rank's host needs 208 us between steps and 20 us for the call; the second one's only 118 us.
    assert first == [228_000] * PERIODS
    # It runs ahead until its fourth step, which waits for the first rank's third all-reduce: that starts 456 us after
    # 27.5 us and takes 5 us; 1 us later, the first kernel starts. The step before began 276 us after 24 us.
    assert second == [138_000, 138_000, (456_000 + 27_500 + 5_000 + 1_000) - (276_000 + 24_000), 228_000]


def test_blocking_calls_still_block() -> None:
    assert periods_of(model_of(synchronised())) == [[400_000] * PERIODS]
    # Draft 14 to 77.5 us, return 2 us later, 5 us to the target's launch, its call 20 us, 158 us to the next step.
    assert periods_of(with_graphs(synchronised())) == [[77_500 + 2_000 + 5_000 + 20_000 + 158_000 - 10_000] * PERIODS]


def test_costs_are_multiples_of_a_launch_call() -> None:
    found = predicted(host_bound())
    assert found.unknown is None and found.self_check_error == 0 and found.steps == STEPS
    assert found.phases == ("decode",)
    # 108 us of host, and (7.3 + 0.167 * 10) launch calls of 2 us; bounds with (5.7 + 0.13 * 10), (11.3 + 0.259 * 10).
    assert (found.low_ns, found.step_ns, found.high_ns) == (122_000, 125_940, 135_780)
    assert found.recorded_ns == found.as_recorded_ns == found.explained_ns == 200_000


def test_host_at_the_pace_of_the_throughput() -> None:
    # One token per step of 180 us without a recorder: the host is 10 % faster.
    found = predicted(host_bound().with_run(Run(tokens_per_s=1e9 / 180_000)))
    assert found.host_pace == pytest.approx(0.9, abs=0.01)
    assert found.step_ns == pytest.approx(0.9 * 125_940, rel=0.01)
    assert found.high_ns == 135_780
    assert any("0.90 times as long as in the recording" in sentence for sentence in found.assumptions)


def test_throughput_that_the_host_cannot_explain_is_left_alone() -> None:
    for trace, unrecorded, why in (
        (gpu_bound(), 200_000, "200 µs, which the recorded one of 310 µs has at no pace of the host"),
        (host_bound(), 300_000, "300 µs, and the recorded one of 200 µs is no longer than that"),
        (host_bound(), 90_000, "90.0 µs, under half of the recorded 200 µs"),
    ):
        found = predicted(trace.with_run(Run(tokens_per_s=1e9 / unrecorded)))
        assert found.host_pace == 1
        assert any(f"the throughput without a recorder means a step of {why}" in said for said in found.assumptions)
    assert any("no throughput without a recorder says" in said for said in predicted(host_bound()).assumptions)
