"""What recording cost in the reference recordings, and where their recorders agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit import Recording, analyze
from profkit.traces import open_recordings
from tests.analyzers.test_inflation import by_part, inflation_of, timed

TRACES = Path(__file__).parents[2] / "traces"


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
