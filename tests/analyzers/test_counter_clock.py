"""Counters whose clock is not that of the ops, as a link's bytes show; and what the recording over NVLink says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from profkit import Recording, analyze
from profkit.analyzers import attribute
from profkit.analyzers.counter_clock import with_counters_on_clock_of_ops
from profkit.analyzers.counter_result import CounterSampling
from profkit.analyzers.counters import counters_of
from profkit.analyzers.device_result import DeviceFigures
from profkit.analyzers.intervals import covered_before, merge
from profkit.analyzers.result import TraceFigures
from profkit.traces import Samples, Trace, load_bundle
from tests.builders import TraceBuilder

TRACES = Path(__file__).parents[2] / "traces"
NVLINK, ALONE = TRACES / "ep2-dflash-nvlink", TRACES / "tp1-dflash-counters" / "c1"
READ, SM, NVML = "pm_nvlink_rx_bytes_per_s", "pm_sm_active_percent", "power_w"
US = 1_000
PERIOD, STEP = 20 * US, 4_000 * US
RATE = 100e9

MOMENTS = np.cumsum(np.random.default_rng(7).integers(60, 140, 25)) * US
"""When all-reduces begin in each step of ``transfers``."""


def transfers(count: int = 25) -> Trace:
    """Three steps of ``count`` all-reduces of 30 us on two ranks, at uneven distances."""
    builder = TraceBuilder()
    for rank in range(2):
        builder.rank(rank)
        for at in (0, STEP, 2 * STEP):
            builder.range(at, at + 90 * US, "step:decode bs=1").range(at, at + 80 * US, "target")
            for number, moment in enumerate(MOMENTS[:count].tolist()):
                builder.launch(at + 2 * number, at + 2 * number + 1, "all_reduce", at + moment, at + moment + 30 * US)
    return builder.trace()


def carried(trace: Trace, lags: tuple[int, int], noise: bool = False) -> Trace:
    """``trace`` with samples of both GPUs, stamped by a clock that is ahead by ``lags``; ``noise`` has no transfers."""
    first = np.concatenate([at + MOMENTS for at in (0, STEP, 2 * STEP)])
    ends = np.arange(PERIOD, 3 * STEP, PERIOD)
    inside = np.diff(covered_before(first, first + 30 * US, ends), prepend=0)
    value = np.random.default_rng(3).random(len(ends)) if noise else inside / PERIOD
    strings = (*trace.strings, READ, SM, NVML)
    tables = [
        Samples(
            time=ends + (lag if number < 2 else 0),
            device=np.full(len(ends), device),
            counter=np.full(len(ends), len(trace.strings) + number),
            value=value * RATE,
        )
        for device, lag in enumerate(lags)
        for number in range(3)
    ]
    return replace(trace, samples=Samples.join(tables), strings=strings)


@pytest.mark.parametrize("lags", [(35 * US, 60 * US), (-35 * US, 0), (12 * US, -50 * US)])
def test_samples_are_moved_to_the_transfers_that_moved_their_bytes(lags: tuple[int, int]) -> None:
    """All counters of a GPU by the same; NVML's not at all."""
    trace = carried(transfers(), lags)
    moved = with_counters_on_clock_of_ops(attribute(trace))
    for device, lag in enumerate(lags):
        assert moved.counters_moved.get(device, 0) == pytest.approx(lag, abs=US)
        rows = trace.samples.device == device
        shift = {
            name: set(
                (trace.samples.time - moved.trace.samples.time)[rows & (trace.samples.counter == number)].tolist()
            )
            for number, name in enumerate(trace.strings)
            if name in (READ, SM, NVML)
        }
        assert shift == {READ: {moved.counters_moved.get(device, 0)}, SM: shift[READ], NVML: {0}}
    figures = analyze([Recording("run", "", trace)])[0].traces[0].devices["0"]
    assert figures.link_use is not None and figures.sampling is not None
    assert figures.sampling.moved_ns == moved.counters_moved.get(0, 0)
    # Spread evenly over samples, a third of one is lost at the edges of each transfer: 20 of 90 us.
    assert figures.link_use[0].bytes == pytest.approx(75 * 30e-6 * RATE * 7 / 9, rel=0.02)


@pytest.mark.parametrize(
    "trace",
    [
        carried(transfers(), (0, 2 * US)),
        carried(transfers(), (0, 0), noise=True),
        carried(transfers(5), (40 * US, 40 * US)),
    ],
    ids=["on time", "no relation", "few transfers"],
)
def test_samples_stay_where_nothing_shows_that_they_lie_elsewhere(trace: Trace) -> None:
    attribution = attribute(trace)
    moved = with_counters_on_clock_of_ops(attribution)
    assert moved.counters_moved == {}
    assert moved.trace is attribution.trace


def test_a_clock_known_less_exactly_is_looked_for_farther() -> None:
    lags = (700 * US, -900 * US)
    trace = carried(transfers(), lags)
    assert with_counters_on_clock_of_ops(attribute(trace)).counters_moved == {}
    known = trace.with_run(replace(trace.run, counter_clock_error_ns=1_000 * US))
    moved = with_counters_on_clock_of_ops(attribute(known)).counters_moved
    assert [moved[0], moved[1]] == pytest.approx(list(lags), abs=2 * US)


