"""The timeline of a typical step: which step, which lanes, and what is in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profkit.analyzers import attribute
from profkit.analyzers.counter_tracks import BUCKETS, Track
from profkit.analyzers.lanes import API_BLOCKING, API_LAUNCH
from profkit.analyzers.timeline import StepTimeline, typical_step
from profkit.analyzers.vocabulary import CLASS, PARTS, PHASE
from profkit.reports.payload import timeline_columns
from profkit.traces import Device, Samples, Trace
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


def counted(trace: Trace, *rows: tuple[int, int, str, float]) -> Trace:
    """``trace`` with samples: time, device, counter and value; its GPU 0 has a link of 60 GB/s and DRAM of 4 TB/s."""
    strings = [*trace.strings, *sorted({row[2] for row in rows})]
    time, device, counter, value = (np.array(column) for column in zip(*rows, strict=True))
    ids = np.array([strings.index(name) for name in counter.tolist()])
    samples = Samples(time=time, device=device, counter=ids, value=value)
    known = Device(0, "GPU", link_bandwidth=60_000_000_000, memory_bandwidth=4_000_000_000_000)
    return replace(trace, samples=samples, strings=tuple(strings), devices=(known,))


def tracks_of(trace: Trace) -> tuple[Track, ...]:
    timeline = typical_step(attribute(trace))
    assert timeline is not None
    return timeline.tracks


def test_counters_are_drawn_where_samples_lie() -> None:
    """The timeline is from 0 to 340; samples are missing from 90 to 310, and the first and last lie beyond its ends."""
    name = "pm_pcie_read_bytes_per_s"
    times = (-60, -10, 40, 90, 310, 360, 410)
    rows = [(time, 0, name, 1e9 * number) for number, time in enumerate(times)]
    (track,) = tracks_of(counted(steps_of(310, 300, 310, 320).trace(), *rows))
    (line,) = track.lines
    assert (track.title, track.unit, track.limit, track.scale, line.name) == ("PCIe", "GB/s", 60.0, 5.0, "reads")
    assert list(zip(line.start.tolist(), line.length.tolist(), line.mean.tolist(), strict=True)) == [
        (0, 40, 2.0),
        (40, 50, 3.0),
        (310, 30, 5.0),
    ]
    assert line.low is line.high is None


@pytest.mark.parametrize(
    ("counter", "value", "title", "unit", "scale", "limit"),
    [
        ("pm_pcie_write_bytes_per_s", 14e9, "PCIe", "GB/s", 15.0, 60.0),
        ("pm_pcie_write_bytes_per_s", 15.1e9, "PCIe", "GB/s", 60.0, 60.0),
        ("pm_pcie_write_bytes_per_s", 0.0, "PCIe", "GB/s", 0.1, 60.0),
        ("pm_nvlink_tx_bytes_per_s", 350e9, "NVLink", "GB/s", 400.0, None),
        ("pm_dram_read_bytes_per_s", 2.9e12, "DRAM", "GB/s", 4_000.0, 4_000.0),
        ("pm_dram_read_percent", 7.0, "DRAM", "%", 100.0, None),
        ("pm_tensor_active_percent", 2.0, "activity", "%", 100.0, None),
    ],
)
def test_scales_are_round_and_hold_a_limit_that_is_near(
    counter: str, value: float, title: str, unit: str, scale: float, limit: float | None
) -> None:
    rows = [(time, 0, counter, value) for time in range(0, 1_000, 50)]
    (track,) = tracks_of(counted(steps_of(300, 310, 305, 310).trace(), *rows))
    assert (track.title, track.unit, track.scale, track.limit) == (title, unit, pytest.approx(scale), limit)


def test_an_nvlink_that_counts_nothing_is_left_out() -> None:
    rows = [(time, 0, "pm_nvlink_rx_bytes_per_s", 0.0) for time in range(0, 1_000, 50)]
    assert tracks_of(counted(steps_of(300, 310, 305, 310).trace(), *rows)) == ()


def test_many_samples_become_buckets_with_their_extremes() -> None:
    """Four samples and a bit in a bucket: 1, 2, 3, 2, … GB/s; the mean over all stays what it is."""
    period = 5 * BUCKETS * 10
    builder = TraceBuilder().rank(0)
    for at in range(0, 4 * period, period):
        builder.range(at, at + 90, "step:decode bs=1").launch(at + 10, at + 20, "gemm", at + 30, at + 80)
    rows = [
        (time * 10, 0, "pm_pcie_read_bytes_per_s", 1e9 * (1, 2, 3, 2)[time % 4]) for time in range(4 * period // 10)
    ]
    (track,) = tracks_of(counted(builder.trace(), *rows))
    (line,) = track.lines
    assert line.low is not None and line.high is not None
    assert len(line.start) <= BUCKETS and len(line.start) > BUCKETS // 2
    assert np.all(line.start[1:] == (line.start + line.length)[:-1])
    assert np.all((line.low <= line.mean) & (line.mean <= line.high))
    assert set(line.low.tolist()) == {1.0} and set(line.high.tolist()) == {3.0}
    assert float(line.mean @ line.length) / int(line.length.sum()) == pytest.approx(2.0, rel=1e-4)


def test_nvml_is_told_and_not_drawn() -> None:
    rows = [(400, 0, "pcie_rx_bytes_per_s", 2.5e9), (400, 0, "pcie_tx_bytes_per_s", 4e8), (500, 0, "power_w", 221.7),
            (9_000, 0, "pcie_rx_bytes_per_s", 9e9), (450, 0, "sm_clock_mhz", 1980.0)]  # fmt: skip
    timeline = typical_step(attribute(counted(steps_of(300, 310, 305, 310).trace(), *rows)))
    assert timeline is not None and timeline.tracks == ()
    said = "NVML nearby: PCIe reads 2.5 GB/s and writes 400 MB/s (mean of 20 ms), SM clock 1,980 MHz, 222 W"
    assert timeline.nvml == {0: said}
    far = counted(steps_of(300, 310, 305, 310).trace(), (10**10, 0, "power_w", 1.0))
    found = typical_step(attribute(far))
    assert found is not None and found.nvml == {}


def test_the_page_gets_the_tracks() -> None:
    rows = [(time, 0, "pm_sm_active_percent", 33.333333) for time in range(0, 1_000, 50)]
    timeline = typical_step(attribute(counted(steps_of(300, 310, 305, 310).trace(), *rows)))
    assert timeline is not None
    (track,) = timeline_columns(timeline)["tracks"]
    assert {key: track[key] for key in ("device", "limit", "scale", "title", "unit")} == {
        "device": 0, "limit": None, "scale": 100.0, "title": "activity", "unit": "%",
    }  # fmt: skip
    (line,) = track["lines"]
    assert line["mean"][0] == 33.3 and line["low"] is None and line["name"] == "SM"
