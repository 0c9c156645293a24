"""Recordings that cannot be re-played say why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from profkit.analyzers import attribute
from profkit.analyzers.graph_result import GraphPrediction
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.replay import build_model
from profkit.analyzers.replay.forwards import forwards_of
from profkit.analyzers.replay.predict import believed, predict_model
from profkit.traces import Trace
from tests.analyzers.replay.steps import launches, predicted
from tests.builders import TraceBuilder


def steps(builder: TraceBuilder, count: int = 3, collectives: int = 1) -> TraceBuilder:
    """Steps of nine kernels and some all-reduces."""
    for at in range(0, count * 300_000, 300_000):
        builder.range(at, at + 250_000, "step:decode bs=1").range(at + 5_000, at + 240_000, "target")
        launches(builder, at + 10_000, [1_000] * 9)
        for place in range(collectives):
            begin = at + 100_000 + place * 10_000
            builder.launch(begin, begin + 2_000, "all_reduce", begin + 3_000, begin + 8_000)
    return builder


def no_decode() -> Trace:
    return TraceBuilder().rank(0).range(0, 100, "step:prefill bs=1").launch(10, 20, "gemm", 30, 40).trace()


def one_step() -> Trace:
    return steps(TraceBuilder().rank(0), count=1, collectives=0).trace()


def unmatched() -> Trace:
    return steps(steps(TraceBuilder().rank(0)).rank(1), collectives=2).trace()


def one_of_two() -> Trace:
    return steps(TraceBuilder().rank(0)).trace()


def without_launches() -> Trace:
    builder = steps(TraceBuilder().rank(0), collectives=0)
    builder.launches = [row for row in builder.launches if row["correlation"] % 2]
    return builder.trace()


def whole_graphs() -> Trace:
    builder = TraceBuilder().rank(0)
    for at in (0, 1_000):
        builder.range(at, at + 900, "step:decode bs=1").range(at, at + 500, "target")
        builder.call(at + 10, at + 50, "cudaGraphLaunch").op("whole_graph", at + 60, at + 400)
    return builder.trace()


def graphs_already() -> Trace:
    builder = TraceBuilder().rank(0)
    for at in range(0, 5_000, 1_000):
        builder.range(at, at + 900, "step:decode bs=1").range(at, at + 500, "target")
        builder.graph(at + 10, at + 50, *[("gemm", at + 60 + 10 * k, at + 65 + 10 * k) for k in range(10)])
    return builder.trace()


CASES: dict[str, tuple[Callable[[], Trace], str]] = {
    "no decode step": (no_decode, "the recording has no decode step"),
    "one step": (
        one_step,
        "0 decode steps of the recording can be followed to the next one on every device, and a prediction needs 4",
    ),
    "unmatched": (unmatched, "the collectives of ranks cannot be matched: all_reduce differs in 3 of 3 steps"),
    "one rank of two": (one_of_two, "the collectives of ranks cannot be matched: none has a partner in the recording"),
    "no launch records": (
        without_launches,
        "48% of the ops from the first to the last decode step have no launch record",
    ),
    "whole graphs": (whole_graphs, "2 graph launches were recorded whole"),
    "graphs already": (graphs_already, "no forward of a decode step is launched kernel by kernel"),
}


@pytest.mark.parametrize("case", CASES)
def test_says_why(case: str) -> None:
    make, reason = CASES[case]
    found = predicted(make())
    assert found.unknown is not None and found.unknown.startswith(reason)
    assert found.step_ns is found.low_ns is found.self_check_error is None


def three_periods() -> Trace:
    return steps(TraceBuilder().rank(0), count=4, collectives=0).trace()


def test_three_periods_are_too_few() -> None:
    found = predicted(three_periods())
    assert found.unknown is not None and found.unknown.startswith("3 decode steps") and found.step_ns is None
    assert predicted(steps(TraceBuilder().rank(0), count=5, collectives=0).trace()).unknown is None


def uneven(pauses: list[int]) -> Trace:
    """Steps of ten kernels; the host pauses for so long behind each."""
    builder, at = TraceBuilder().rank(0), 0
    for pause in pauses:
        builder.range(at, at + 140_000 + pause, "step:decode bs=1").range(at + 5_000, at + 140_000, "target")
        launches(builder, at + 10_000, [1_000] * 10)
        at += 150_000 + pause
    return builder.trace()


def test_bounds_far_apart_say_nothing() -> None:
    found = predicted(uneven([50_000, 5_000_000, 50_000, 50_000, 5_000_000, 5_000_000, 50_000, 50_000]))
    assert found.unknown is not None and "lie too far apart" in found.unknown
    assert found.step_ns is found.low_ns is found.high_ns is None and found.recorded_ns == 200_000


def test_a_step_longer_than_graphs_explain_is_not_believed() -> None:
    likely = GraphPrediction(step_ns=1_100, low_ns=900, high_ns=1_200, recorded_ns=1_000)
    assert believed(likely, costs=100) == likely
    found = believed(likely, costs=99)
    assert found.step_ns is None and found.unknown is not None and "100 ns longer than recorded" in found.unknown


def delayed() -> Trace:
    """Before the sixth of ten kernels of each step, the GPU pauses for 950 us, for a reason that is not recorded."""
    builder, free = TraceBuilder().rank(0), 0
    for at in range(0, 6 * 150_000, 150_000):
        builder.range(at, at + 149_000, "step:decode bs=1").range(at + 5_000, at + 140_000, "target")
        for place in range(10):
            begin = at + 10_000 + 10_000 * place
            start = max(begin + 3_000, free + 1_000) + 950_000 * (place == 5)
            builder.launch(begin, begin + 2_000, "gemm", start, start + 40_000)
            free = start + 40_000
    return builder.trace()


def test_no_bound_below_the_work_of_the_gpu() -> None:
    attribution = attribute(delayed())
    model = build_model(attribution, match_collectives(attribution))
    found = predict_model(model, forwards_of(attribution, model), None)
    # Ten kernels of 40 us, 3 % shorter.
    assert found.low_ns is not None and found.low_ns >= 388_000
