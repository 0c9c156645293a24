"""One run by several recorders, checked against each other."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from profkit import Recording, analyze
from profkit.analyzers.result import Analysis
from profkit.traces import Run
from tests.analyzers.test_inflation import graph_steps, timed
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
        ("decode", "union"): ((600, 600, 620), (598, 597, 617)),
        ("decode", "compute"): ((600, 600, 620), (598, 597, 617)),
        # 200, 260 and 320 ns, given as 600 or 620 : 100 times 400, 460 or 500 : 10000 : 100
        ("decode", "gap_host"): ((400, 460, 500), (242, 249, 237)),
        ("decode", "gap_graph_launch"): ((100, 100, 100), (60, 54, 47)),
        ("decode", "gap_in_graph"): ((100, 100, 100), (100, 100, 99)),
    }
    assert [(row.phase, row.ops, row.same) for row in check.ops] == [("decode", (2, 2, 2), True)]
    spreads = {row.part: row.recorded_spread for row in check.rows}
    assert spreads == {
        "step": 0.1, "union": 20 / 600, "compute": 20 / 600, "gap_host": 0.25, "gap_graph_launch": 0, "gap_in_graph": 0,
    }  # fmt: skip
    assert check.agree is False
    assert check.text == (
        "recorded by nsys, cupti and torch, a step has the same number of ops; after inflation is taken out, figures "
        "differ: decode's ops (597 to 617 ns), decode's kernels (597 to 617 ns), decode's host code "
        "(237 to 249 ns) and 1 more"
    )


def test_small_differences_are_jitter() -> None:
    """Of a step of 100 µs, 90 ns more in a gap of 1 µs; 110 ns are no jitter any more."""
    for more, agree in ((90, True), (110, False)):
        run, traces = Run(config="tp1", step_times=timed(100_000)), []
        for recorder, gap in (("nsys", 1_000), ("torch", 1_000 + more)):
            builder = TraceBuilder().rank(0).run(replace(run, recorder=recorder))
            for at in range(0, 500_000, 100_000):
                builder.range(at, at + 290, "step:decode bs=1").range(at, at + 280, "target")
                nodes = ("gemm", at + 300, at + 50_000), ("gemm", at + 50_000 + gap, at + 100_300)
                builder.graph(at + 200, at + 250, *nodes)
            traces.append(Recording(recorder, "", builder.trace()))
        (check,) = analyze(traces)[0].recorder_checks
        assert check.agree is agree


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
        "recorded by nsys and torch, ops differ in number in decode; what recording cost each of them is not known; as "
        "recorded, figures differ: decode's ops (600 to 700 ns), decode's "
        "kernels (600 to 700 ns) and decode's gaps inside graphs (0 to 100 ns)"
    )


def test_json_holds_it_all() -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(several()))
    assert decoded["traces"][2]["inflation"]["ratio"] == 1.32
    assert decoded["recorder_checks"][0]["rows"][0]["unrecorded_ns"] == [1000, 1000, 1000]
