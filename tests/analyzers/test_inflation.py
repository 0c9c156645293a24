"""What recording costs: worked out by hand, and what must hold for any recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit import Recording, analyze
from profkit.analyzers.inflation import grouped
from profkit.analyzers.inflation_parts import apportioned, without_excess
from profkit.analyzers.inflation_result import Inflation, InflationPart
from profkit.analyzers.result import TraceFigures
from profkit.analyzers.vocabulary import PARTS
from profkit.traces import RecordingCost, Run, StepTimes, Trace, open_recordings
from tests.analyzers.engine import Plan, run
from tests.analyzers.random_traces import traces
from tests.builders import TraceBuilder

TRACES = Path(__file__).parents[2] / "traces"


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


weights = st.lists(st.integers(0, 10**9), min_size=1, max_size=30)


@given(weights, st.integers(0, 10**10))
def test_shares_sum_to_what_is_shared(own: list[int], total: int) -> None:
    found = apportioned(total, own)
    assert sum(found) == (total if any(own) else 0) and min(found) >= 0
    if total <= sum(own):
        assert all(part <= weight for part, weight in zip(found, own, strict=True))


@given(st.lists(st.tuples(st.integers(0, 10**8), st.floats(0, 1)), min_size=1, max_size=30), st.data())
def test_estimates_of_any_step(cells: list[tuple[int, float]], data: st.DataObject) -> None:
    recorded, host = [own for own, _ in cells], [int(own * part) for own, part in cells]
    target = data.draw(st.integers(0, sum(recorded) + 100))
    most = [data.draw(st.integers(late, own)) for own, late in zip(recorded, host, strict=True)]
    found = without_excess(recorded, host, target, most)
    assert sum(found) == min(target, sum(recorded))
    assert all(0 <= one <= own for one, own in zip(found, recorded, strict=True))
    if sum(recorded) - target <= sum(most):
        assert all(own - one <= can for one, own, can in zip(found, recorded, most, strict=True))


@settings(max_examples=60, deadline=None)
@given(traces(), st.integers(1, 80), st.integers(0, 20))
def test_parts_of_any_recording_sum_to_the_step(trace: Trace, median: int, spread: int) -> None:
    times = StepTimes(median, max(median - spread, 0), median + spread, 9)
    found = figures_of(trace.with_run(Run(step_times=times))).inflation
    if found is None or not found.parts:
        return
    assert sum(row.recorded_ns for row in found.parts) == found.recorded_ns
    assert sum(row.unrecorded_ns or 0 for row in found.parts) == found.unrecorded_ns
    for row in found.parts:
        assert row.low_ns is not None and row.unrecorded_ns is not None and row.high_ns is not None
        assert 0 <= row.low_ns <= row.unrecorded_ns <= min(row.high_ns, row.recorded_ns)
        assert 0 <= row.lengthened_ns <= row.recorded_ns


def test_a_sweep_without_timed_steps_does_not_know_what_it_costs() -> None:
    opened = open_recordings(TRACES / "ep2")
    for trace in analyze([Recording(one.name, str(one.path), one.trace) for one in opened])[0].traces:
        found = trace.inflation
        assert found is not None and found.parts and found.unrecorded_ns is None
        assert found.unknown == "no step was timed without a recorder"
        assert sum(row.recorded_ns for row in found.parts) == found.recorded_ns == trace.cycle.period_ns_median


def test_inferred_phases_are_not_checked_against_annotated_ones() -> None:
    opened = [one for name in ("tp1-dflash", "tp1-dflash-torch") for one in open_recordings(TRACES / name)]
    assert analyze([Recording(one.name, str(one.path), one.trace) for one in opened])[0].recorder_checks == ()


def test_a_window_in_the_gpus_other_mode_is_not_told_from_the_spread() -> None:
    """In ``tp1-dflash-recorders-2/c1-cupti`` gaps inside graphs are a quarter of those in every other window at 1."""
    one = open_recordings(TRACES / "tp1-dflash-recorders-2" / "c1-cupti")[0]
    found = inflation_of(one.trace)
    assert (found.recorded_ns, found.measured_ns) == (8_013_248, 8_075_162)
    assert found.text == (
        "what recording by cupti cost cannot be told from the spread (a step is 0.974 ± 0.030 times as long as without "
        "at the same contexts: 8.01 ms here; over all contexts the median without it is 8.08 ms)"
    )
    assert all(row.unrecorded_ns == row.recorded_ns for row in found.parts)


def test_windows_of_124_passes_by_nsys_and_by_cupti() -> None:
    """Each of over 100,000 records."""
    costs = {}
    for name in ("tp1-dflash-long-1", "tp1-dflash-long-2"):
        for one in open_recordings(TRACES / name):
            found, cost = inflation_of(one.trace), one.trace.run.recording_cost
            assert cost is not None and (cost.steps, cost.windows) == (122, 0)
            costs[one.name] = (found.recorder, round(cost.ratio, 3), round(cost.error, 3))
    assert costs == {
        "tp1-dflash-long-1/c1": ("nsys", 1.01, 0.002),
        "tp1-dflash-long-1/c1-cupti": ("cupti", 1.022, 0.012),
        "tp1-dflash-long-2/c1": ("nsys", 1.01, 0.002),
        "tp1-dflash-long-2/c1-cupti": ("cupti", 1.011, 0.003),
    }


def test_host_time_is_what_a_recorder_lengthens() -> None:
    """Eager, at batch 1: kernels take as long by each recorder, and nsys' step is 70 % longer than CUPTI's."""
    opened = {one.name.split("/")[-1]: one.trace for one in open_recordings(TRACES / "tp1-dflash-eager")}
    parts = {name: by_part(inflation_of(trace)) for name, trace in opened.items()}
    kernels = [parts[name]["compute"].recorded_ns for name in ("c1", "c1-cupti", "c1-torch")]
    assert (max(kernels) - min(kernels)) / min(kernels) < 0.003
    by_cupti, by_nsys = (sum(row.recorded_ns for row in parts[name].values()) for name in ("c1-cupti", "c1"))
    assert by_nsys / by_cupti > 1.65
    assert inflation_of(opened["c1"]).unrecorded_ns is None, "the recording holds the longest steps of its window"


def test_three_recorders_agree_on_one_run() -> None:
    opened = open_recordings(TRACES / "tp1-dflash-recorders")
    checks = analyze([Recording(one.name, str(one.path), one.trace) for one in opened])[0].recorder_checks
    assert [(check.batch_size, check.recorders) for check in checks] == [
        (1, ("nsys", "cupti", "torch")),
        (32, ("nsys", "cupti", "torch")),
    ]
    counts = [{row.phase: row.ops for row in check.ops} for check in checks]
    for found, (draft, verify, appended) in zip(counts, ((96, 553, 11), (92, 517, 10)), strict=True):
        expected = {"draft": draft, "verify": verify, "accept": 10, "kv_append": appended, "step_other": 14}
        assert found == {phase: (count,) * 3 for phase, count in expected.items()}
    for check in checks:
        assert check.agree is True
        (gaps,) = (row for row in check.rows if (row.phase, row.part) == ("verify", "gap_in_graph"))
        assert gaps.unrecorded_spread is not None and gaps.unrecorded_spread < 0.03


def test_a_reference_step_with_the_time_that_it_might_take() -> None:
    """More than records can cost: of a step that the GPU fills, all parts give alike."""
    one = open_recordings(TRACES / "tp1-dflash" / "c1")[0]
    without = replace(one.trace.run, step_times=timed(7_000_000), recording_cost=None, recorder="nsys")
    found = inflation_of(one.trace.with_run(without))
    assert sum(row.unrecorded_ns or 0 for row in found.parts) == 7_000_000
    rows = {(row.phase, row.part): (row.unrecorded_ns or 0) / row.recorded_ns for row in found.parts}
    assert rows["verify", "compute"] == pytest.approx(rows["verify", "gap_in_graph"], abs=1e-4)
    assert rows["verify", "compute"] == pytest.approx(0.87, abs=0.01)
    assert found.ops["verify"] == 553


def test_recordings_of_another_sweep_are_not_checked_with_these() -> None:
    """Whatever else is given: ``tp1-dflash-accept-5`` has the same configuration and another accept length."""
    names = ("tp1-dflash-accept-5", "tp1-dflash-recorders")
    opened = [one for name in names for one in open_recordings(TRACES / name)]
    (_, check) = analyze([Recording(one.name, str(one.path), one.trace) for one in opened])[0].recorder_checks
    assert check.traces == tuple(f"tp1-dflash-recorders/{name}" for name in ("c32", "c32-cupti", "c32-torch"))


def test_parts_reach_as_far_as_the_step() -> None:
    """Together the ranges hold the band of the step."""
    opened = open_recordings(TRACES / "tp1-dflash-recorders")
    for trace in analyze([Recording(one.name, str(one.path), one.trace) for one in opened])[0].traces:
        found = trace.inflation
        assert found is not None and found.low_ns is not None and found.high_ns is not None
        assert sum(row.low_ns or 0 for row in found.parts) <= found.low_ns
        assert sum(row.high_ns or 0 for row in found.parts) >= found.high_ns
