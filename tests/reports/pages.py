"""Recordings to draw: two ranks of a speculative engine, and what can be odd about a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.analyzers import Attribution, Recording, TraceFigures, analyze
from profkit.analyzers.result import Analysis
from profkit.reports.html import render_report
from profkit.traces import Device, Trace
from tests.builders import TraceBuilder

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "line\u2028and\u2029paragraph",
    "\"quotes\" 'and' `ticks` & <b>markup</b> %{y} {{ 7 * 7 }}",
    "<img src=x onerror=alert(1)>",
)
PERIOD = 100_000


def speculative(steps: int = 4, ranks: int = 2, names: Sequence[str] = ("fused_moe_kernel",)) -> TraceBuilder:
    """Steps of draft and verify graphs with a collective in each, and a late host on the last rank."""
    builder = TraceBuilder()
    for rank in range(ranks):
        builder.rank(rank)
        for step in range(steps):
            late = 2_000 * (rank > 0 and rank == ranks - 1)
            _step(builder, 1_000 + step * PERIOD, late, names)
    return builder


def _step(builder: TraceBuilder, at: int, late: int, names: Sequence[str]) -> None:
    builder.range(at, at + 80_000, "step:decode bs=2")
    builder.range(at + 1_000, at + 20_000, "draft")
    builder.graph(
        at + 2_000 + late, at + 9_000,
        ("gemm", at + 12_000 + late, at + 18_000 + late),
        ("all_reduce", at + 18_500 + late, at + 25_000),
    )  # fmt: skip
    builder.range(at + 21_000, at + 50_000, "target").range(at + 22_000, at + 49_000, names[0], "model")
    work = at + 26_000
    for name in names:
        builder.launch(work - 3_000, work - 1_000, name, work, work + 3_000)
        work += 4_000
    builder.launch(work - 3_000, work - 1_000, "all_reduce", work + late, work + 5_000)
    builder.range(at + 60_000, at + 70_000, "accept")
    builder.launch(at + 61_000, at + 63_000, "dflash_accept", at + 64_000, at + 66_000)
    builder.call(at + 66_000, at + 72_000, "cudaStreamSynchronize")


def sized(ranks: int = 2) -> Trace:
    """The same with message sizes and the link's limit."""
    builder = speculative(ranks=ranks)
    for rank in range(ranks):
        builder.rank(rank)
        for step in range(4):
            at = 1_000 + step * PERIOD
            builder.collective_call(at + 1_500, at + 9_500, "ncclAllReduce", "tp", 65_536)
            builder.collective_call(at + 26_000, at + 30_000, "ncclAllReduce", "tp", 1 << 20)
    trace = builder.trace()
    return replace(trace, devices=tuple(Device(d.device, "GPU", link_bandwidth=200_000_000_000) for d in trace.devices))


def whole_graphs() -> TraceBuilder:
    """A recording without the kernels inside graphs."""
    builder = TraceBuilder().rank(0).note("graph_mode", "graph")
    for step in range(4):
        at = step * PERIOD
        builder.range(at, at + 50_000, "step:decode bs=1")
        builder.call(at + 1_000, at + 5_000, "cudaGraphLaunch").node("whole_graph", at + 6_000, at + 46_000)
    return builder


def inferred() -> TraceBuilder:
    """A recording with the engine's own annotations only: the phases are told from structure."""
    builder = TraceBuilder().rank(0)
    for step in range(6):
        at = step * PERIOD
        for begin, count in ((at, 3), (at + 40_000, 12)):
            builder.range(begin, begin + 30_000, "step[TARGET_VERIFY bs=1]", "")
            nodes = [("gemm", begin + 5_000 + 1_500 * i, begin + 6_000 + 1_500 * i) for i in range(count)]
            builder.graph(begin + 1_000, begin + 3_000, *nodes)
    return builder


def large(ops: int) -> TraceBuilder:
    """Two decode steps and a bit, of which each has a third of ``ops`` kernels."""
    builder = TraceBuilder().rank(0)
    for step in range(3):
        at = step * ops * 400
        builder.range(at, at + 50_000, "step:decode bs=1").range(at + 1_000, at + 40_000, "target")
        nodes = [(f"kernel_{i % 97}", at + 60_000 + i * 1_000, at + 60_900 + i * 1_000) for i in range(ops // 3)]
        builder.graph(at + 2_000, at + 30_000, *nodes)
    return builder


def analysed(*traces: tuple[str, Trace]) -> tuple[list[tuple[TraceFigures, Attribution]], Analysis]:
    """What a report is drawn from."""
    analysis, attributions = analyze([Recording(name, f"traces/{name}", trace) for name, trace in traces])
    return list(zip(analysis.traces, attributions, strict=True)), analysis


def page(*traces: tuple[str, Trace]) -> str:
    """The report of ``traces``."""
    return render_report(*analysed(*traces))
