"""Hardware counters: what samples are, what they say of links during transfers, and of phases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit import Recording, analyze
from profkit.analyzers.counter_result import CounterSampling
from profkit.analyzers.counters import Counter, counters_of
from profkit.analyzers.device_result import DeviceFigures
from profkit.analyzers.link_use import dearest, in_words
from profkit.analyzers.result import TraceFigures
from profkit.traces import Device, Samples, Trace
from tests.builders import TraceBuilder

READ, WRITE = "pm_pcie_read_bytes_per_s", "pm_pcie_write_bytes_per_s"
SM, TENSOR = "pm_sm_active_percent", "pm_tensor_active_percent"
US = 1_000
GB = 1e9

Rows = Sequence[tuple[int, int, str, float]]
"""Time, device, counter and value."""


def sampled(trace: Trace, rows: Rows) -> Trace:
    """``trace`` with these samples."""
    strings = [*trace.strings, *sorted({row[2] for row in rows} - set(trace.strings))]
    time, device, counter, value = zip(*((t, d, strings.index(c), v) for t, d, c, v in rows), strict=True)
    samples = Samples(time=np.array(time), device=np.array(device), counter=np.array(counter), value=np.array(value))
    return replace(trace, samples=samples, strings=tuple(strings))


def with_limits(trace: Trace, link: int | None = 32_000_000_000, memory: int | None = 2_000_000_000_000) -> Trace:
    devices = (replace(d, link_bandwidth=link, memory_bandwidth=memory) for d in trace.devices)
    return replace(trace, devices=tuple(devices))


def test_an_interval_begins_with_the_sample_before() -> None:
    """Lost samples leave a hole; what is no count is left out; NVML's counters are none of these."""
    nan = float("nan")
    rows = [(0, 0, READ, 9.0), (10, 0, READ, 1.0), (20, 0, READ, nan), (30, 0, READ, 3.0), (90, 0, READ, 4.0),
            (100, 0, READ, 5.0), (110, 0, READ, -1.0), (120, 0, READ, 6.0), (120, 0, READ, 7.0),
            (5, 1, READ, 1.0), (0, 0, "pcie_rx_bytes_per_s", 1.0), (10, 0, "pcie_rx_bytes_per_s", 1.0)]  # fmt: skip
    trace = sampled(TraceBuilder().trace(), list(reversed(rows)))
    assert counters_of(trace, 1) == {}
    (found,) = counters_of(sampled(TraceBuilder().trace(), rows), 0).values()
    table = zip(found.start.tolist(), found.end.tolist(), found.value.tolist(), strict=True)
    assert list(table) == [(0, 10, 1.0), (20, 30, 3.0), (90, 100, 5.0), (110, 120, 6.0)]
    assert found.period_ns == 10
    assert counters_of(trace, 0).keys() == {READ}


def test_the_integral_counts_what_samples_cover() -> None:
    counter = Counter(np.array([0, 100, 300]), np.array([100, 200, 400]), np.array([4e9, 2e9, 1e9]), 100)
    start, end = np.array([50, 150, 390]), np.array([120, 350, 500])
    assert counter.overlap(start, end).tolist() == [50, 70, 60]
    assert counter.total(start, end) == pytest.approx(4 * 50 + 2 * 70 + 60)


@st.composite
def counters(draw: st.DrawFn) -> Counter:
    edges = sorted(draw(st.sets(st.integers(0, 10_000), min_size=4, max_size=40)))
    value = draw(st.lists(st.floats(0, 1e11), min_size=len(edges) - 1, max_size=len(edges) - 1))
    kept = np.array(draw(st.lists(st.booleans(), min_size=len(value), max_size=len(value))))
    return Counter(np.array(edges[:-1])[kept], np.array(edges[1:])[kept], np.array(value)[kept], 100)


