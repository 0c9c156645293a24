"""The server's decode steps as its own processes time them: with a recorder at work, and while nothing is recorded.

The plugin notes the start of each step in a ring in shared memory, whose layout ``profkit.sglang.step_clock`` has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from profkit.sglang.step_clock import HEADER, HEADER_BYTES, MAGIC, ROW
from profkit.traces import StepTimes

I64 = npt.NDArray[np.int64]

FILES = "steps-*.bin"
STEP = np.dtype([("began", "<i8"), ("requests", "<i4"), ("last", "<i4")])
GAP = np.dtype([("ns", "<i8"), ("context", "<f8")])
"""From the start of one decode step to that of the next, and the tokens of context of its requests (NaN: unknown)."""

Gaps = Mapping[int, npt.NDArray[np.void]]
"""By process: its gaps (``GAP``) in order."""

MIDDLE = (0.1, 0.9)

LATEST = 64
"""Steps that are looked at for the latest context: it is counted in every 16th."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The latest steps of the process ``pid``, in order: monotonic nanoseconds at which each began, and what it ran."""

    pid: int
    began: I64
    requests: I64
    is_decode: npt.NDArray[np.bool_]
    context: npt.NDArray[np.float64]

    def ends_with(self, requests: int) -> bool:
        """Whether the latest step decoded for exactly ``requests`` requests."""
        return bool(len(self.began) and self.is_decode[-1] and self.requests[-1] == requests)

    def gaps(self, start_ns: int, end_ns: int, requests: int) -> npt.NDArray[np.void]:
        """From step to step, where both began in the span and are decode steps of exactly ``requests`` requests."""
        inside = (self.began >= start_ns) & (self.began <= end_ns) & self.is_decode & (self.requests == requests)
        kept = np.flatnonzero(inside[:-1] & inside[1:])
        gaps = np.empty(len(kept), GAP)
        gaps["ns"], gaps["context"] = self.began[kept + 1] - self.began[kept], self.context[kept]
        return gaps


def read_gaps(folder: Path, start_ns: int, end_ns: int, requests: int) -> Gaps:
    """The gaps between decode steps of ``requests`` requests of each process that left a ring in ``folder``."""
    found = ((steps.pid, steps.gaps(start_ns, end_ns, requests)) for steps in _rings(folder))
    return {pid: gaps for pid, gaps in found if len(gaps)}


def latest_context(folder: Path, requests: int) -> float | None:
    """The tokens of context that ``requests`` requests have together in the latest step, as rings in ``folder`` tell.

    ``None`` where no process counts them, or the latest step was none of so many requests.
    """
    found = [steps.context[-1] for steps in _rings(folder, LATEST) if steps.ends_with(requests)]
    return max((float(one) for one in found if np.isfinite(one)), default=None)


def without_first(gaps: Gaps) -> Gaps:
    """``gaps`` without each process's first, which holds the start of a recording."""
    return {pid: own[1:] for pid, own in gaps.items() if len(own) > 1}


def step_times(*parts: Gaps) -> StepTimes | None:
    """What ``parts`` hold together of the process whose median is the longest; ``None`` where they hold nothing."""
    pids = sorted({pid for part in parts for pid in part})
    every = [np.concatenate([part[pid] for part in parts if pid in part]) for pid in pids]
    if not every:
        return None
    slowest = max(every, key=lambda gaps: float(np.median(gaps["ns"])))
    times, counted = slowest["ns"], slowest["context"][np.isfinite(slowest["context"])]
    low, high = np.quantile(times, MIDDLE)
    context = round(float(np.median(counted))) if len(counted) else None
    return StepTimes(round(float(np.median(times))), round(float(low)), round(float(high)), len(times), context)


def remove_rings(folder: Path) -> None:
    """Remove the rings: they are of no use without the run's own times."""
    for file in folder.glob(FILES):
        file.unlink(missing_ok=True)


def _rings(folder: Path, most: int | None = None) -> Iterator[Steps]:
    for file in sorted(folder.glob(FILES)):
        steps = _read(file, most)
        if steps is not None:
            yield steps


def _read(file: Path, most: int | None) -> Steps | None:
    """The steps in a ring that its process goes on writing, the latest ``most``; ``None`` where it is not (yet) one."""
    with file.open("rb", buffering=0) as ring:
        raw = ring.read()
        ring.seek(0)
        again = ring.read(HEADER.size)
    if len(raw) < HEADER_BYTES:
        return None
    magic, capacity, count, pid = HEADER.unpack_from(raw)
    if magic != MAGIC or capacity < 1 or len(raw) < HEADER_BYTES + capacity * ROW.size:
        return None
    rows = np.frombuffer(raw, STEP, capacity, HEADER_BYTES)
    # Of the oldest rows, those are lost that were written over meanwhile, and the one that may be half written.
    first = max(0, HEADER.unpack(again)[2] - capacity + 1, count - (most or count))
    rows = rows[np.arange(first, max(count, first)) % capacity]
    is_decode = (rows["last"] & 1) == 1
    context = _filled(rows["last"].astype(np.int64) >> 1, is_decode)
    return Steps(pid, rows["began"].astype(np.int64), rows["requests"].astype(np.int64), is_decode, context)


def _filled(counted: I64, is_decode: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The contexts of all steps, from those that were ``counted`` (not 0): between two prefills they grow evenly."""
    context = np.full(len(counted), np.nan)
    run = np.cumsum(~is_decode)
    for number in np.unique(run[is_decode]):
        own = np.flatnonzero(is_decode & (run == number))
        known = own[counted[own] > 0]
        if len(known):
            context[own] = np.interp(own, known, counted[known])
        if len(known) > 1:
            last, before = known[-1], known[-2]
            growth = (counted[last] - counted[before]) / (last - before)
            context[own[own > last]] += growth * (own[own > last] - last)
    return context
