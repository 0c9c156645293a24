"""Faults planted in real recordings: rows are moved as the fault would have moved them, on every rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from profkit.traces import I64, Launches, Ops, Ranges, Trace

LATENCY = 20_000
"""From a launch call that comes late to the first kernel, in nanoseconds."""

Clock = Callable[[I64], I64]


@dataclass(frozen=True)
class Verify:
    """Of every decode step of one process: when its verify is launched and begins, and its first collective."""

    launched: I64
    began: I64
    collective: I64
    draft_ended: I64


def verify_of(trace: Trace, pid: int) -> Verify:
    """The verifies of process ``pid``, from its ``target`` ranges inside decode steps."""
    ranges, texts = trace.ranges, trace.strings
    parents = np.array([texts[ranges.text[p]] if p >= 0 else "" for p in ranges.parent.tolist()])
    target = np.array([texts[text] == "target" for text in ranges.text.tolist()])
    rows = np.flatnonzero(target & np.char.startswith(parents, "step:decode") & (ranges.pid == pid))
    found = [_verify(trace, pid, int(ranges.start[row]), int(ranges.end[row])) for row in rows]
    return Verify(*(np.array(column, np.int64) for column in zip(*found, strict=True)))


def _verify(trace: Trace, pid: int, start: int, end: int) -> tuple[int, int, int, int]:
    launches, ops = trace.launches, trace.ops
    calls = np.flatnonzero((launches.pid == pid) & (launches.start >= start) & (launches.start < end))
    mine = np.flatnonzero((ops.pid == pid) & np.isin(ops.correlation, launches.correlation[calls]))
    first = mine[np.argmin(ops.start[mine])]
    call = calls[launches.correlation[calls] == ops.correlation[first]][0]
    nccl = np.array([trace.strings[ops.name[row]].startswith("ncclDevKernel") for row in mine])
    before = np.flatnonzero((ops.pid == pid) & (ops.start < ops.start[first]))
    return (
        int(launches.start[call]), int(ops.start[first]), int(ops.start[mine[nccl]].min()), int(ops.end[before].max())
    )  # fmt: skip


def moved_by(cuts: I64, by: int) -> Clock:
    """A clock that stops for ``by`` at each of ``cuts``."""
    return lambda time: time + by * np.searchsorted(cuts, time, "right")


def held_until(cuts: I64, until: I64, by: int) -> Clock:
    """A host that stands at each of ``cuts`` until ``until``, and then catches up to its old pace, late by ``by``."""

    def clock(time: I64) -> I64:
        passed = np.searchsorted(cuts, time, "right")
        last = np.maximum(passed - 1, 0)
        catching_up = until[last] + (time - cuts[last]) // 64
        return np.where(passed > 0, np.maximum(time + by * passed, catching_up), time)

    return clock


def late_host(trace: Trace, late: int, other: int, by: int) -> Trace:
    """Process ``late`` launches each verify ``by`` later than it did; ``other`` waits in its first collective."""
    verify = verify_of(trace, late)
    gpu = moved_by(verify.began, by)
    host = held_until(verify.launched, gpu(verify.began) - LATENCY, by)
    waiting = moved_by(verify_of(trace, other).collective + 1, by)
    return timed(trace, {late: (gpu, host), other: (waiting, waiting)}, waits=other)


def slow_gpu(trace: Trace, slow: int, other: int, by: int) -> Trace:
    """On process ``slow`` the kernel before each verify's first collective takes ``by`` longer."""
    verify = verify_of(trace, slow)
    mine = np.flatnonzero((trace.ops.pid == slow) & ~_is_collective(trace))
    ends = np.sort(trace.ops.end[mine])
    last_end = ends[np.searchsorted(ends, verify.collective, "right") - 1]
    gpu = moved_by(last_end, by)
    waiting = moved_by(verify_of(trace, other).collective + 1, by)
    return timed(trace, {slow: (gpu, gpu), other: (waiting, waiting)}, waits=other)


def _is_collective(trace: Trace) -> np.ndarray:
    return np.array([text.startswith("nccl") for text in trace.strings])[trace.ops.name]


def synchronised(trace: Trace, pids: tuple[int, ...], by: int) -> Trace:
    """Every process waits for its drafter before it launches verify, and needs ``by`` for the launch after that."""
    clocks, calls = {}, []
    for pid in pids:
        verify = verify_of(trace, pid)
        gpu = moved_by(verify.began, by)
        host = held_until(verify.launched, gpu(verify.began) - LATENCY, by)
        clocks[pid] = (gpu, host)
        # The clocks hold the host from the old launch on: that is where the call stands.
        begin = host(verify.launched - 1) + 1
        calls.append((pid, begin, np.maximum(gpu(verify.draft_ended) + 1_000, begin)))
    planted = timed(trace, clocks)
    api = len(planted.strings)
    rows = [_blocking(planted, pid, begin, end, api) for pid, begin, end in calls]
    launches = Launches.join([planted.launches, *rows])
    return replace(planted, launches=launches, strings=(*planted.strings, "cudaStreamSynchronize"))


def _blocking(trace: Trace, pid: int, begin: I64, end: I64, api: int) -> Launches:
    ranges, count = trace.ranges, len(begin)
    tid = ranges.tid[(ranges.pid == pid)][0]
    unknown = np.full(count, -1)
    return Launches(begin, end, np.full(count, pid), np.full(count, tid), unknown, np.full(count, api, np.int32))


def timed(trace: Trace, clocks: dict[int, tuple[Clock, Clock]], waits: int | None = None) -> Trace:
    """The trace with the GPU's and the host's times of each process on new clocks.

    On process ``waits`` only collectives wait: other work that runs when one begins takes no longer for it.
    """
    ops, launches, ranges = trace.ops.columns(), trace.launches.columns(), trace.ranges.columns()
    for pid, (gpu, host) in clocks.items():
        for table, clock in ((ops, gpu), (launches, host), (ranges, host)):
            mine = table["pid"] == pid
            for edge in ("start", "end"):
                # The end of an op is not behind the cut that begins where it ends.
                last = 1 if edge == "end" and clock is gpu and clock is not host else 0
                table[edge] = np.where(mine, clock(table[edge] - last) + last, table[edge])
    works = (trace.ops.pid == waits) & ~_is_collective(trace)
    ops["end"] = np.where(works, ops["start"] + trace.ops.end - trace.ops.start, ops["end"])
    moved = Ops(**ops)
    moved = moved.take(np.lexsort((moved.end, moved.start)))
    planted = replace(trace, ops=moved, launches=Launches(**launches), ranges=Ranges(**ranges))
    planted.check()
    return planted