@given(counters(), st.lists(st.integers(-100, 11_000), min_size=2, max_size=12, unique=True), st.integers(-100, 11_000))
def test_the_integral_adds_up_and_is_never_negative(counter: Counter, edges: list[int], cut: int) -> None:
    ordered = sorted(edges)[: len(edges) // 2 * 2]
    start, end = np.array(ordered[::2]), np.array(ordered[1::2])
    whole = counter.total(start, end)
    before = counter.total(*_clipped(start, end, -(10**6), cut))
    behind = counter.total(*_clipped(start, end, cut, 10**6))
    assert min(whole, before, behind) >= 0
    assert whole == pytest.approx(before + behind, rel=1e-9, abs=1e-9)
    assert whole <= counter.total(np.array([-(10**6)]), np.array([10**6])) * (1 + 1e-9)


def _clipped(start: np.ndarray, end: np.ndarray, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.clip(start, low, high), np.clip(end, low, high)
    return a[b > a], b[b > a]


STEPS = (0, 1_000 * US, 2_000 * US)


def two_ranks(size: int = -1) -> Trace:
    """Three steps: rank 0 enters an all-reduce 100 us in, rank 1 20 us later, and then it takes 100 us."""
    builder = TraceBuilder()
    for rank in range(2):
        builder.rank(rank)
        for at in STEPS:
            builder.range(at, at + 90 * US, "step:decode bs=1").range(at, at + 80 * US, "target")
            builder.launch(at + 1, at + 2, "gemm", at + 10 * US, at + 60 * US)
            if size >= 0:
                builder.collective_call(at + 5 * US, at + 15 * US, "ncclAllReduce", "tp", size)
            enters, end = at + (100 + 20 * rank) * US, at + 220 * US
            builder.launch(at + 8 * US, at + 9 * US, "all_reduce", enters, end)
    return with_limits(builder.trace())


def carrying(
    trace: Trace, rates: dict[str, tuple[float, float]], period: int = 20 * US, until: int = 2_500 * US
) -> Trace:
    """``trace`` with counters that have one value from 120 to 220 us of each step, and another elsewhere."""
    rows = [
        (time, device, name, during if 120 * US < time % (1_000 * US) <= 220 * US else beside)
        for device in range(2)
        for time in range(0, until, period)
        for name, (during, beside) in rates.items()
    ]
    return sampled(trace, rows)


def analysed(trace: Trace) -> tuple[TraceFigures, DeviceFigures]:
    (figures,) = analyze([Recording("run", "", trace)])[0].traces
    return figures, figures.devices["0"]


def test_bytes_during_transfers_are_integrated() -> None:
    """3 transfers of 100 us at 8 GB/s are 2.4 MB; waiting for the last rank, at 1 GB/s, is none of it."""
    _, device = analysed(carrying(two_ranks(), {READ: (8 * GB, 1 * GB), WRITE: (6 * GB, 0.0)}))
    assert device.link_use is not None
    reads, writes = device.link_use
    assert (reads.kind, reads.phase, reads.link, reads.direction) == ("all_reduce", "decode", "pcie", "in")
    assert (writes.direction, writes.share) == ("out", pytest.approx(6 / 32))
    assert (reads.count, reads.transfer_ns, reads.measured_ns, reads.period_ns) == (3, 300 * US, 300 * US, 20 * US)
    assert (reads.bytes, writes.bytes) == (2_400_000, 1_800_000)
    assert (reads.mean, reads.mean_most, reads.peak) == pytest.approx((8 * GB,) * 3)
    assert (reads.limit, reads.share) == (32_000_000_000, pytest.approx(0.25))
    assert reads.resolved and reads.bus_bandwidth is None
    assert in_words(reads) == "during decode's all-reduces PCIe reads 8.0 GB/s, 25 % of the link's 32 GB/s, measured"


def test_what_message_sizes_imply_stands_beside() -> None:
    """400,000 bytes in 100 us are 4 GB/s; the bus bandwidth of an all-reduce of two ranks is the same."""
    _, device = analysed(carrying(two_ranks(size=400_000), {READ: (8 * GB, 0.0)}))
    assert device.link_use is not None
    assert device.link_use[0].bus_bandwidth == pytest.approx(4 * GB)


def short_transfers() -> Trace:
    """Three steps of 16 all-reduces of 5 us, 40 us apart; ranks enter together."""
    builder = TraceBuilder()
    for rank in range(2):
        builder.rank(rank)
        for at in STEPS:
            builder.range(at, at + 90 * US, "step:decode bs=1").range(at, at + 80 * US, "target")
            for number in range(16):
                begin = at + (100 + 40 * number) * US
                builder.launch(at + 2 * number, at + 2 * number + 1, "all_reduce", begin, begin + 5 * US)
    return builder.trace()


def blurred(trace: Trace, during: float) -> Trace:
    """Samples of 20 us of a link that carries ``during`` in the transfers of ``short_transfers``, and else nothing."""
    moments = [(at + (100 + 40 * n) * US) for at in STEPS for n in range(16)]
    inside = {moment + 20 * US for moment in moments}
    rows = [(t, d, READ, during / 4 if t in inside else 0.0) for t in range(0, 3_000 * US, 20 * US) for d in range(2)]
    return sampled(trace, rows)


@pytest.mark.parametrize(("limit", "most"), [(None, 12 * GB), (32_000_000_000, 12 * GB), (10_000_000_000, 10 * GB)])
def test_short_transfers_give_a_range(limit: int | None, most: float) -> None:
    """5 us at 12 GB/s in a sample of 20 us show as 3 GB/s: it is 3 to 12, and no more than the link lets through."""
    _, device = analysed(blurred(with_limits(short_transfers(), limit), 12 * GB))
    assert device.link_use is not None
    (row,) = device.link_use
    assert (row.count, row.transfer_ns, row.bytes) == (48, 240 * US, 720_000)
    assert (row.mean, row.mean_most, row.peak) == (pytest.approx(3 * GB), pytest.approx(most), None)
    assert not row.resolved
    assert row.share == (None if limit is None else pytest.approx(3 * GB / limit))
    if limit == 32_000_000_000:
        assert in_words(row).endswith("PCIe reads 3.0 GB/s to 12 GB/s, 9.4 % to 38 % of the link's 32 GB/s, measured")


def test_the_verdict_says_whether_the_link_is_full() -> None:
    said = {}
    for rate in (8 * GB, 24 * GB):
        figures, _ = analysed(carrying(two_ranks(), {READ: (rate, 0.0)}))
        (said[rate],) = [cause.text for cause in figures.verdict if cause.cause == "link_bound"]
    assert "(during decode's all-reduces PCIe reads 8.0 GB/s, 25 % of the link's 32 GB/s, measured)" in said[8 * GB]
    assert "the GPU's own link is not full" in said[8 * GB]
    assert "75 %" in said[24 * GB] and "a faster link" in said[24 * GB]


def test_a_link_that_carries_nothing_is_not_told() -> None:
    """The bytes then go another way, which was not sampled."""
    figures, device = analysed(carrying(two_ranks(), {READ: (0.0, 0.0)}))
    assert device.link_use is not None and [row.bytes for row in device.link_use] == [0]
    assert dearest(device.link_use) is None
    (said,) = [cause.text for cause in figures.verdict if cause.cause == "link_bound"]
    assert "measured" not in said and "a faster link" in said


def test_too_few_samples_are_unknown() -> None:
    """Samples of 150 us: three transfers of 100 us are two of them."""
    _, device = analysed(carrying(two_ranks(), {READ: (8 * GB, 8 * GB)}, period=150 * US))
    assert device.link_use is not None
    (row,) = device.link_use
    assert (row.measured_ns, row.bytes, row.mean, row.share, row.peak) == (300 * US, None, None, None, None)
    assert device.sampling == CounterSampling(period_ns=150 * US, asked_ns=None)


def test_the_interval_that_was_asked_for_stands_beside_that_of_the_samples() -> None:
    trace = carrying(two_ranks(), {READ: (8 * GB, 8 * GB)}, period=150 * US)
    _, device = analysed(trace.with_run(replace(trace.run, counter_interval_ns=50_000)))
    assert device.sampling == CounterSampling(period_ns=150 * US, asked_ns=50_000)


def test_without_samples_nothing_is_known() -> None:
    analysis, _ = analyze([Recording("run", "", two_ranks())])
    device = json.loads(msgspec.json.encode(analysis))["traces"][0]["devices"]["0"]
    assert device["link_use"] is None and device["activity"] is None and device["sampling"] is None
    nvml = [(t * US, 0, "pcie_rx_bytes_per_s", 1.0) for t in range(0, 3_000, 20)]
    assert analysed(sampled(two_ranks(), nvml))[1].link_use is None


def test_waiting_that_is_not_told_from_transfer_leaves_the_use_unknown() -> None:
    alone = with_limits(TraceBuilder().rank(0).trace())
    builder = TraceBuilder().rank(0)
    for at in STEPS:
        builder.range(at, at + 90 * US, "step:decode bs=1").launch(at + 8, at + 9, "all_reduce", at + US, at + 200 * US)
    one = sampled(builder.trace(), [(t, 0, READ, GB) for t in range(0, 3_000 * US, 20 * US)])
    assert analysed(one)[1].link_use is None
    assert analyze([Recording("empty", "", alone)])[0].traces[0].devices == {}


def test_activity_is_of_the_busy_time_of_each_phase() -> None:
    """A phase of 40 us in each sample of 50 us, idle for the rest: what is counted is of the 40 us.

    Draft: 40 % over 50 us are 50 % over 40. The last sample of each step is mostly of ``verify``, 3 TB/s to be capped.
    """
    builder = TraceBuilder().rank(0)
    rows: list[tuple[int, int, str, float]] = [(0, 0, SM, 0.0), (0, 0, "pm_dram_read_percent", 0.0)]
    rows += [(0, 0, "pm_dram_write_percent", 0.0)]
    for at in STEPS:
        builder.range(at, at + 900 * US, "step:decode bs=1").range(at, at + 9 * US, "draft")
        builder.range(at + 10 * US, at + 19 * US, "target")
        for number in range(20):
            launch = at + (1 if number < 10 else 11) * US + number * 10
            builder.launch(launch, launch + 5, "gemm", at + number * 50 * US, at + (number * 50 + 40) * US)
            end = at + (number + 1) * 50 * US
            rows += [(end, 0, SM, 40.0 if number < 10 else 80.0), (end, 0, "pm_dram_read_percent", 20.0)]
            rows += [(end, 0, "pm_dram_write_percent", 4.0)]
    _, device = analysed(sampled(with_limits(builder.trace()), rows))
    assert device.activity is not None
    draft, verify = device.activity
    assert (draft.phase, draft.busy_ns, draft.samples) == ("draft", 3 * 400 * US, 30)
    assert (verify.phase, verify.sm_percent) == ("verify", pytest.approx(100.0))
    assert (draft.sm_percent, draft.tensor_percent) == (pytest.approx(50.0), None)
    assert draft.dram_share == pytest.approx(0.3)
    assert draft.dram_bytes_per_s == pytest.approx(0.3 * 2e12)


def test_dram_is_counted_in_bytes_or_in_shares() -> None:
    rates = {"pm_dram_read_bytes_per_s": (0.0, 500 * GB), "pm_dram_write_bytes_per_s": (0.0, 100 * GB)}
    _, device = analysed(carrying(two_ranks(), rates, period=10 * US))
    assert device.activity is not None
    (decode,) = device.activity
    # 150 us of compute at 600 GB/s, and three all-reduces of 120 us, of which the first 20 us lie at 600 GB/s.
    expected = 600 * GB * 210 / 510
    assert decode.dram_bytes_per_s == pytest.approx(expected)
    assert decode.dram_share == pytest.approx(expected / 2e12)


def test_a_phase_shorter_than_samples_is_unknown() -> None:
    _, device = analysed(carrying(two_ranks(), {SM: (50.0, 50.0)}, period=1_250 * US, until=3_000 * US))
    assert device.activity is not None
    assert [(row.samples, row.sm_percent, row.told) for row in device.activity] == [(2, None, False)]


def test_devices_without_limits_have_no_share() -> None:
    trace = replace(two_ranks(), devices=tuple(Device(number) for number in range(2)))
    _, device = analysed(carrying(trace, {READ: (8 * GB, 0.0), "pm_nvlink_rx_bytes_per_s": (3 * GB, 0.0)}))
    assert device.link_use is not None
    assert [(row.link, row.limit, row.share, row.share_most) for row in device.link_use] == [
        ("pcie", None, None, None),
        ("nvlink", None, None, None),
    ]
    assert in_words(device.link_use[1]) == "during decode's all-reduces NVLink receives 3.0 GB/s, measured"
