"""Hardware counters as steps in time: what was sampled of a device, and how much of it lies within given intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import F64, I64, Trace

from .attribution import Attribution
from .counter_result import CounterSampling
from .intervals import covered_before

PREFIX = "pm_"
"""How the names of sampled hardware counters begin; NVML's counters, which are means of 20 ms, have no such prefix."""

HOLE = 4.0
"""An interval so many times as long as the counter's usual one is a hole: samples were lost, or none were taken."""

MIN_SAMPLES = 3
"""Figures need so many samples, or so much sampled time in usual intervals; with less they are unknown."""

MOSTLY = 0.5
"""Share of a sample that must lie within something for the sample to be one of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """One counter of one device: ``value`` is its mean over ``[start, end)``, in ns.

    Intervals ascend and are disjoint; ``period_ns`` is the usual length of an interval.
    """

    start: I64
    end: I64
    value: F64
    period_ns: int

    def overlap(self, start: I64, end: I64) -> I64:
        """How much of each sample's interval lies within the given ones, in ns; these must ascend and be disjoint."""
        return covered_before(start, end, self.end) - covered_before(start, end, self.start)

    def total(self, start: I64, end: I64) -> float:
        """The integral of the value over the given intervals, times seconds; what no sample covers adds nothing."""
        return float(self.value @ (self.overlap(start, end) * 1e-9))

    def suffices(self, measured_ns: int) -> bool:
        """Whether so much sampled time gives a figure."""
        return measured_ns > 0 and measured_ns >= MIN_SAMPLES * self.period_ns


def counters_of(trace: Trace, device: int) -> dict[str, Counter]:
    """The sampled hardware counters of ``device`` by name.

    A sample's interval begins with the sample before it, so the first one has none; nor has one behind a hole, nor one
    whose value is no count.
    """
    samples = trace.samples
    mine = np.flatnonzero(samples.device == device)
    found = {}
    for number in np.unique(samples.counter[mine]).tolist():
        if number >= 0 and trace.strings[number].startswith(PREFIX):
            rows = mine[samples.counter[mine] == number]
            rows = rows[np.argsort(samples.time[rows], kind="stable")]
            counter = _counter(samples.time[rows], samples.value[rows])
            if counter is not None:
                found[trace.strings[number]] = counter
    return found


def counter_sampling(attribution: Attribution, device: int) -> CounterSampling | None:
    """How far apart the samples of ``device`` are, and how much of its ops' time they cover; ``None`` without any."""
    trace = attribution.trace
    counters = counters_of(trace, device).values()
    if not counters:
        return None
    ops = np.flatnonzero(trace.ops.device == device)
    first, last = trace.ops.start[ops].min(keepdims=True), trace.ops.end[ops].max(keepdims=True)
    covered = min(int(counter.overlap(first, last).sum()) for counter in counters)
    return CounterSampling(
        period_ns=int(np.median([counter.period_ns for counter in counters])),
        asked_ns=trace.run.counter_interval_ns,
        covered_share=covered / max(int(last[0] - first[0]), 1),
        moved_ns=attribution.counters_moved.get(device, 0),
        clock_error_ns=trace.run.counter_clock_error_ns,
    )


def _counter(time: I64, value: F64) -> Counter | None:
    start, end, mean = time[:-1], time[1:], value[1:]
    length = end - start
    if not np.any(length > 0):
        return None
    period = int(np.median(length[length > 0]))
    kept = (length > 0) & (length <= HOLE * period) & np.isfinite(mean) & (mean >= 0)
    return Counter(start[kept], end[kept], mean[kept], period) if np.any(kept) else None
