"""Small Kineto traces, written event by event."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from profkit.traces import Trace
from profkit.traces.kineto import read_kineto

Time = int | float | str | Decimal
Event = dict[str, Any]

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def event(cat: str, name: str, ts: Time, dur: Time, pid: int | str = 100, tid: int | str = 100, **args: Any) -> Event:
    """A complete event; ``args`` by their names in the file."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(ts: Time, dur: Time, correlation: int = 1, device: int = 0, stream: int = 7, **more: Any) -> Event:
    """A kernel named ``gemm`` that carries its device's number as pid, as most files have it."""
    args = {"device": device, "stream": stream, "correlation": correlation, **more}
    return event("kernel", "gemm", ts, dur, device, stream, **args)


def launch(ts: Time, dur: Time, correlation: int = 1, api: str = "cudaLaunchKernel", pid: int = 100) -> Event:
    """An API call on the main thread of ``pid``."""
    return event("cuda_runtime", api, ts, dur, pid, pid, correlation=correlation)


def write(path: Path, *events: Event, **meta: Any) -> Path:
    """A file with ``events`` and top-level ``meta``."""
    path.write_bytes(_ENCODER.encode({"schemaVersion": 1, **meta, "traceEvents": events}))
    return path


def read(folder: Path, *events: Event, **meta: Any) -> Trace:
    """The trace of one file with ``events``."""
    return checked(write(folder / "trace.json", *events, **meta))


def checked(*paths: Path) -> Trace:
    """The trace in ``paths``, its invariants checked."""
    trace = read_kineto(paths)
    trace.check()
    return trace


def names(trace: Trace) -> list[str]:
    """The names of the ops, by start."""
    return [trace.strings[name] for name in trace.ops.name]


def texts(trace: Trace) -> list[str]:
    """The texts of the ranges, in order of the table."""
    return [trace.strings[text] for text in trace.ranges.text]
