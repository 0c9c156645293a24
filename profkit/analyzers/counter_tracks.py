"""Tracks of hardware counters above a timeline, in buckets no finer than can be drawn; and what NVML said nearby."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit.traces import F64, I64, Trace

from .activity import DRAM_BYTES, DRAM_PERCENT, SM, TENSOR, memory_bandwidth
from .counters import Counter, counters_of
from .link_use import link_limit
from .words import listed, rate

BUCKETS = 1_000
"""A track has no more intervals than this, about one for each pixel of its whole width."""

MIN_LIMIT = 0.25
"""The limit lies on the scale if the highest value is so much of it; else the scale ends above that value."""

NEAR_NS = 300_000_000
"""How far from the timeline a sample of NVML may lie to be told with it; NVML is read every 100 ms or so."""

LEAST_SCALE = 0.1
"""GB/s; a link that carries less looks empty."""

GIGA = 1e9
TRACKS: tuple[tuple[str, str, float, dict[str, str]], ...] = (
    ("PCIe", "GB/s", GIGA, {"reads": "pm_pcie_read_bytes_per_s", "writes": "pm_pcie_write_bytes_per_s"}),
    ("NVLink", "GB/s", GIGA, {"receives": "pm_nvlink_rx_bytes_per_s", "sends": "pm_nvlink_tx_bytes_per_s"}),
    ("DRAM", "GB/s", GIGA, {"reads": DRAM_BYTES[0], "writes": DRAM_BYTES[1]}),
    ("DRAM", "%", 1.0, {"reads": DRAM_PERCENT[0], "writes": DRAM_PERCENT[1]}),
    ("activity", "%", 1.0, {"SM": SM, "tensor": TENSOR}),
)
"""Title, unit, its size, and the counters of each track by the name of their line."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One counter: means over ``[start, start + length)``, in ns from the start of the timeline.

    ``low`` and ``high`` are the least and the highest sample of each interval where it holds several, else ``None``.
    """

    name: str
    start: I64
    length: I64
    mean: F64
    low: F64 | None
    high: F64 | None


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """Counters of one device on one scale, from 0 to ``scale`` of ``unit``; ``limit`` where the recording tells it."""

    device: int
    title: str
    unit: str
    scale: float
    limit: float | None
    lines: tuple[Line, ...]


def counter_tracks(trace: Trace, device: int, start: int, end: int) -> tuple[Track, ...]:
    """The tracks of ``device`` from ``start`` to ``end``: of each counter that was sampled then.

    An NVLink on which nothing was ever counted is left out: GPUs without one count zeros.
    """
    counters = counters_of(trace, device)
    tracks = []
    for title, unit, size, names in TRACKS:
        found = {name: counters[counter] for name, counter in names.items() if counter in counters}
        if title == "NVLink" and not any(np.any(counter.value) for counter in found.values()):
            continue
        lines = tuple(
            line
            for name, counter in found.items()
            if (line := _line(name, counter, size, start, end)) is not None
        )  # fmt: skip
        if lines:
            limit = _limit(trace, device, title, unit)
            tracks.append(Track(device, title, unit, _scale(unit, lines, limit), limit, lines))
    return tuple(tracks)


def _limit(trace: Trace, device: int, title: str, unit: str) -> float | None:
    found = link_limit(trace, device, "pcie") if title == "PCIe" else None
    if title == "DRAM" and unit == "GB/s":
        found = memory_bandwidth(trace, device)
    return found / GIGA if found else None


def _scale(unit: str, lines: tuple[Line, ...], limit: float | None) -> float:
    """100 %, or a round number above the highest sample, and above the limit if that is not far above."""
    if unit == "%":
        return 100.0
    highest = [float((line.mean if line.high is None else line.high).max()) for line in lines]
    most = max(LEAST_SCALE, *highest)
    if limit is not None and most >= MIN_LIMIT * limit:
        most = max(most, limit)
    power = 10.0 ** math.floor(math.log10(most))
    return next(power * step for step in (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0) if power * step >= most)


def _line(name: str, counter: Counter, size: float, start: int, end: int) -> Line | None:
    rows = np.flatnonzero((counter.end > start) & (counter.start < end))
    if not len(rows):
        return None
    begin, behind = np.maximum(counter.start[rows], start) - start, np.minimum(counter.end[rows], end) - start
    value = counter.value[rows] / size
    if len(rows) <= BUCKETS:
        return Line(name, begin, behind - begin, value, None, None)
    return _bucketed(name, begin, behind, value, end - start)


def _bucketed(name: str, begin: I64, end: I64, value: F64, span: int) -> Line:
    """Samples put together that lie in the same of ``BUCKETS`` parts of the timeline."""
    bucket = (begin + end) // 2 * BUCKETS // span
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    length = end - begin
    mean = np.add.reduceat(value * length, first) / np.add.reduceat(length, first)
    low, high = np.minimum.reduceat(value, first), np.maximum.reduceat(value, first)
    last = np.append(first[1:], len(begin)) - 1
    return Line(name, begin[first], end[last] - begin[first], mean, low, high)


def nvml_reading(trace: Trace, device: int, time: int) -> str | None:
    """What NVML said of ``device`` nearest to ``time``, in words; ``None`` without a sample near it.

    Its PCIe counters are means of 20 ms, too coarse for a step.
    """
    found = dict(_nearest(trace, device, time))
    said = []
    ways = {"pcie_rx_bytes_per_s": "reads", "pcie_tx_bytes_per_s": "writes"}
    links = [f"{verb} {rate(found[name])}" for name, verb in ways.items() if name in found]
    if links:
        said.append(f"PCIe {listed(links)} (mean of 20 ms)")
    if "sm_clock_mhz" in found:
        said.append(f"SM clock {found['sm_clock_mhz']:,.0f} MHz")
    if "power_w" in found:
        said.append(f"{found['power_w']:.0f} W")
    return f"NVML nearby: {', '.join(said)}" if said else None


def _nearest(trace: Trace, device: int, time: int) -> Iterator[tuple[str, float]]:
    samples = trace.samples
    near = np.flatnonzero((samples.device == device) & (np.abs(samples.time - time) <= NEAR_NS))
    for number in np.unique(samples.counter[near]).tolist():
        rows = near[samples.counter[near] == number]
        closest = rows[np.argmin(np.abs(samples.time[rows] - time))]
        if number >= 0 and np.isfinite(samples.value[closest]):
            yield trace.strings[number], float(samples.value[closest])
