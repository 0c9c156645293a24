"""How far the clock of a GPU's counters is off UTC, from when its sampler was told to start and to stop.

On some hosts the time stamps of samples are UTC, on others the GPU's own clock. Only the calls tell which: the first
sample ends soon after sampling began, the last one just before it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from profkit.traces import I64


@dataclass(frozen=True, slots=True)
class Bracket:
    """When a sampler was called to start and to stop, and when it returned from that: UTC nanoseconds."""

    start_called: int
    start_returned: int
    stop_called: int
    stop_returned: int


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Time stamps are ahead of UTC by something from ``low_ns`` to ``high_ns``.

    ``by_stop_alone`` where the samples do not fit both calls: the clock drifts, or the first samples were lost.
    """

    low_ns: int
    high_ns: int
    by_stop_alone: bool = False

    @property
    def shift_ns(self) -> int:
        """What has to be taken from the time stamps: nothing where they can be UTC."""
        return 0 if self.holds(0) else (self.low_ns + self.high_ns) // 2

    @property
    def error_ns(self) -> int:
        """How much ``shift_ns`` can be off, either way."""
        return (self.high_ns - self.low_ns + 1) // 2

    def holds(self, offset_ns: int) -> bool:
        """Whether the clock can be ahead by so much."""
        return self.low_ns <= offset_ns <= self.high_ns

    def overlaps(self, other: Self) -> bool:
        """Whether both can be the same offset."""
        return self.low_ns <= other.high_ns and other.low_ns <= self.high_ns


def clock_offset(ends: I64, interval_ns: int, bracket: Bracket) -> ClockOffset | None:
    """The offset of the clock that stamped ``ends``, the ends of samples; ``None`` without any.

    The first sample ends at the earliest when ``start`` is called and at the latest two intervals after it returned:
    one is its own, the other tolerance. The last one ends at the earliest two intervals before ``stop`` is called, and
    at the latest one after it returned. Where these contradict each other, a clock that is right by either of them is
    taken to be right: then it is samples that are missing at the other end.
    """
    if not len(ends):
        return None
    first, last = int(np.min(ends)), int(np.max(ends))
    start = ClockOffset(first - bracket.start_returned - 2 * interval_ns, first - bracket.start_called)
    stop = ClockOffset(last - bracket.stop_returned - interval_ns, last - bracket.stop_called + 2 * interval_ns, True)
    low, high = max(start.low_ns, stop.low_ns), min(start.high_ns, stop.high_ns)
    if low <= high:
        return ClockOffset(low, high)
    return start if start.holds(0) else stop


def in_words(gpu: int, offset: ClockOffset) -> str:
    """That the clock of ``gpu`` was off, by how much, and how exactly that is known."""
    shift = offset.shift_ns
    way = "ahead of" if shift > 0 else "behind"
    known = f"the clock of GPU {gpu}'s counters is {_seconds(abs(shift))} {way} UTC"
    fits = ", by the end of sampling alone, since its begin does not fit" if offset.by_stop_alone else ""
    return f"{known}{fits}: the samples are moved by that, which is known to ± {_seconds(offset.error_ns)}"


def _seconds(ns: int) -> str:
    """Seconds with a fraction where there are some, else milliseconds."""
    return f"{ns * 1e-9:,.3f} s" if ns >= 1e9 else f"{ns * 1e-6:.1f} ms"
