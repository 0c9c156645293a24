"""What is launched as graphs: forwards that block, that run on several streams, one phase of two."""

from __future__ import annotations

import pytest

from profkit.traces import Trace
from tests.analyzers.replay.steps import launches, predicted
from tests.builders import TraceBuilder


def blocked(every: int, layers: int = 20) -> Trace:
    """Twenty kernels a step, with a synchronisation behind every so many, and 40 us of host work behind that."""
    builder, at = TraceBuilder().rank(0), 0
    for _ in range(6):
        begin, now = at, at + 10_000
        for layer in range(1, layers + 1):
            builder.launch(now, now + 2_000, "gemm", now + 3_000, now + 8_000)
            if layer % every == 0:
                builder.call(now + 3_000, now + 10_000, "cudaStreamSynchronize")
                now += 40_000
            now += 10_000
        builder.range(begin, now + 10_000, "step:decode bs=1").range(begin + 5_000, now, "target")
        at = now + 20_000
    return builder.trace()


def test_a_forward_that_blocks_too_often_is_unknown() -> None:
    found = predicted(blocked(every=1))
    assert found.unknown == "the forward of decode synchronises in 19 places (target, cudaStreamSynchronize)"


def test_a_forward_is_cut_where_it_blocks() -> None:
    found = predicted(blocked(every=10))
    assert any(
        "synchronises in 1 place (target, cudaStreamSynchronize); it is cut" in said for said in found.assumptions
    )
    # Twice: call to first op, ten kernels, nine gaps, return, 40 us of host; and 30 us between steps.
    assert found.step_ns == pytest.approx(2 * (6_600 + 50_000 + 4_590 + 2_000 + 40_000) + 30_000, rel=0.001)
    assert found.recorded_ns is not None and found.step_ns < found.recorded_ns


def two_streams(waits: bool, layers: int = 20) -> Trace:
    """A kernel, two beside each other on two streams, and one behind both; the host says so, or does not."""
    builder, now = TraceBuilder().rank(0), 0
    for _ in range(6):
        begin, free, side = now, 0, 0
        now += 10_000
        for _ in range(layers):
            for stream, length, joins in ((7, 5_000, False), (8, 10_000, True), (7, 5_000, False), (7, 5_000, True)):
                start = max(now + 3_000, free + 1_000)
                if joins and waits:
                    builder.call(now - 2_000, now - 1_500, "cudaStreamWaitEvent")
                if joins:
                    start = max(start, side + 1_000)
                builder.launch(now, now + 2_000, "gemm", start, start + length, stream)
                free, side = (start + length, side) if stream == 7 else (free, start + length)
                now += 12_000
        builder.range(begin + 5_000, now + 1_000, "target").range(begin, now + 19_000, "step:decode bs=1")
        now = max(now + 20_000, free)
    return builder.trace()


def test_streams_that_join_in_a_forward() -> None:
    found = predicted(two_streams(waits=True))
    # 5, 10 and 5 us and three gaps; the upper bound has all four one after the other, as recorded.
    critical, serial = 20 * (20_000 + 3 * 510), 20 * (25_000 + 4 * 825)
    assert found.step_ns == pytest.approx(critical, rel=0.01)
    assert found.high_ns is not None and found.high_ns >= serial


def test_streams_that_nothing_orders_are_unknown() -> None:
    found = predicted(two_streams(waits=False))
    assert found.unknown is not None and found.unknown.startswith(
        "the forward of decode runs on 2 streams, and no call"
    )


def test_one_phase_of_two_is_eager() -> None:
    builder = TraceBuilder().rank(0)
    for at in range(0, 6 * 400_000, 400_000):
        builder.range(at, at + 390_000, "step:decode bs=1").range(at + 5_000, at + 50_000, "draft")
        nodes = [("gemm", at + 25_000 + 1_500 * place, at + 26_000 + 1_500 * place) for place in range(10)]
        builder.graph(at + 6_000, at + 20_000, *nodes).range(at + 60_000, at + 380_000, "target")
        launches(builder, at + 70_000, [1_000] * 20)
    found = predicted(builder.trace())
    assert found.unknown is None and found.phases == ("verify",)
    assert found.step_ns is not None and found.recorded_ns is not None and found.step_ns < found.recorded_ns
