"""Whether matched collectives can be the same ones, and how far the clocks of ranks are apart.

A collective ends on no rank before it has begun on every other. Where matched ones do, either the clocks of the ranks
differ, always by as much, or the wrong ones were matched. GPUs of one recording can differ too: Nsight Systems sets the
clock of each GPU anew in each window, and two H200 of one host were seen up to 25 us apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN, Index

from .words import duration, share

CLOCK_TOLERANCE = 50_000
"""Ranks leave a collective within this many nanoseconds of each other; more means that clocks differ."""

LEAST_OFFSET = 2_000
LEAST_PAIRS = 50
"""Differences of clocks from this many nanoseconds on are told from noise, over at least so many collectives."""

SLACK = 1_000
"""GPUs of one recording agree on the time to this many nanoseconds."""

MAX_IMPOSSIBLE = 0.005
"""Share of matched collectives that may be out of line before none is believed."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Start and end of the collectives that two devices have in common, on the clock of each."""

    start: I64
    end: I64
    other_start: I64
    other_end: I64

    @property
    def ahead(self) -> I64:
        """By how much the second device's clock is ahead, as far as each end tells."""
        return self.other_end - self.end

    @property
    def offset(self) -> int:
        """By how much the second device's clock is ahead; 0 unless the collectives show that it differs."""
        low, high = self._possible()
        ahead = int(np.median(self.ahead))
        if abs(ahead) > CLOCK_TOLERANCE:
            return ahead
        cannot_agree = not low - SLACK <= 0 <= high + SLACK
        if low > high or not (cannot_agree or self._is_shifted(ahead)):
            return 0
        return min(max(ahead, low), high)

    def _possible(self) -> tuple[int, int]:
        """The offsets with which no collective, but for a few strays, ends before the other device begins it."""
        strays = int(MAX_IMPOSSIBLE * len(self.end))
        low = np.sort(self.other_start - self.end)[-1 - strays]
        high = np.sort(self.other_end - self.start)[strays]
        return int(low), int(high)

    def _is_shifted(self, ahead: int) -> bool:
        """Whether starts and ends lie apart by the same: a rank that only comes first waits for the other."""
        starts = float(np.median(self.other_start - self.start))
        low, high = np.percentile(self.ahead, [25, 75])
        enough = len(self.end) >= LEAST_PAIRS and abs(ahead) >= LEAST_OFFSET
        return bool(enough and high - low < abs(ahead) and abs(starts - ahead) <= abs(ahead) / 2)


def partners(keys: dict[int, I64], key: I64) -> dict[int, Index]:
    """For each device, the position of its instance with each ``key``, or -1."""
    places = {}
    for device, own in keys.items():
        order = np.argsort(own, kind="stable")
        ordered = own[order]
        if not len(order):
            places[device] = np.full(len(key), -1)
            continue
        at = np.minimum(np.searchsorted(ordered, key), len(order) - 1)
        places[device] = np.where((ordered[at] == key) & (key != UNKNOWN), order[at], -1)
    return places


def clock_offsets(devices: list[int], pairs: dict[tuple[int, int], Pair]) -> dict[int, int]:
    """How far each device's clock is ahead of the first one's, as the collectives show; mostly 0.

    A device that shares no collective with the first one is compared with the first that it shares one with.
    """
    offsets = dict.fromkeys(devices, 0)
    for place, device in enumerate(devices):
        shared = next((other for other in devices[:place] if len(pairs[other, device].end)), None)
        if shared is None:
            continue
        offsets[device] = offsets[shared] + pairs[shared, device].offset
    return offsets


def why_impossible(pairs: dict[tuple[int, int], Pair], offsets: dict[int, int]) -> str | None:
    """Why matched collectives cannot be the same ones even with the clocks aligned, or ``None`` if they can."""
    for (first, second), pair in pairs.items():
        apart = offsets[second] - offsets[first]
        uneven = np.abs(pair.ahead - apart) > CLOCK_TOLERANCE
        if apart and uneven.mean() > MAX_IMPOSSIBLE:
            low, high = np.percentile(np.abs(pair.ahead), [1, 99])
            return (
                f"collectives end on device {second} between {duration(low)} and {duration(high)} apart from device "
                f"{first}: no constant difference of clocks explains that"
            )
        ends = np.minimum(pair.end, pair.other_end - apart)
        never = ends + SLACK < np.maximum(pair.start, pair.other_start - apart)
        if len(never) and never.mean() > MAX_IMPOSSIBLE:
            return (
                f"{int(never.sum())} of {len(never)} collectives ({share(never.sum(), len(never))}) end on device "
                f"{first} or {second} before they begin on the other, which is impossible"
            )
    return None