def test_samples_that_end_early_cover_a_part() -> None:
    """Of the time from the first all-reduce to the last one, the first half is sampled."""
    trace = carried(transfers(), (0, 0))
    first, last = int(trace.ops.start.min()), int(trace.ops.end.max())
    half = replace(trace, samples=trace.samples.take(trace.samples.time <= (first + last) // 2))
    for one, share in ((trace, 1.0), (half, 0.5)):
        sampling = analyze([Recording("run", "", one)])[0].traces[0].devices["0"].sampling
        assert sampling is not None and sampling.covered_share == pytest.approx(share, abs=0.01)


HIDDEN, BYTES, LAYERS = 2048, 2, 48
"""Of Qwen3-30B-A3B in bfloat16; verify reduces the embedding and twice in each layer."""

VOCABULARY = 151_936


@pytest.mark.parametrize("concurrency", [1, 32, 128])
def test_bytes_over_nvlink_are_those_that_two_ranks_need(concurrency: int) -> None:
    """Of ``n`` bytes a ring of two sends ``n`` in an all-reduce; an all-gather of the logits sends half of them.

    The counter's bytes are those with the link's framing and NCCL's flags: more than the payload, and the more the
    smaller the message. 18 links of 25 GB/s carry 450 GB/s; the fullest samples hold 425 GB/s.
    """
    trace = load_bundle(NVLINK / f"c{concurrency}")
    figures: TraceFigures = analyze([Recording("run", "", trace)])[0].traces[0]
    tokens = concurrency * 8
    for device in figures.devices.values():
        assert device.link_use is not None
        rows = {(row.kind, row.phase, row.link, row.direction): row for row in device.link_use}
        for direction in ("in", "out"):
            reduces = rows["all_reduce", "verify", "nvlink", direction]
            assert reduces.count == 8 * (1 + 2 * LAYERS)
            payload = reduces.count * tokens * HIDDEN * BYTES / (reduces.transfer_ns * 1e-9)
            assert reduces.mean is not None and reduces.mean_most is not None
            assert reduces.mean < payload < reduces.mean_most < 450e9
            gathers = rows["all_gather", "verify", "nvlink", direction]
            payload = gathers.count * tokens * VOCABULARY / 2 * BYTES / (gathers.transfer_ns * 1e-9)
            assert gathers.mean_most is not None
            assert payload < gathers.mean_most < 450e9
            if concurrency == 128:
                assert gathers.mean is not None and gathers.mean / payload == pytest.approx(1.21, abs=0.03)
                assert gathers.peak == pytest.approx(425e9, rel=0.01)


def test_the_recording_over_nvlink_pinned() -> None:
    """Two GPUs whose ops lie 27.5 us apart on clocks that samples share: at 128 both are moved, and by so much less."""
    figures = [analyze([Recording(c, "", load_bundle(NVLINK / c))])[0].traces[0] for c in ("c1", "c32", "c128")]
    sampling = [[device.sampling for device in one.devices.values()] for one in figures]
    assert [[one and one.moved_ns for one in both] for both in sampling] == [[0, 0], [0, 8_000], [34_000, 61_969]]
    shares = [[one.covered_share for one in both if one] for both in sampling]
    assert shares == [[1.0, 1.0], [1.0, 1.0], pytest.approx([0.915, 0.919], abs=0.001)]


def alone() -> tuple[Trace, DeviceFigures]:
    """The recording of one GPU without NVLink."""
    trace = load_bundle(ALONE)
    return trace, analyze([Recording("c1", "", trace)])[0].traces[0].devices["0"]


def test_counters_of_one_gpu_without_nvlink_pinned() -> None:
    """By UTC, as they were stamped, 50 us apart, from 1 ms before the first op to 1 ms after the last one."""
    trace, device = alone()
    assert device.sampling == CounterSampling(50_000, 50_000, covered_share=1.0, moved_ns=0, clock_error_ns=None)
    assert device.link_use == ()
    counters = counters_of(trace, 0)
    assert len(counters) == 6 and not any("nvlink" in name for name in counters)
    for number, name in enumerate(trace.strings):
        if name in counters:
            times = np.sort(trace.samples.time[trace.samples.counter == number])
            assert len(times) == 1_329 and np.abs(np.diff(times) - 50_000).max() < 20
            before, after = times[0] - trace.ops.start.min(), times[-1] - trace.ops.end.max()
            assert (before, after) == pytest.approx((-956_617, 993_050), abs=1)


def test_dram_reads_are_the_weights_that_each_step_has_to_read() -> None:
    """Of Qwen3-8B's layers and the logits' matrix in bfloat16, each once: the KV cache at batch 1 adds little."""
    _, device = alone()
    assert device.activity is not None
    hidden, inner, keys = 4096, 12_288, 2 * 1024
    layer, logits = hidden * (2 * hidden + keys + 3 * inner), hidden * VOCABULARY
    rows = {row.phase: row for row in device.activity}
    for phase, layers in (("verify", 36), ("draft", 5)):
        moved = rows[phase].dram_bytes_per_s
        assert moved is not None
        assert moved * rows[phase].busy_ns * 1e-9 / 8 == pytest.approx((layers * layer + logits) * BYTES, rel=0.02)


def test_dram_reads_follow_the_matrix_products_of_the_same_clock() -> None:
    """Where ops were a sample off, reads would show it: their correlation is highest where the recording puts them."""
    trace, _ = alone()
    products = np.array([trace.strings[name].startswith("nvjet") for name in trace.ops.name])
    start, end = merge(trace.ops.start[products], trace.ops.end[products])
    number = trace.strings.index("pm_dram_read_percent")
    mine = trace.samples.counter == number
    order = np.argsort(trace.samples.time[mine])
    times, reads = trace.samples.time[mine][order], trace.samples.value[mine][order]
    fits = {
        shift: np.corrcoef(np.diff(covered_before(start, end, times + shift * US)), reads[1:])[0, 1]
        for shift in range(-50, 51, 5)
    }
    assert max(fits, key=lambda shift: fits[shift]) in (0, 5) and fits[0] > 0.9
