"""What CUDA graphs save: an eager step beside the same one with graphs, worked out by hand and as recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit import Recording, analyze
from profkit.analyzers.eager_to_graphs import totals
from profkit.analyzers.result import Analysis
from profkit.analyzers.saving_result import GraphSaving
from profkit.traces import Run, Trace, open_recordings
from tests.builders import TraceBuilder

TRACES = Path(__file__).parents[2] / "traces"
RUN = Run(config="small", concurrency=1)


def eager(copy: bool = False) -> Trace:
    """Two steps 1,000 ns apart: two kernels of 100 ns, the GPU waiting for the host before each."""
    builder = TraceBuilder(recorded_run=RUN).rank(0)
    for at in (0, 1_000):
        builder.range(at + 90, at + 800, "step:decode bs=1").range(at + 95, at + 500, "target")
        builder.launch(at + 100, at + 120, "gemm", at + 150, at + 250)
        builder.launch(at + 300, at + 320, "memset" if copy else "attention", at + 330, at + 430)
    return builder.trace()


def graphs(run: Run = RUN, batch: int = 1) -> Trace:
    """The same two kernels in one graph, 5 ns apart; steps 501 ns apart."""
    builder = TraceBuilder(recorded_run=run).rank(0)
    for at in (0, 501):
        builder.range(at + 90, at + 400, f"step:decode bs={batch}").range(at + 95, at + 300, "target")
        builder.graph(at + 100, at + 140, ("gemm", at + 160, at + 260), ("attention", at + 265, at + 365))
    return builder.trace()


def analysed(*traces: Trace) -> Analysis:
    return analyze([Recording(f"r{n}", f"r{n}", trace) for n, trace in enumerate(traces)])[0]


def table(saving: GraphSaving) -> dict[str, tuple[int, int]]:
    return {row.key: (row.eager_ns, row.graphs_ns) for row in totals(saving.rows)}


def test_by_hand() -> None:
    """Eager: 1,280 ns in two steps, 770 in host code, 110 in launches; graphs: 706, 236, 60, and 10 in gaps."""
    (saving,) = analysed(eager(), graphs()).graph_savings
    assert (saving.eager, saving.graphs, saving.batch_size, saving.rank) == ("r0", "r1", 1, 0)
    assert table(saving) == {
        "host_code": (385, 118), "launch": (55, 30), "compute": (200, 200), "graph_gaps": (0, 5),
    }  # fmt: skip
    assert {(row.phase, row.kernel_class, row.eager_ns, row.graphs_ns) for row in saving.classes} == {
        ("decode", "gemm", 100, 100), ("decode", "attention", 100, 100),
    }  # fmt: skip
    assert saving.launch_calls == (2, 1) and saving.launch_host_ns == (40, 40)
    assert saving.kernels == () and saving.same_kernels == 2
    assert saving.overlap_ns == (0, 0) and saving.waiting_ns == (None, None)
    assert saving.text == (
        "CUDA graphs take 287 ns off a 640 ns step on rank 0: code on the host (385 ns → 118 ns) and launch calls "
        "(55 ns → 30 ns); 353 ns are left"
    )


def test_a_kernel_that_differs_is_named() -> None:
    (saving,) = analysed(eager(copy=True), graphs()).graph_savings
    (found,) = saving.kernels
    assert (found.state, found.eager_name, found.graphs_name) == ("replaced", "memset", "flash_fwd_splitkv_kernel")
    assert (found.eager_count, found.graphs_count, found.eager_ns, found.graphs_ns) == (1, 1, 100, 100)
    assert saving.same_kernels == 1


@pytest.mark.parametrize(
    "other",
    [
        graphs(batch=2),
        graphs(replace(RUN, config="other")),
        graphs(replace(RUN, model="another than the eager one's")),
        graphs(Run()),  # nothing is known of it, but of the eager one
        eager(),  # no graphs either
    ],
)
def test_what_is_no_partner(other: Trace) -> None:
    assert analysed(eager().with_run(replace(RUN, model="its own")), other).graph_savings == ()


def test_without_configurations_the_kernels_must_be_those_of_one_model() -> None:
    unknown = [replace(trace, run=Run()) for trace in (eager(), graphs())]
    assert len(analysed(*unknown).graph_savings) == 1
    strings = tuple(f"other {text}" if "_" in text else text for text in unknown[1].strings)
    assert analysed(unknown[0], replace(unknown[1], strings=strings)).graph_savings == ()


def test_what_is_not_for_the_graphs_is_said_apart() -> None:
    """The eager recording holds a prefill between its steps, and its kernels take half as long again."""
    builder = TraceBuilder(recorded_run=RUN).rank(0)
    for at in (0, 2_000):
        builder.range(at + 90, at + 800, "step:decode bs=1").range(at + 95, at + 500, "target")
        builder.launch(at + 100, at + 120, "gemm", at + 150, at + 300)
        builder.launch(at + 300, at + 320, "attention", at + 330, at + 480)
    builder.range(900, 1_800, "step:prefill").range(905, 1_790, "target").launch(910, 920, "gemm", 1_000, 1_700)
    (saving,) = analysed(builder.trace(), graphs()).graph_savings
    found = table(saving)
    assert found["compute"] == (300, 200) and found["prefill"][0] >= 350 and found["prefill"][1] == 0
    saved, _, apart = saving.text.partition("; ")
    assert "kernels" not in saved and "prefills" not in saved
    assert "prefills take" in apart and "kernels take 100 ns less, not for the graphs" in apart


def test_padding_is_a_cost_of_graphs() -> None:
    (saving,) = analysed(eager(), graphs(replace(RUN, graph_batch_sizes=(4,)))).graph_savings
    assert saving.padding_ns == 150  # three of four rows of 200 ns of kernels
    assert "padding costs them at most 150 ns" in saving.text


def test_recorded() -> None:
    """Rank 0, for which rank 1 waits, has its time back from code on its host; what is left is the step with graphs."""
    analysis = analysed(*(one.trace for one in open_recordings(TRACES / "ep2-dflash")))
    assert [saving.batch_size for saving in analysis.graph_savings] == [1, 32, 128]
    for saving in analysis.graph_savings:
        sides = [next(t for t in analysis.traces if t.name == name) for name in (saving.eager, saving.graphs)]
        for side, field in zip(sides, ("eager_ns", "graphs_ns"), strict=True):
            device = next(d for d in side.devices.values() if d.rank == saving.rank)
            assert device.window is not None
            assert sum(getattr(row, field) for row in saving.rows) == round(device.window.wall_ns / device.steps)
        found = table(saving)
        assert found["host_code"][0] > 40 * found["host_code"][1]
        assert found["transfer"][1] == pytest.approx(found["transfer"][0], rel=0.08)
        assert found["graph_gaps"][0] == 0 < found["graph_gaps"][1]
        assert saving.same_kernels > 1_200
    first = analysis.graph_savings[0]
    assert first.rank == 0 and first.text.startswith("CUDA graphs take 207 ms off a 217 ms step on rank 0: ")
    assert "another rank's waiting falls from 195 ms to 557 µs" in first.text
