"""From a recorder's report to a bundle: trimmed, with NVML's samples, and with what is known of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from profkit.traces import Note, Process, ProfkitError, RecordingCost, Run, StepTimes, Trace, model_of, save_bundle
from profkit.traces.trim import DOMAIN, STEP, recorded_period_ns, trim_steps

from .backends import Recorded
from .counter_rows import why_none, within_recording
from .gpu_names import known_devices, on_devices_of
from .machine import Row, as_samples
from .plan import Plan
from .recording_cost import left_behind, recording_cost
from .step_clock import Gaps, step_times

CLOCK_TOLERANCE_NS = 5_000_000_000


@dataclass(slots=True)
class Window:
    """One concurrency of one pass: what was measured and recorded. Times in UTC nanoseconds, rates in tokens/s.

    ``number`` counts the windows that the recorder has opened, from 1; 0 for one that it has not. ``rate_before`` and
    ``rate_after`` are the throughput while nothing was recorded, before and after the recording; ``gaps_before``,
    ``gaps_after`` and ``gaps_recorded`` the times from decode step to decode step then, and within the recording.
    ``counters`` are the hardware counters that were sampled for it, ``counter_interval_ns`` is how far apart they were
    asked for, ``counter_clock_error_ns`` how exactly their times are known where they had to be moved; ``no_counters``
    says why the bundle has none of them. ``left_behind`` is how many times as long steps are after the recording as
    before it; ``None`` where they are no longer, or not measured yet.
    """

    concurrency: int
    graphs: bool
    name: str
    recorder: str = ""
    number: int = 0
    began_ns: int = 0
    ended_ns: int = 0
    opened_ns: int = 0
    closed_ns: int = 0
    rate_before: float | None = None
    rate_after: float | None = None
    accept_length: float | None = None
    period_ns: float | None = None
    gaps_before: Gaps = field(default_factory=dict)
    gaps_after: Gaps = field(default_factory=dict)
    gaps_recorded: Gaps = field(default_factory=dict)
    left_behind: RecordingCost | None = None
    counters: Sequence[Row] = ()
    counter_interval_ns: int | None = None
    counter_clock_error_ns: int | None = None
    no_counters: str | None = None
    trace: str | None = None
    failure: str | None = None

    def measured_again(self, rate: float, gaps: Gaps) -> None:
        """Take up what was measured after the recording."""
        self.rate_after, self.gaps_after = rate, gaps
        self.left_behind = left_behind(self.gaps_before, gaps)

    @property
    def tokens_per_s(self) -> float | None:
        """Throughput while nothing was recorded, and before the recorder left something behind."""
        rates = [rate for rate in (self.rate_before, self.rate_after) if rate is not None]
        if self.left_behind is not None and self.rate_before is not None:
            return self.rate_before
        return sum(rates) / len(rates) if rates else None

    @property
    def _gaps_without(self) -> tuple[Gaps, ...]:
        return (self.gaps_before,) if self.left_behind is not None else (self.gaps_before, self.gaps_after)

    @property
    def tokens_per_s_recorded(self) -> float | None:
        """Throughput of the recorded steps: requests times tokens of each per step, over the median step period."""
        if not self.period_ns:
            return None
        return self.concurrency * (self.accept_length or 1.0) * 1e9 / self.period_ns

    @property
    def step_times(self) -> StepTimes | None:
        """Decode steps while nothing was recorded."""
        return step_times(*self._gaps_without)

    @property
    def step_times_recorded(self) -> StepTimes | None:
        """Decode steps within the recording."""
        return step_times(self.gaps_recorded)

    @property
    def recording_cost(self) -> RecordingCost | None:
        """What the recorder made of steps, at the same contexts."""
        return recording_cost(self.gaps_recorded, *self._gaps_without)


def import_window(
    plan: Plan,
    window: Window,
    recorded: Recorded,
    rows: Sequence[Row],
    ranks: Mapping[int, int],
    machine: Mapping[str, Any],
) -> None:
    """Write the bundle of ``window`` into the plan's folder and note it in the window.

    ``rows`` are NVML's samples, ``ranks`` the rank of each process, ``machine`` what is known of the GPUs. Raises
    ``BatchError`` where most of the steps are not of the window's requests.
    """
    trimmed = trim_steps(recorded.trace, plan.settings.windows.steps, window.concurrency)
    if not _is_divided(plan):
        check_batch_size(trimmed, window.concurrency)
    window.period_ns = recorded_period_ns(trimmed)
    zero = _zero(recorded, window)
    devices = known_devices(trimmed, machine, plan.settings.gpu_ids)
    mine = on_devices_of(devices, rows, machine)
    if window.counter_interval_ns is not None:
        window.no_counters = why_none(window.name, mine, trimmed, zero)
    if window.no_counters:
        window.counter_interval_ns = None
    samples, strings = as_samples(within_recording(mine, trimmed, zero), trimmed.strings, zero)
    trace = replace(
        trimmed,
        samples=samples,
        strings=strings,
        processes=tuple(_with_rank(process, ranks) for process in trimmed.processes),
        devices=devices,
        notes=(*trimmed.notes, *_missing_ranges(trimmed, window.recorder)),
        run=_run(plan, window),
    )
    save_bundle(trace, plan.folder / window.name)
    window.trace = window.name


class BatchError(ProfkitError):
    """The recorded steps ran other requests than the window's."""


