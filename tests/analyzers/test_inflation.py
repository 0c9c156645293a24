"""What recording costs: worked out by hand, and planted in a made-up engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit import Recording, analyze
from profkit.analyzers.inflation import grouped
from profkit.analyzers.inflation_result import Inflation, InflationPart
from profkit.analyzers.result import TraceFigures
from profkit.analyzers.vocabulary import PARTS
from profkit.traces import RecordingCost, Run, StepTimes, Trace
from tests.analyzers.engine import Plan, run
from tests.builders import TraceBuilder


def timed(median: int, low: int | None = None, high: int | None = None) -> StepTimes:
    return StepTimes(median, median if low is None else low, median if high is None else high, 100)


def graph_steps(run: Run, host: int = 200, kernel: int = 400, prefill_at: int | None = None) -> Trace:
    """Five steps: ``host`` of Python, 100 to the graph's first kernel, ``kernel``, a gap of 100, a kernel of 200."""
    builder = TraceBuilder().rank(0).run(run)
    at = 0
    for step in range(5):
        call, first = at + host, at + host + 100
        builder.range(at, call + 90, "step:decode bs=1").range(at, call + 80, "target")
        builder.graph(
            call, call + 50, ("gemm", first, first + kernel), ("gemm", first + kernel + 100, first + kernel + 300)
        )
        at = first + kernel + 300
        if step == prefill_at:
            builder.range(at, at + 900, "step:prefill bs=1").launch(at + 10, at + 20, "gemm", at + 50, at + 5_000)
            at += 5_000
    return builder.trace()


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("run", "", trace)])[0].traces[0]


def inflation_of(trace: Trace) -> Inflation:
    found = figures_of(trace).inflation
    assert found is not None
    return found


def cells_of(found: Inflation) -> dict[tuple[str, str], tuple[int | None, ...]]:
    return {(r.phase, r.part): (r.recorded_ns, r.unrecorded_ns, r.low_ns, r.high_ns) for r in found.parts}


def test_host_time_gives_most() -> None:
    """A step of 1000 ns takes 800 without nsys: of the 200, shares are as 600 : 20000 : 10000 : 100.

    Any of those could have given all 200, or all it has, or nothing.
    """
    found = inflation_of(graph_steps(Run(step_times=timed(800), recorder="nsys")))
    assert (found.recorder, found.recorded_ns, found.measured_ns, found.unrecorded_ns) == ("nsys", 1000, 800, 800)
    assert (found.ratio, found.ratio_error) == (1.25, None)
    assert cells_of(found) == {
        ("decode", "compute"): (600, 596, 400, 600),
        ("decode", "gap_host"): (200, 70, 0, 200),
        ("decode", "gap_graph_launch"): (100, 35, 0, 100),
        ("decode", "gap_in_graph"): (100, 99, 0, 100),
    }
    assert (found.ops, found.unions) == ({"decode": 2}, {"decode": 600})


def test_what_a_part_cannot_give_the_others_do() -> None:
    """Of 500 ns the host's 300 give all; kernels give 500 less the 400 of all others at least."""
    found = inflation_of(graph_steps(Run(step_times=timed(500), recorder="cupti")))
    assert cells_of(found) == {
        ("decode", "compute"): (600, 428, 100, 500),
        ("decode", "gap_host"): (200, 0, 0, 200),
        ("decode", "gap_graph_launch"): (100, 0, 0, 100),
        ("decode", "gap_in_graph"): (100, 72, 0, 100),
    }


def test_at_the_same_contexts_by_the_same_clock() -> None:
    """Steps without a recorder take 800 in the median, but those with the window's contexts take 1000 / 1.1 ± 0.02."""
    run = Run(step_times=timed(800, 700, 1_100), recording_cost=RecordingCost(1.1, 0.02, 60, 9), recorder="nsys")
    found = inflation_of(graph_steps(run))
    assert (found.low_ns, found.unrecorded_ns, found.high_ns) == (893, 909, 926)
    assert (found.steps_low_ns, found.measured_ns, found.steps_high_ns) == (700, 800, 1_100)
    assert (found.ratio, found.ratio_error) == (1.1, 0.02)
    assert found.text == (
        "recording by nsys made a step 1.100 ± 0.020 times as long as without at the same contexts (1.00 µs instead of "
        "909 ns)"
    )
    assert cells_of(found)["decode", "compute"] == (600, 598, 493, 600)


