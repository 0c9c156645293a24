"""What recording costs: how much longer a step is in a recording, and what its parts are without the recorder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from profkit.traces import StepTimes, Trace

from .attribution import Attribution
from .cycle import slowest_device
from .inflation_parts import Spread, lengthened, middle_step, without_excess
from .inflation_result import Inflation, InflationPart
from .matching import MatchedCollectives
from .result import Cycle
from .vocabulary import PARTS, PHASES
from .words import duration

MAX_INFLATION = 0.1
"""Share by which recording may lengthen a step before it is said aloud."""

RECORDERS = {"kineto": "torch"}
NOT_TIMED = "no step was timed without a recorder"


def recorder_of(trace: Trace) -> str:
    """What recorded ``trace``: ``nsys``, ``cupti``, ``torch``, or the format where the run does not say."""
    return trace.run.recorder or RECORDERS.get(trace.source.format, trace.source.format)


@dataclass(frozen=True, slots=True)
class StepCost:
    """A step as recorded and as timed without the recorder, in ns."""

    recorder: str
    recorded_ns: int
    timed: StepTimes
    timed_recorded: StepTimes | None

    @property
    def ratio(self) -> float:
        """How many times as long a step is in the recording."""
        return self.recorded_ns / self.timed.median_ns

    @property
    def other_work(self) -> bool:
        """Whether the recorded step is shorter than nine of ten without a recorder: then they were not alike."""
        return self.recorded_ns < self.timed.low_ns

    @property
    def unrecorded_ns(self) -> int:
        """The step without a recorder, at most the recorded one."""
        return min(self.timed.median_ns, self.recorded_ns)

    @property
    def band(self) -> tuple[int, int]:
        """The middle 80 % of unrecorded steps; wider by what the host's clock says otherwise of the recorded ones."""
        ends = [self.unrecorded_ns, self.timed.low_ns, self.timed.high_ns]
        if self.timed_recorded is not None and self.timed_recorded.median_ns:
            ends.append(self.timed.median_ns * self.recorded_ns // self.timed_recorded.median_ns)
        return min(ends), max(ends)

    @property
    def said(self) -> str:
        """The cost in words, without a full stop."""
        recorded, timed = duration(self.recorded_ns), duration(self.timed.median_ns)
        if self.other_work:
            return (
                f"a step recorded by {self.recorder} takes {recorded}, less than nine of ten without it (median "
                f"{timed}): they did other work, and what recording cost is not known"
            )
        if self.ratio <= 1:
            return (
                f"recording by {self.recorder} cost nothing that can be told from the spread (a step takes {recorded} "
                f"recorded, {timed} without)"
            )
        return (
            f"recording by {self.recorder} made a step {self.ratio:.2f} times as long ({recorded} instead of {timed})"
        )


def step_cost(trace: Trace, cycle: Cycle) -> StepCost | None:
    """The cost of recording, or ``None`` where no step was timed without a recorder, or none with it."""
    timed, within = trace.run.step_times, trace.run.step_times_recorded
    recorded = cycle.period_ns_median or (within.median_ns if within else None)
    if timed is None or not timed.median_ns or not recorded:
        return None
    return StepCost(recorder_of(trace), recorded, timed, within)


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
        ratio=cost.ratio,
        text=cost.said,
    )


def _at_most(trace: Trace, cycle: Cycle) -> int | None:
    """The step that throughput without a recorder allows, in ns: what it also did, such as prefills, is in it."""
    throughput = trace.run.tokens_per_s
    if not throughput or not cycle.accept_len or not cycle.batch_size:
        return None
    return round(cycle.accept_len * cycle.batch_size / throughput * 1e9)


def with_estimates(found: Inflation, most: Sequence[int | None] = ()) -> Inflation:
    """``found`` with the estimate of each part without a recorder, if the step without it is known.

    ``most`` holds for each part what it takes at most, as a recording that costs less shows: what is above goes first.
    """
    spread = spread_of(found)
    if spread is None or found.unrecorded_ns is None:
        return found
    recorded, late = [row.recorded_ns for row in found.parts], [row.lengthened_ns for row in found.parts]
    caps = [own if cap is None else min(cap, own) for cap, own in zip(most or recorded, recorded, strict=True)]
    above = [own - cap for own, cap in zip(recorded, caps, strict=True)]
    estimates = without_excess(recorded, [above, late], found.unrecorded_ns)
    # The other recording's kernels are those of its typical step, and steps differ without a recorder too.
    mosts = [-(-cap * spread.high // max(sum(caps), 1)) for cap in caps]
    rows = [_estimated(row, spread, *ends) for row, *ends in zip(found.parts, estimates, caps, mosts, strict=True)]
    return structs.replace(found, parts=tuple(rows))


def _estimated(row: InflationPart, spread: Spread, estimate: int, cap: int, most: int) -> InflationPart:
    low, high = spread.of(row.recorded_ns, row.lengthened_ns)
    high = most if cap < row.recorded_ns else max(high, most)
    return structs.replace(row, unrecorded_ns=estimate, low_ns=min(low, estimate), high_ns=max(high, estimate))


def spread_of(found: Inflation) -> Spread | None:
    """How far the parts of ``found`` may be off; ``None`` where the step without a recorder is not known."""
    if found.low_ns is None or found.high_ns is None or found.recorded_ns is None:
        return None
    return Spread(found.recorded_ns, sum(row.lengthened_ns for row in found.parts), found.low_ns, found.high_ns)


def grouped(found: Inflation, names: Sequence[str], title: str) -> InflationPart | None:
    """The parts called ``names`` of all phases as one row called ``title``; ``None`` where there is none."""
    own = [row for row in found.parts if row.part in names]
    if not own:
        return None
    recorded, late = sum(row.recorded_ns for row in own), sum(row.lengthened_ns for row in own)
    spread, whole = spread_of(found), InflationPart("", title, recorded, late)
    if spread is None:
        return whole
    estimate, lows, highs = (
        sum(ns or 0 for ns in column)
        for column in zip(*((row.unrecorded_ns, row.low_ns, row.high_ns) for row in own), strict=True)
    )
    low, high = spread.of(recorded, late)
    # Parts that another recording bounds are sharper than their sum by itself.
    low, high = min(max(low, lows), estimate), max(min(high, highs), estimate)
    return structs.replace(whole, unrecorded_ns=estimate, low_ns=low, high_ns=high)
