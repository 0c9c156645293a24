"""From event fields to exact integer columns."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from .kineto_decode import Event, Scalar
from .model import I64, UNKNOWN, Bools

_NO_TIME = int(np.iinfo(np.int64).min)
_LAST_MICROSECOND = Decimal(4 * 10**15)  # the year 2096: start + duration still fits int64 nanoseconds
_DAY = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Timed:
    """Events with usable times, in order of start; ``lost`` of ``total`` had none."""

    events: list[Event]
    start: I64
    end: I64
    lost: int
    total: int


def timed(events: Sequence[Event]) -> Timed:
    """Those of ``events`` whose times can be true.

    Recorders have written 0 for start and duration, negative durations, durations of years, and nothing at all;
    no record of a profiler lasts longer than a day, or lies further than that from the others.
    """
    start = _nanoseconds(event.ts for event in events)
    duration = _nanoseconds(event.dur for event in events)
    good = (start != _NO_TIME) & (duration >= 0) & (duration <= _DAY) & ((start != 0) | (duration != 0))
    if good.any():
        good &= _near(start, int(np.median(start[good])))
    kept = np.flatnonzero(good)
    kept = kept[np.argsort(start[kept], kind="stable")]
    rows = [events[row] for row in kept.tolist()]
    return Timed(rows, start[kept], start[kept] + duration[kept], len(events) - len(rows), len(events))


def _near(start: I64, middle: int) -> Bools:
    return (start >= middle - _DAY) & (start <= middle + _DAY)


def _nanoseconds(times: Iterable[Decimal | None]) -> I64:
    return np.fromiter((_nanosecond(time) for time in times), np.int64)


def _nanosecond(time: Decimal | None) -> int:
    if time is None or not time.is_finite() or abs(time) > _LAST_MICROSECOND:
        return _NO_TIME
    return round(time * 1000)


def integers(values: Sequence[Scalar]) -> I64:
    """``values`` as integers; ``UNKNOWN`` where one is missing or no integer of 64 bits."""
    column = np.array([UNKNOWN if value is None else value for value in values])
    if column.dtype.kind == "i":
        return column.astype(np.int64)
    return np.fromiter((_integer(value) for value in values), np.int64, len(values))


def _integer(value: Scalar) -> int:
    try:
        number = int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN
    return number if -(2**63) <= number < 2**63 else UNKNOWN


def identifiers(values: Sequence[Scalar]) -> I64:
    """Process or thread ids as integers; a name gets a number above all that a kernel gives out."""
    return integers([_named(value) if isinstance(value, str) else value for value in values])


def _named(name: str) -> int:
    return int(name) if name.removeprefix("-").isdecimal() else 2**32 + zlib.crc32(name.encode())
