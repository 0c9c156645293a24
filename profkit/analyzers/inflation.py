"""What recording costs: how much longer a step is in a recording, and what its parts are without the recorder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from profkit.traces import RecordingCost, StepTimes, Trace

from .attribution import Attribution
from .cycle import slowest_device
from .inflation_parts import lengthened, middle_step, without_excess
from .inflation_result import Inflation, InflationPart
from .matching import MatchedCollectives
from .result import Cycle
from .vocabulary import PARTS, PHASES
from .words import duration, range_of

MAX_INFLATION = 0.1
"""Share by which recording may lengthen a step before it is said aloud."""

MIN_RATIO = 0.01
RECORDERS = {"kineto": "torch"}
NOT_TIMED = "no step was timed without a recorder"


def recorder_of(trace: Trace) -> str:
    """What recorded ``trace``: ``nsys``, ``cupti``, ``torch``, or the format where the run does not say."""
    return trace.run.recorder or RECORDERS.get(trace.source.format, trace.source.format)


@dataclass(frozen=True, slots=True)
class StepCost:
    """A step as recorded and as timed without the recorder, in ns. ``measured`` compares both at the same contexts."""

    recorder: str
    recorded_ns: int
    timed: StepTimes
    measured: RecordingCost | None
    timed_recorded: StepTimes | None = None

    @property
    def ratio(self) -> float:
        """How many times as long a step is in the recording."""
        return self.measured.ratio if self.measured else self.recorded_ns / self.timed.median_ns

    @property
    def ratios(self) -> tuple[float, float]:
        """The least and the most that the ratio may be: by its own error, or by how steps differ among themselves."""
        if self.measured:
            return max(self.ratio - self.measured.error, MIN_RATIO), self.ratio + self.measured.error
        return self.recorded_ns / self.timed.high_ns, self.recorded_ns / max(self.timed.low_ns, 1)

    @property
    def is_told(self) -> bool:
        """Whether a cost can be told from the spread."""
        return self.ratios[0] > 1

    @property
    def other_work(self) -> bool:
        """Whether the recorded step is shorter than any without a recorder is likely to be: they were not alike."""
        return self.ratios[1] < 1

    @property
    def unrecorded_ns(self) -> int:
        """The step without a recorder; the recorded one where no cost can be told."""
        return round(self.recorded_ns / self.ratio) if self.is_told else self.recorded_ns

    @property
    def band(self) -> tuple[int, int]:
        """The least and the most that the step without a recorder may take: recording does not shorten."""
        if self.other_work:
            return self.recorded_ns, max(self.timed.high_ns, self.recorded_ns)
        ends = [round(step / max(ratio, 1.0)) for step in self._recorded for ratio in self.ratios]
        return min(*ends, self.unrecorded_ns), min(max(*ends, self.unrecorded_ns), self.recorded_ns)

    @property
    def _recorded(self) -> tuple[int, ...]:
        """The recorded step by the GPU and, where contexts are compared, that of the whole window by the host.

        The recording keeps some steps of the window, and not all were lengthened alike.
        """
        if self.measured is None or self.timed_recorded is None:
            return (self.recorded_ns,)
        return self.recorded_ns, self.timed_recorded.median_ns

    @property
    def said(self) -> str:
        """The cost in words, without a full stop."""
        recorded, timed = duration(self.recorded_ns), duration(self.timed.median_ns)
        if self.other_work and not self.measured:
            return (
                f"a step recorded by {self.recorder} takes {recorded}, less than nine of ten without it (median "
                f"{timed}): they did other work, and what recording cost is not known"
            )
        if self.measured:
            return self._compared(self.measured, recorded)
        if not self.is_told:
            spread = range_of(self.timed.low_ns, self.timed.high_ns)
            return (
                f"what recording by {self.recorder} cost cannot be told from the spread (a step takes {recorded} "
                f"recorded, {timed} without it, where eight of ten take {spread})"
            )
        return (
            f"recording by {self.recorder} made a step {self.ratio:.2f} times as long ({recorded} instead of {timed})"
        )

    def _compared(self, measured: RecordingCost, recorded: str) -> str:
        times = f"{self.ratio:.3f} ± {measured.error:.3f} times as long as without at the same contexts"
        if self.other_work:
            return f"a step recorded by {self.recorder} is {times}: what recording cost is not known"
        if not self.is_told:
            return f"what recording by {self.recorder} cost cannot be told from the spread (a step is {times})"
        instead = f"{recorded} instead of {duration(self.unrecorded_ns)}"
        return f"recording by {self.recorder} made a step {times} ({instead})"


def step_cost(trace: Trace, cycle: Cycle) -> StepCost | None:
    """The cost of recording, or ``None`` where no step was timed without a recorder, or none with it."""
    timed, within = trace.run.step_times, trace.run.step_times_recorded
    recorded = cycle.period_ns_median or (within.median_ns if within else None)
    if timed is None or not timed.median_ns or not recorded:
        return None
    return StepCost(recorder_of(trace), recorded, timed, trace.run.recording_cost, within)


def inflation_of(
    attribution: Attribution, matched: MatchedCollectives, cycle: Cycle, parts_known: bool
) -> Inflation | None:
    """What recording costs in a step, and in its parts where the partition is known; ``None`` without a step."""
    device = slowest_device(attribution)
    if device is None:
        return None
    trace, period = attribution.trace, cycle.period_ns_median
    cost = step_cost(trace, cycle)
    found = Inflation(recorder_of(trace), period, unknown=NOT_TIMED, at_most_ns=_at_most(trace, cycle))
    if cost is not None:
        found = _measured(cost)
    if period is None or not parts_known:
        return found
    middle = middle_step(attribution, device, period)
    late = lengthened(attribution, matched, device, middle.cells)
    parts = [
        InflationPart(phase, part, int(middle.cells[row, column]), int(late[row, column]))
        for column, phase in enumerate(PHASES)
        for row, part in enumerate(PARTS)
        if middle.cells[row, column]
    ]
    found = structs.replace(found, parts=tuple(parts), ops=middle.ops, unions=middle.unions)
    return with_estimates(found)


def _measured(cost: StepCost) -> Inflation:
    low, high = cost.band
    return Inflation(
        recorder=cost.recorder,
        recorded_ns=cost.recorded_ns,
        measured_ns=cost.timed.median_ns,
        unrecorded_ns=cost.unrecorded_ns,
        low_ns=low,
        high_ns=high,
        steps_low_ns=cost.timed.low_ns,
        steps_high_ns=cost.timed.high_ns,
        ratio=cost.ratio,
        ratio_error=cost.measured.error if cost.measured else None,
        text=cost.said,
    )


def _at_most(trace: Trace, cycle: Cycle) -> int | None:
    """The step that throughput without a recorder allows, in ns: what it also did, such as prefills, is in it."""
    throughput = trace.run.tokens_per_s
    if not throughput or not cycle.accept_len or not cycle.batch_size:
        return None
    return round(cycle.accept_len * cycle.batch_size / throughput * 1e9)


def with_estimates(found: Inflation) -> Inflation:
    """``found`` with the estimate of each part without a recorder, if the step without it is known."""
    if found.unrecorded_ns is None:
        return found
    recorded, host = [row.recorded_ns for row in found.parts], [row.lengthened_ns for row in found.parts]
    estimates = without_excess(recorded, host, found.unrecorded_ns)
    rows = [_estimated(found, row, estimate) for row, estimate in zip(found.parts, estimates, strict=True)]
    return structs.replace(found, parts=tuple(rows))


def _estimated(found: Inflation, row: InflationPart, estimate: int) -> InflationPart:
    """A part may have given all that recording may have cost, or nothing, as far as the others can make up for it."""
    if found.recorded_ns is None or found.low_ns is None or found.high_ns is None:
        return row
    others = found.recorded_ns - row.recorded_ns
    least = max(row.recorded_ns - max(found.recorded_ns - found.low_ns, 0), 0)
    most = row.recorded_ns - max(found.recorded_ns - found.high_ns - others, 0)
    if found.high_ns > found.recorded_ns:
        most = -(-row.recorded_ns * found.high_ns // max(found.recorded_ns, 1))
    return structs.replace(row, unrecorded_ns=estimate, low_ns=min(least, estimate), high_ns=max(most, estimate))


def grouped(found: Inflation, names: Sequence[str], title: str) -> InflationPart | None:
    """The parts called ``names`` of all phases as one row called ``title``; ``None`` where there is none."""
    own = [row for row in found.parts if row.part in names]
    if not own:
        return None
    whole = InflationPart("", title, sum(row.recorded_ns for row in own), sum(row.lengthened_ns for row in own))
    if found.unrecorded_ns is None:
        return whole
    return _estimated(found, whole, sum(row.unrecorded_ns or 0 for row in own))
