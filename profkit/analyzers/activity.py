"""How busy the units of a GPU are in each phase, as its hardware counters measured it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Bools, Trace

from .arrays import occurring
from .attribution import Attribution
from .counter_result import PhaseActivity
from .counters import MIN_SAMPLES, MOSTLY, Counter, counters_of
from .intervals import merge
from .partition import COLLECTIVE, COMPUTE, COPY, DeviceTimeline
from .vocabulary import PHASES

SM, TENSOR = "pm_sm_active_percent", "pm_tensor_active_percent"
DRAM_BYTES = ("pm_dram_read_bytes_per_s", "pm_dram_write_bytes_per_s")
DRAM_PERCENT = ("pm_dram_read_percent", "pm_dram_write_percent")


def phase_activity(attribution: Attribution, device: int) -> tuple[PhaseActivity, ...] | None:
    """The activity of each phase in which ``device`` is busy; ``None`` where none of the counters was sampled."""
    counters = counters_of(attribution.trace, device)
    counters = {name: counters[name] for name in (SM, TENSOR, *DRAM_BYTES, *DRAM_PERCENT) if name in counters}
    if not counters:
        return None
    bandwidth = memory_bandwidth(attribution.trace, device)
    timeline = attribution.devices[device]
    busy = np.isin(timeline.part, (COMPUTE, COLLECTIVE, COPY))
    whole = {name: counter.overlap(*_stretches(timeline, busy)) for name, counter in counters.items()}
    rows = []
    for code in occurring(timeline.phase[busy].astype(np.int64)).tolist():
        start, end = _stretches(timeline, busy & (timeline.phase == code))
        shares = {name: _Share.of(counter, whole[name], start, end) for name, counter in counters.items()}
        rows.append(_activity(shares, bandwidth, PHASES[code], int((end - start).sum())))
    return tuple(rows)


def memory_bandwidth(trace: Trace, device: int) -> int | None:
    """The device's, in bytes per second, where the recording tells it."""
    return next((one.memory_bandwidth for one in trace.devices if one.device == device), None)


def _stretches(timeline: DeviceTimeline, kept: Bools) -> tuple[I64, I64]:
    return merge(timeline.start[kept], timeline.end[kept])


@dataclass(frozen=True, slots=True)
class _Share:
    """A counter's mean over the busy time of one phase, and the number of samples that tell it."""

    samples: int
    mean: float | None

    @classmethod
    def of(cls, counter: Counter, whole: I64, start: I64, end: I64) -> _Share:
        """``whole`` is the busy time of each sample; the intervals are the busy time of the phase."""
        own = counter.overlap(start, end)
        kept = (own > 0) & (own >= MOSTLY * whole)
        samples = int(np.count_nonzero(kept))
        if samples < MIN_SAMPLES:
            return cls(samples, None)
        busy_mean = counter.value[kept] * (counter.end - counter.start)[kept] / whole[kept]
        return cls(samples, float(busy_mean @ own[kept]) / int(own[kept].sum()))


def _activity(shares: dict[str, _Share], bandwidth: int | None, phase: str, busy_ns: int) -> PhaseActivity:
    means = {name: share.mean for name, share in shares.items()}
    rate, share = _dram(means, bandwidth)
    return PhaseActivity(
        phase=phase,
        busy_ns=busy_ns,
        samples=max(share.samples for share in shares.values()),
        sm_percent=_at_most(means.get(SM), 100.0),
        tensor_percent=_at_most(means.get(TENSOR), 100.0),
        dram_bytes_per_s=_at_most(rate, bandwidth),
        dram_share=_at_most(share, 1.0),
    )


def _at_most(value: float | None, most: float | None) -> float | None:
    """What was counted beside recorded work, by others on the GPU, must not make more than the whole."""
    return value if value is None or most is None else min(value, most)


def _dram(means: dict[str, float | None], bandwidth: int | None) -> tuple[float | None, float | None]:
    """Bytes per second read and written, and their share of ``bandwidth``: GPUs count one or the other."""
    moved, shares = _sum(means, DRAM_BYTES), _sum(means, DRAM_PERCENT)
    if moved is not None:
        return moved, moved / bandwidth if bandwidth else None
    if shares is not None:
        return shares / 100 * bandwidth if bandwidth else None, shares / 100
    return None, None


def _sum(means: dict[str, float | None], names: tuple[str, str]) -> float | None:
    read, written = (means.get(name) for name in names)
    return read + written if read is not None and written is not None else None