def _is_divided(plan: Plan) -> bool:
    """Whether a step runs a part of the requests only: with pipeline stages, or data-parallel ranks."""
    return any(int(plan.settings.server.get(key, 1)) > 1 for key in ("pp_size", "dp_size"))


def check_batch_size(trace: Trace, concurrency: int) -> None:
    """Raise ``BatchError`` if fewer than half of the decode steps ran exactly ``concurrency`` requests."""
    sizes = _batch_sizes(trace)
    if not sizes or 2 * sizes.count(concurrency) >= len(sizes):
        return
    typical = int(np.median(sizes))
    advice = "see max_running_requests and the room for requests in server.log, or ask for fewer with --conc"
    raise BatchError(f"its steps ran {typical} requests at once, not {concurrency}; {advice}")


def _batch_sizes(trace: Trace) -> list[int]:
    """The requests in each decode step that says so, of all ranks."""
    if DOMAIN not in trace.strings:
        return []
    ours = trace.ranges.domain == trace.strings.index(DOMAIN)
    found = (STEP.match(trace.strings[text]) for text in trace.ranges.text[ours].tolist())
    return [int(step[2]) for step in found if step and step[1] == "decode" and step[2]]


def _zero(recorded: Recorded, window: Window) -> int:
    """The UTC time of the trace's zero: as the report says, or, where that is absent or absurd, from our own clock."""
    trace = recorded.trace
    starts = [int(table.start.min()) for table in (trace.ops, trace.ranges) if len(table)]
    first = max(min(starts, default=0), 0)
    zero = recorded.zero_utc_ns
    earliest, latest = (
        window.opened_ns - CLOCK_TOLERANCE_NS,
        max(window.opened_ns, window.closed_ns) + CLOCK_TOLERANCE_NS,
    )
    if zero is not None and earliest < zero + first < latest:
        return zero
    return window.opened_ns - first


def _with_rank(process: Process, ranks: Mapping[int, int]) -> Process:
    known = ranks.get(process.pid, process.rank)
    return process if known is None else replace(process, rank=known, role=process.role or "engine")


def _missing_ranges(trace: Trace, recorder: str) -> list[Note]:
    """A recording without a step has to say so: the plugin was not found, or the recorder saw none of its ranges."""
    if recorded_period_ns(trace) is not None:
        return []
    if "profkit" in trace.strings:
        return [Note("warning", "fewer than two decode steps were recorded")]
    known = "; nsys before 2025 sees ranges of the Python package nvtx only up to 0.2.11" if recorder == "nsys" else ""
    return [Note("warning", f"no range of profkit's plugin was recorded: see server.log{known}")]


def _run(plan: Plan, window: Window) -> Run:
    return Run(
        config=plan.settings.name,
        concurrency=window.concurrency,
        graphs=window.graphs,
        accept_len=window.accept_length,
        accept_len_source="reported by the server" if window.accept_length is not None else "",
        tokens_per_s=window.tokens_per_s,
        block_size=plan.block_size,
        graph_batch_sizes=tuple(plan.graph_batch_sizes) if window.graphs else (),
        engine=f"sglang {plan.version}",
        step_times=window.step_times,
        step_times_recorded=window.step_times_recorded,
        recording_cost=window.recording_cost,
        recorder=window.recorder,
        counter_interval_ns=window.counter_interval_ns,
        counter_clock_error_ns=window.counter_clock_error_ns,
        model=model_of(plan.settings.record()),
    )
