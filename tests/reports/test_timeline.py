"""The timeline of a typical step: which step, which lanes, and what is in them."""

from __future__ import annotations

import numpy as np

from profkit.analyzers import attribute
from profkit.analyzers.lanes import API_BLOCKING, API_LAUNCH
from profkit.analyzers.timeline import StepTimeline, typical_step
from profkit.analyzers.vocabulary import CLASS, PARTS, PHASE
from tests.builders import TraceBuilder
from tests.reports.pages import large, speculative


def drawn(timeline: StepTimeline, rank: int, kind: str) -> list[tuple[str, int, int]]:
    """Label, start and length of the items of one rank's lanes of one kind."""
    items = timeline.items
    lanes = [at for at, lane in enumerate(timeline.lanes) if lane.rank == rank and lane.kind == kind]
    rows = np.flatnonzero(np.isin(items.lane, lanes)).tolist()
    return [(timeline.strings[items.label[i]], int(items.start[i]), int(items.length[i])) for i in rows]


def steps_of(*periods: int) -> TraceBuilder:
    """Plain decode steps that begin ``periods`` apart, with one kernel each."""
    builder, at = TraceBuilder().rank(0), 0
    for period in (*periods, 500):
        builder.range(at, at + 90, "step:decode bs=1").launch(at + 10, at + 20, "gemm", at + 30, at + 80)
        at += period
    return builder


def test_the_step_nearest_to_the_median_period_is_shown() -> None:
    timeline = typical_step(attribute(steps_of(300, 500, 320, 310, 900).trace()))
    assert timeline is not None
    timeline.check()
    assert (timeline.step, timeline.period_ns, timeline.median_ns, timeline.steps) == (2, 320, 320, 6)
    assert (timeline.start_ns, timeline.end_ns) == (800, 1_150)
    assert timeline.marks == {0: (30, 350)}
    assert drawn(timeline, 0, "stream") == [("nvjet_tst_64x8_64x16", 30, 50)]
    assert drawn(timeline, 0, "ranges") == [("step:decode bs=1", 0, 90), ("step:decode bs=1", 320, 30)]


def test_the_slowest_rank_chooses_the_step() -> None:
    builder = steps_of(300, 300, 300)
    slow = builder.rank(1)
    for at in (0, 310, 620, 1_000):
        slow.range(at, at + 90, "step:decode bs=1").launch(at + 10, at + 20, "gemm", at + 30, at + 80)
    timeline = typical_step(attribute(builder.trace()))
    assert timeline is not None
    assert (timeline.rank, timeline.median_ns) == (1, 310)


def test_each_rank_has_lanes_for_host_streams_collectives_and_gaps() -> None:
    timeline = typical_step(attribute(speculative().trace()))
    assert timeline is not None
    timeline.check()
    assert [lane.kind for lane in timeline.lanes] == ["ranges", "api", "stream", "collective", "gap"] * 2
    items = timeline.items
    blocking = [timeline.strings[label] for label in items.label[items.code == API_BLOCKING]]
    assert "cudaStreamSynchronize" in blocking
    gaps = {timeline.strings[label] for lane in (4, 9) for label in items.label[items.lane == lane]}
    assert gaps <= set(PARTS)
    assert all(gap.startswith("gap_") for gap in gaps)


def test_a_collective_is_cut_into_waiting_and_transfer() -> None:
    timeline = typical_step(attribute(speculative().trace()))
    assert timeline is not None
    items = timeline.items
    of_rank = {
        rank: np.flatnonzero(items.lane == at)
        for rank, at in ((lane.rank, n) for n, lane in enumerate(timeline.lanes) if lane.kind == "collective")
    }
    assert set(items.split[of_rank[0]].tolist()) == {2_000}
    assert set(items.split[of_rank[1]].tolist()) == {0}


def test_ops_know_the_call_that_launched_them() -> None:
    timeline = typical_step(attribute(steps_of(300, 300, 300).trace()))
    assert timeline is not None
    items = timeline.items
    op = int(np.flatnonzero(items.launch >= 0)[0])
    call = int(items.launch[op])
    assert timeline.strings[items.label[call]] == "cudaLaunchKernel"
    assert items.code[call] == API_LAUNCH
    assert items.start[call] == items.start[op] - 20
    assert (items.code[op], items.phase[op]) == (CLASS["gemm"], PHASE["step_other"])


def test_without_two_steps_there_is_no_timeline() -> None:
    assert typical_step(attribute(steps_of().trace())) is None
    assert typical_step(attribute(TraceBuilder().rank(0).launch(0, 1, "gemm", 2, 9).trace())) is None
    assert typical_step(attribute(TraceBuilder().trace())) is None


def test_large_steps_are_kept_whole() -> None:
    timeline = typical_step(attribute(large(30_000).trace()))
    assert timeline is not None
    timeline.check()
    assert len(drawn(timeline, 0, "stream")) >= 10_000
