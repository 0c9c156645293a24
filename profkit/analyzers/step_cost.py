"""A step as recorded and as timed without the recorder: how many times as long it is, and how well that is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

from profkit.traces import RecordingCost, StepTimes, Trace

from .result import Cycle
from .words import duration, range_of

MIN_RATIO = 0.01

WANDER = 0.03
"""By how much a window may differ from the steps around it where no windows without a recorder tell: a GPU that runs
graphs has two modes that lie so far apart."""

KEPT_LIKE_WINDOW = 0.1
"""Share by which the steps of a recording may differ from all of its window before the window's cost is not theirs."""

RECORDERS = {"kineto": "torch"}


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
            return max(self.ratio - self.error, MIN_RATIO), self.ratio + self.error
        return self.recorded_ns / max(self.timed.high_ns, 1), self.recorded_ns / max(self.timed.low_ns, 1)

    @property
    def error(self) -> float:
        """Half the width of the 95 % interval of a ratio at the same contexts; 0 where there is none."""
        if self.measured is None:
            return 0.0
        return self.measured.error if self.measured.windows else math.hypot(self.measured.error, WANDER)

    @property
    def elsewhere_ns(self) -> int | None:
        """What a step at the window's contexts takes outside of it; ``None`` where contexts were not counted."""
        if self.measured is None or self.timed_recorded is None:
            return None
        return round(self.timed_recorded.median_ns / self.measured.ratio)

    @property
    def is_told(self) -> bool:
        """Whether a cost can be told from the spread."""
        return self.ratios[0] > 1

    @property
    def is_kept_like_window(self) -> bool:
        """Whether the steps of the recording take about as long as those of the window that the ratio is of."""
        if self.measured is None or self.timed_recorded is None or not self.timed_recorded.median_ns:
            return True
        return abs(self.recorded_ns / self.timed_recorded.median_ns - 1) <= KEPT_LIKE_WINDOW

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
            return self._compared(recorded)
        if not self.is_told:
            spread = range_of(self.timed.low_ns, self.timed.high_ns)
            return (
                f"what recording by {self.recorder} cost cannot be told from the spread (a step takes {recorded} "
                f"recorded, {timed} without it, where eight of ten take {spread})"
            )
        return (
            f"recording by {self.recorder} made a step {self.ratio:.2f} times as long ({recorded} instead of {timed})"
        )

    def _compared(self, recorded: str) -> str:
        times = f"{self.ratio:.3f} ± {self.error:.3f} times as long as without at the same contexts"
        if self.other_work:
            return f"a step recorded by {self.recorder} is {times}: what recording cost is not known"
        if not self.is_told:
            return (
                f"what recording by {self.recorder} cost cannot be told from the spread (a step is {times}: {recorded} "
                f"here; over all contexts the median without it is {duration(self.timed.median_ns)})"
            )
        if not self.is_kept_like_window and self.timed_recorded:
            window = duration(self.timed_recorded.median_ns)
            return (
                f"recording by {self.recorder} made the steps of its window (median {window}) {times}, but the steps "
                f"that the recording holds take {recorded}: of them it is not known"
            )
        instead = f"{recorded} instead of {duration(self.unrecorded_ns)}"
        return f"recording by {self.recorder} made a step {times} ({instead})"


def step_cost(trace: Trace, cycle: Cycle) -> StepCost | None:
    """The cost of recording, or ``None`` where no step was timed without a recorder, or none with it."""
    timed, within = trace.run.step_times, trace.run.step_times_recorded
    recorded = cycle.period_ns_median or (within.median_ns if within else None)
    if timed is None or not timed.median_ns or not recorded:
        return None
    return StepCost(recorder_of(trace), recorded, timed, trace.run.recording_cost, within)
