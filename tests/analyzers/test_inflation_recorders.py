"""One run by several recorders, checked against each other."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from profkit import Recording, analyze
from profkit.analyzers.result import Analysis
from profkit.traces import Run
from tests.analyzers.test_inflation import cells_of, graph_steps, timed
from tests.builders import TraceBuilder


def several() -> Analysis:
    """One run by three recorders: the host is 200, 260 and 300 ns slow a step, and torch's kernels take 20 ns more."""
    run = Run(config="tp1", step_times=timed(1_000))
    by = [("c1", "nsys", 400, 400), ("c1-cupti", "cupti", 460, 400), ("c1-torch", "torch", 500, 420)]
    recordings = [
        Recording(name, "", graph_steps(replace(run, recorder=recorder), host, kernel))
        for name, recorder, host, kernel in by
    ]
    return analyze(recordings)[0]


def test_recorders_are_checked_against_each_other() -> None:
    (check,) = several().recorder_checks
    assert (check.traces, check.recorders) == (("c1", "c1-cupti", "c1-torch"), ("nsys", "cupti", "torch"))
    assert check.ratios == (1.2, 1.26, 1.32)
    rows = {(row.phase, row.part): (row.recorded_ns, row.unrecorded_ns) for row in check.rows}
    assert rows == {
        ("", "step"): ((1200, 1260, 1320), (1000, 1000, 1000)),
        ("decode", "union"): ((600, 600, 620), (600, 600, 620)),
        ("decode", "compute"): ((600, 600, 620), (600, 600, 620)),
        # 400, 460 and 500 of 600, 660 and 700 ns, that give 200, 260 and 320 in proportion
        ("decode", "gap_host"): ((400, 460, 500), (266, 279, 272)),
        ("decode", "gap_graph_launch"): ((100, 100, 100), (67, 60, 54)),
        ("decode", "gap_in_graph"): ((100, 100, 100), (67, 61, 54)),
    }
    assert [(row.phase, row.ops, row.same) for row in check.ops] == [("decode", (2, 2, 2), True)]
    spreads = {row.part: row.unrecorded_spread for row in check.rows}
    assert spreads == {
        "step": 0, "union": 0.02, "compute": 0.02, "gap_host": 0.013, "gap_graph_launch": 0.013, "gap_in_graph": 0.013,
    }  # fmt: skip
    assert check.agree is True
    assert check.text == (
        "recorded by nsys, cupti and torch, a step has the same number of ops; figures differ by up to 10 % of a "
        "step as recorded, and by up to 2.0 % after inflation is taken out"
    )


def test_the_least_inflated_recorder_bounds_kernels() -> None:
    """Torch's 20 ns more in kernels go first; what the others have is left as it was."""
    least, other, torch = (trace.inflation for trace in several().traces)
    assert least and other and torch
    assert (least.bounded_by, other.bounded_by, torch.bounded_by) == (None, "c1", "c1")
    assert cells_of(least)["decode", "compute"][1] == cells_of(other)["decode", "compute"][1] == 600
    recorded, estimate, _, high = cells_of(torch)["decode", "compute"]
    assert (recorded, estimate, high) == (620, 600, 600)
    assert sum(row.unrecorded_ns or 0 for row in torch.parts) == 1000


def test_other_runs_are_not_checked() -> None:
    run = Run(config="tp1", step_times=timed(1_000), recorder="nsys")
    for other in (run, replace(run, config="ep2", recorder="torch"), replace(run, config="", recorder="torch")):
        recordings = [Recording("a", "", graph_steps(run)), Recording("b", "", graph_steps(other))]
        assert analyze(recordings)[0].recorder_checks == ()


def test_kernels_that_differ_in_number_are_said() -> None:
    run = Run(config="tp1", recorder="nsys")
    other = TraceBuilder().rank(0).run(replace(run, recorder="torch"))
    for at in range(0, 5_000, 1_000):
        other.range(at, at + 290, "step:decode bs=1").range(at, at + 280, "target")
        other.graph(at + 200, at + 250, ("gemm", at + 300, at + 1_000))
    analysis = analyze([Recording("a", "", graph_steps(run)), Recording("b", "", other.trace())])[0]
    (check,) = analysis.recorder_checks
    assert check.agree is False
    assert check.text == (
        "recorded by nsys and torch, ops differ in number in decode; figures differ by up to 10 % of a step; what "
        "recording cost each of them is not known"
    )


def test_json_holds_it_all() -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(several()))
    assert decoded["traces"][2]["inflation"]["bounded_by"] == "c1"
    assert decoded["recorder_checks"][0]["rows"][0]["unrecorded_ns"] == [1000, 1000, 1000]
