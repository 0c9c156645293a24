"""Costs of recording that cannot be told, and what is said of them and of those that can."""

from __future__ import annotations

import pytest

from profkit.traces import RecordingCost, Run, StepTimes
from tests.analyzers.test_inflation import figures_of, graph_steps, inflation_of, timed
from tests.builders import TraceBuilder


def test_a_recording_of_other_steps_than_its_window_has() -> None:
    """The kept steps take 43 % longer than the window's median: what the window's cost is, theirs need not be."""
    run = Run(
        step_times=timed(600), step_times_recorded=timed(700), recording_cost=RecordingCost(1.1, 0.02, 60, 9),
        recorder="nsys",
    )  # fmt: skip
    found = inflation_of(graph_steps(run))
    assert (found.unrecorded_ns, found.low_ns, found.high_ns, found.ratio) == (None, None, None, 1.1)
    assert all(row.unrecorded_ns is None for row in found.parts)
    assert found.text == (
        "recording by nsys made the steps of its window (median 700 ns) 1.100 ± 0.020 times as long as without at the "
        "same contexts, but the steps that the recording holds take 1.00 µs: of them it is not known"
    )


def test_a_window_alone_does_not_tell_how_windows_differ() -> None:
    """Without windows that were not recorded, 3 % may be a mode of the GPU."""
    found = inflation_of(graph_steps(Run(step_times=timed(800), recording_cost=RecordingCost(1.02, 0.004, 60))))
    assert found.unrecorded_ns == 1000 and found.ratio_error == pytest.approx(0.0303, abs=1e-4)


@pytest.mark.parametrize("ratio", [0.995, 1.005])
def test_nothing_is_taken_out_that_cannot_be_told(ratio: float) -> None:
    run = Run(step_times=timed(800), recording_cost=RecordingCost(ratio, 0.01, 60, 9), recorder="nsys")
    found = inflation_of(graph_steps(run))
    assert (found.unrecorded_ns, found.high_ns) == (1000, 1000)
    assert found.low_ns == round(1000 / (ratio + 0.01))
    assert all(row.unrecorded_ns == row.recorded_ns for row in found.parts)
    assert "cannot be told from the spread (a step is" in found.text


@pytest.mark.parametrize(
    ("times", "status", "said"),
    [
        (
            timed(800),
            "warn",
            "recording by nsys made a step 1.25 times as long (1.00 µs instead of 800 ns): the figures without it are "
            "beside",
        ),
        (timed(950), "ok", "recording by nsys made a step 1.05 times as long (1.00 µs instead of 950 ns)"),
        (
            timed(1_020, 990, 1_100),
            "ok",
            "what recording by nsys cost cannot be told from the spread (a step takes 1.00 µs recorded, 1.02 µs "
            "without it, where eight of ten take 990 ns to 1.10 µs)",
        ),
        (
            timed(800, 700, 1_200),
            "warn",
            "what recording by nsys cost cannot be told from the spread (a step takes 1.00 µs recorded, 800 ns without "
            "it, where eight of ten take 700 ns to 1.20 µs)",
        ),
        (
            timed(2_000, 1_500, 2_500),
            "warn",
            "a step recorded by nsys takes 1.00 µs, less than nine of ten without it (median 2.00 µs): they did other "
            "work, and what recording cost is not known",
        ),
    ],
)
def test_health_says_what_recording_cost(times: StepTimes, status: str, said: str) -> None:
    figures = figures_of(graph_steps(Run(step_times=times, recorder="nsys")))
    (check,) = (check for check in figures.health.checks if check.id == "inflation")
    assert (check.status, check.detail) == (status, said)


def test_nothing_is_taken_from_steps_that_are_no_longer() -> None:
    found = inflation_of(graph_steps(Run(step_times=timed(1_020, 990, 1_100))))
    assert (found.unrecorded_ns, found.measured_ns) == (1000, 1020)
    assert all(row.unrecorded_ns == row.recorded_ns for row in found.parts)


def test_unknown_without_timed_steps() -> None:
    found = inflation_of(graph_steps(Run(accept_len=1.0, tokens_per_s=1.25e6)))
    assert found.unrecorded_ns is None and found.ratio is None
    assert (found.unknown, found.at_most_ns) == ("no step was timed without a recorder", 800)
    assert [row.unrecorded_ns for row in found.parts] == [None] * 4


def test_the_step_is_known_where_its_parts_are_not() -> None:
    builder = TraceBuilder().rank(0).note("graph_mode", "graph").run(Run(step_times=timed(80_000)))
    for at in range(0, 400_000, 100_000):
        builder.range(at, at + 50_000, "step:decode bs=1")
        builder.call(at + 1_000, at + 5_000, "cudaGraphLaunch").node("whole_graph", at + 6_000, at + 46_000)
    found = inflation_of(builder.trace())
    assert (found.unrecorded_ns, found.ratio, found.parts) == (80_000, 1.25, ())