def test_a_recording_that_keeps_the_longer_steps_of_its_window() -> None:
    """The window's median step takes 950 by the host's clock, the kept ones 1000: without, 864 or 909, ± 0.02."""
    cost = RecordingCost(1.1, 0.02, 60, 9)
    run = Run(step_times=timed(800), step_times_recorded=timed(950), recording_cost=cost)
    found = inflation_of(graph_steps(run))
    assert (found.low_ns, found.unrecorded_ns, found.high_ns) == (round(950 / 1.12), 909, round(1000 / 1.08))


def test_the_band_of_the_timed_steps_where_contexts_are_not_known() -> None:
    """80 % of steps lie between 700 and 900: the recorded 1000 are 1.25 times the median, and 1.11 to 1.43 times."""
    found = inflation_of(graph_steps(Run(step_times=timed(800, 700, 900))))
    assert (found.low_ns, found.unrecorded_ns, found.high_ns) == (700, 800, 900)
    assert cells_of(found)["decode", "gap_host"] == (200, 70, 0, 200)
    assert cells_of(found)["decode", "compute"] == (600, 596, 300, 600)


def test_steps_with_a_prefill_are_left_out() -> None:
    found = inflation_of(graph_steps(Run(step_times=timed(800)), prefill_at=1))
    assert found.recorded_ns == 1000
    assert cells_of(found)["decode", "compute"] == (600, 596, 400, 600)
    assert {row.phase for row in found.parts} == {"decode"}


def waiting(run: Run) -> Trace:
    """Rank 0 waits 300 ns in each all-reduce for rank 1, which is in Python for 200 of them and launches for 100."""
    builder = TraceBuilder().run(run)
    for step in range(4):
        at = step * 1_000
        for rank, work, call, begin in ((0, 200, 310, 500), (1, 100, 700, 800)):
            builder.rank(rank).range(at, at + 850, "step:decode bs=1").range(at, at + 840, "target")
            builder.launch(at + 100, at + 150, "gemm", at + 300, at + 300 + work)
            builder.launch(at + call, at + call + 50, "all_reduce", at + begin, at + 900)
    return builder.trace()


def test_waiting_for_a_late_host_gives_too() -> None:
    """Of 400 ns in the collective, 300 are waiting for the other rank's host; 400 are its own, and 300 GPU time."""
    found = inflation_of(waiting(Run(step_times=timed(650))))
    rows = {row.part: (row.recorded_ns, row.lengthened_ns, row.unrecorded_ns) for row in found.parts}
    assert rows["collective"] == (400, 300, 250)
    assert rows["compute"] == (200, 0, 199)
    gaps = [values for part, values in rows.items() if part.startswith("gap_")]
    assert (sum(v[0] for v in gaps), sum(v[2] or 0 for v in gaps)) == (400, 201)


GRAPHS = Plan()
EAGER = Plan(eager=True, speed=0.02, python_per_launch=12_000)
LATE = Plan(late_before_target=600_000, block_after_draft=True)
PLANTED = {
    "host": ((EAGER,), (replace(EAGER, python_per_launch=16_000),)),
    "gaps in graphs": ((GRAPHS,), (replace(GRAPHS, gap=900),)),
    "kernels too": ((GRAPHS,), (replace(GRAPHS, gap=900, speed=1.01),)),
    "both": ((LATE,), (replace(LATE, late_before_target=800_000, gap=700),)),
    "another rank": ((GRAPHS, LATE), (replace(GRAPHS, gap=700), replace(LATE, late_before_target=800_000, gap=700))),
}


def by_part(found: Inflation) -> dict[str, InflationPart]:
    rows = {part: grouped(found, (part,), part) for part in PARTS}
    return {part: row for part, row in rows.items() if row is not None}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_recorder_is_taken_out(name: str) -> None:
    """What the engine's step is without the planted cost: within 0.9 % of it, and within the range of each part."""
    plain, recorded = (run(*plans) for plans in PLANTED[name])
    truth = inflation_of(plain)
    assert truth.recorded_ns is not None
    found = inflation_of(recorded.with_run(Run(step_times=timed(truth.recorded_ns))))
    assert found.ratio is not None and found.ratio > 1.005
    expected = {part: row.recorded_ns for part, row in by_part(truth).items()}
    for part, row in by_part(found).items():
        true = expected.pop(part, 0)
        assert row.low_ns is not None and row.unrecorded_ns is not None and row.high_ns is not None
        assert row.low_ns <= true <= row.high_ns
        assert abs(row.unrecorded_ns - true) < 0.009 * truth.recorded_ns
    assert expected == {}
