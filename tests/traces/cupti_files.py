"""Dumps of CUPTI's records, written row by row; times count from ``BASE``, a UTC second."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, Self

import numpy as np

from profkit.sglang.cupti_dump import write_dump
from profkit.traces.cupti_dump import COLUMNS

BASE = 1_764_480_000 * 10**9
STARTS, ENDS = 2, 4
RUNTIME = {211: "cudaLaunchKernel_v7000", 311: "cudaGraphLaunch_v10000", 41: "cudaMemcpyAsync_v3020"}
DRIVER = {17: "cuCtxSynchronize", 652: "cuLaunchKernelEx_ptsz"}


class CuptiFile:
    """The dump of one process; ``header`` and ``columns`` may be changed before it is written."""

    def __init__(self, pid: int, *, began: int = 0, ended: int = 1_000, **header: Any) -> None:
        self.rows: dict[str, list[dict[str, int]]] = defaultdict(list)
        self.strings: list[str] = []
        self.header: dict[str, Any] = {
            "pid": pid, "version": "13.0.1", "driver": "580.65.06", "dropped": 0, "devices": [],
            "began_ns": BASE + began, "ended_ns": BASE + ended, "apis": {"runtime": RUNTIME, "driver": DRIVER},
            **header,
        }  # fmt: skip

    def device(self, number: int, bus_id: str, name: str = "NVIDIA H200") -> Self:
        self.header["devices"].append(
            {"id": number, "name": name, "sm_count": 132, "memory_bandwidth": 4_916_736_000_000, "bus_id": bus_id}
        )
        return self

    def kernel(self, name: str | None, start: int, end: int, correlation: int, **more: int) -> Self:
        return self._activity("kernels", start, end, correlation, name=self._string(name), **more)

    def copy(self, kind: int, size: int, start: int, end: int, correlation: int, **more: int) -> Self:
        return self._activity("copies", start, end, correlation, copy_kind=kind, bytes=size, **more)

    def peer_copy(self, size: int, start: int, end: int, correlation: int, **more: int) -> Self:
        return self._activity("peer_copies", start, end, correlation, copy_kind=10, bytes=size, **more)

    def memset(self, size: int, start: int, end: int, correlation: int, **more: int) -> Self:
        return self._activity("memsets", start, end, correlation, bytes=size, **more)

    def _activity(self, table: str, start: int, end: int, correlation: int, **more: int) -> Self:
        """``graph`` is the number of the executed graph; its node's is made of it and ``node``."""
        graph, node = more.pop("graph", 0), more.pop("node", 0)
        row = {"device": 0, "stream": 7, "graph": graph, "graph_node": graph << 32 | node, "correlation": correlation}
        return self._add(table, start=BASE + start, end=BASE + end, **{**row, **more})

    def call(self, number: int, start: int, end: int, correlation: int, *, thread: int = 500) -> Self:
        """A call of the runtime, or of the driver where its number is one of ``DRIVER``."""
        table = "driver" if number in DRIVER else "runtime"
        times = {"start": BASE + start, "end": BASE + end}
        return self._add(table, **times, thread=thread, correlation=correlation, number=number)

    def opens(self, text: str, time: int, number: int, *, thread: int = 500, domain: str | None = "profkit") -> Self:
        names = {"name": self._string(text), "domain": self._string(domain)}
        return self._add("markers", time=BASE + time, flags=STARTS, id=number, thread=thread, **names)

    def closes(self, time: int, number: int, *, thread: int = 500) -> Self:
        return self._add("markers", time=BASE + time, flags=ENDS, id=number, thread=thread, name=-1, domain=-1)

    def range(self, text: str, start: int, end: int, number: int, **more: Any) -> Self:
        return self.opens(text, start, number, **more).closes(end, number, thread=more.get("thread", 500))

    def node(self, time: int, node: int, original: int = -1, *, thread: int = 500) -> Self:
        return self._add("nodes", time=BASE + time, thread=thread, node=node, original=original)

    def _add(self, table: str, **row: int) -> Self:
        self.rows[table].append(row)
        return self

    def _string(self, text: str | None) -> int:
        if text is None:
            return -1
        if text not in self.strings:
            self.strings.append(text)
        return self.strings.index(text)

    def columns(self) -> dict[str, Any]:
        return {
            f"{table}.{column}": np.array([row[column] for row in self.rows[table]], np.int64)
            for table, columns in COLUMNS.items()
            for column in columns
        }

    def write(self, path: Path, **changed: Any) -> Path:
        """The file at ``path``, or ``PID.cupti`` in the folder there; ``changed`` are columns, ``None`` for none."""
        file = path / f"{self.header['pid']}.cupti" if path.is_dir() else path
        columns = {**self.columns(), **{name.replace("__", "."): value for name, value in changed.items()}}
        whole = {name: values for name, values in columns.items() if values is not None}
        write_dump(file, {"strings": self.strings, **self.header}, whole)
        return file


def small_step(pid: int = 11) -> CuptiFile:
    """A range, a launch in it, and its kernel."""
    return CuptiFile(pid).call(211, 20, 30, 1).kernel("gemm(float*)", 40, 60, 1).range("step:decode bs=1", 10, 35, 1)
