"""Hardware counters set to the clock of the ops, which recorders set anew in each window: by what a link carries when.

A link carries most while collectives transfer. On two H200s the samples' bytes came up to 62 µs behind the transfers
that moved them, and by as much less on the device whose clock collectives show to be ahead by that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.traces import I64

from .attribution import Attribution
from .counters import PREFIX, Counter, counters_of
from .intervals import merge
from .link_use import COUNTERS, transfers_of
from .matching import match_collectives

REACH = 3.0
"""The clocks are at most so many sampling intervals apart, or as much as the recording says."""

FINEST, MOST_TRIED = 25, 1_000
"""Offsets are tried a so-manyth of an interval apart, but no more of them than that."""

MIN_CORRELATION, MIN_GAIN, MIN_TRANSFERS = 0.6, 0.05, 50
"""An offset is believed if bytes and transfers then correlate so well, and so much better than without it."""


def with_counters_on_clock_of_ops(attribution: Attribution) -> Attribution:
    """``attribution`` with the samples of each device moved as far as its links show; mostly not at all."""
    trace = attribution.trace
    counters = {device: counters_of(trace, device) for device in attribution.devices}
    links = {device: [found[name] for name in COUNTERS if name in found] for device, found in counters.items()}
    if not any(links.values()):
        return attribution
    matched = match_collectives(attribution)
    lags = {}
    for device, sampled in links.items():
        parts = list(transfers_of(attribution, matched, device).values()) if matched.known else []
        if sum(len(start) for start, _ in parts) >= MIN_TRANSFERS:
            start, end = merge(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))
            lags[device] = _lag(sampled, start, end, trace.run.counter_clock_error_ns or 0)
    return _moved(attribution, {device: lag for device, lag in lags.items() if lag})


def _lag(counters: list[Counter], start: I64, end: I64, error_ns: int) -> int:
    """By how much the counters' clock is ahead, as the one tells that fits the transfers best; 0 unless one does."""
    reach = max(round(REACH * counters[0].period_ns), error_ns)
    step = max(counters[0].period_ns // FINEST, 2 * reach // MOST_TRIED, 1)
    tried = np.arange(-(reach // step), reach // step + 1) * step
    best, found = MIN_CORRELATION, 0
    for counter in counters:
        fits = [_correlation(counter, start + lag, end + lag) for lag in tried.tolist()]
        highest = int(np.argmax(fits))
        if fits[highest] >= best:
            best = fits[highest]
            found = int(tried[highest]) if best >= fits[len(tried) // 2] + MIN_GAIN else 0
    return found


def _correlation(counter: Counter, start: I64, end: I64) -> float:
    """Of each sample's value and the share of it that lies in the intervals."""
    inside = counter.overlap(start, end) / (counter.end - counter.start)
    if not (np.ptp(inside) and np.ptp(counter.value)):
        return 0.0
    return float(np.corrcoef(inside, counter.value)[0, 1])


def _moved(attribution: Attribution, lags: dict[int, int]) -> Attribution:
    """NVML's samples stay: they are means of 20 ms."""
    samples, strings = attribution.trace.samples, attribution.trace.strings
    ours = np.array([text.startswith(PREFIX) for text in strings])[samples.counter] & (samples.counter >= 0)
    time = samples.time.copy()
    for device, lag in lags.items():
        time[ours & (samples.device == device)] -= lag
    trace = replace(attribution.trace, samples=replace(samples, time=time)) if lags else attribution.trace
    return replace(attribution, trace=trace, counters_moved=lags)
