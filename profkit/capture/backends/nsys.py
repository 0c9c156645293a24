"""Nsight Systems around the whole server: one report per window, one server start for all of them."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profkit.traces import UsageError, open_trace
from profkit.traces.nsys_export import OLDEST, export_report, find_nsys, nsys_version

from . import EmptyReportError, Recorded

REPORT = "report"
NUMBERED = re.compile(rf"^{REPORT}(?:\.(\d+))?\.(nsys-rep|qdstrm)$")
CPU_WINDOW = "window@profkit-capture"
"""On a machine without a GPU there is no CUDA profiler API: whoever answers ``/start_profile`` opens this range."""


class NsysBackend:
    """``nsys profile`` with what keeps it cheap: no CPU sampling, no context switches, nothing outside the windows."""

    importer = "QdstrmImporter"
    holds_environment = True

    def __init__(self, *, on_gpu: bool) -> None:
        self._nsys = find_nsys()
        self._on_gpu = on_gpu

    def check(self) -> None:
        named = os.environ.get("NSYS")
        if self._nsys is None and named:
            raise UsageError(f"$NSYS is {named}, and there is no such file; set it to an nsys, or unset it")
        if self._nsys is None:
            advice = "install it, or set $NSYS to the nsys of an installed Nsight Systems or Nsight Compute"
            raise UsageError(f"Nsight Systems (nsys) was not found; {advice}")
        version = nsys_version(self._nsys)
        if not version:
            raise UsageError(f"{self._nsys}: does not run (`nsys --version` says nothing); check $NSYS")
        if version[:2] < OLDEST:
            needed = ".".join(map(str, OLDEST))
            fault = f"release {self.version()} is too old"
            raise UsageError(f"{self._nsys}: {fault}; install nsys {needed} or newer, or set $NSYS")

    def version(self) -> str:
        return ".".join(map(str, nsys_version(self._nsys) if self._nsys else ()))

    def wrapper(self, scratch: Path) -> list[str]:
        return [
            str(self._nsys or "nsys"),
            "profile",
            f"--trace={'cuda,nvtx' if self._on_gpu else 'nvtx'}",
            "--sample=none",
            "--cpuctxsw=none",
            *(["--cuda-graph-trace=node", "--capture-range=cudaProfilerApi"] if self._on_gpu else []),
            *([] if self._on_gpu else ["--capture-range=nvtx", f"--nvtx-capture={CPU_WINDOW}"]),
            "--capture-range-end=repeat",
            "--wait=primary",
            "--force-overwrite=true",
            f"--output={scratch / REPORT}",
        ]

    def environment(self) -> Mapping[str, str]:
        return {} if self._on_gpu else {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}

    def window(self, number: int, steps: int, scratch: Path) -> dict[str, Any]:
        return {"activities": ["CUDA_PROFILER"], "num_steps": steps, "output_dir": str(scratch)}

    def reports(self, scratch: Path) -> dict[int, Path]:
        found: dict[int, Path] = {}
        for file in sorted(scratch.iterdir()):
            named = NUMBERED.match(file.name)
            # A finished report stands for its raw stream where both are there: "nsys-rep" sorts before "qdstrm".
            if named and file.stat().st_size:
                found.setdefault(int(named[1] or 1), file)
        return found or _unfinished(scratch)

    def read(self, report: Path, scratch: Path) -> Recorded:
        folder = scratch / f"export-{report.name}"
        folder.mkdir(exist_ok=True)
        export = export_report(report, folder)
        if _is_empty(export):
            raise EmptyReportError("its report holds no event: the recording was broken off, or never began")
        return Recorded(open_trace(export), _zero_of(export))


def _unfinished(scratch: Path) -> dict[int, Path]:
    """Streams of windows that nsys had no time to put in their place, oldest first."""
    streams = sorted(scratch.glob("nsys-report-*.qdstrm"), key=lambda file: file.stat().st_mtime_ns)
    return dict(enumerate(streams, 1))


def _is_empty(export: Path) -> bool:
    """Whether no table of events has a row; nsys leaves out tables without any."""
    with contextlib.closing(sqlite3.connect(f"file:{export}?mode=ro", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        events = [name for name in tables if name == "NVTX_EVENTS" or name.startswith("CUPTI_ACTIVITY_KIND_")]
        return not any(database.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone() for name in events)


def _zero_of(export: Path) -> int | None:
    """The UTC nanosecond at which the export's times begin."""
    with contextlib.closing(sqlite3.connect(f"file:{export}?mode=ro", uri=True)) as database:
        try:
            row = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        except sqlite3.OperationalError:
            return None
    return int(row[0]) if row and row[0] else None
