"""Recorders. Each wraps the server's command, opens a window through SGLang's own endpoint, and reads what it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from profkit.traces import ProfkitError, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A report as a trace, and the UTC nanosecond of the trace's time zero (``None`` where the report does not say)."""

    trace: Trace
    zero_utc_ns: int | None


class EmptyReportError(ProfkitError):
    """A report without a single event: there is nothing in it to import, now or later."""


class Backend(Protocol):
    """What the run needs of a recorder."""

    importer: str
    """The program that turns a window into a report while the server runs on."""

    def check(self) -> None:
        """Raise ``UsageError`` where the recorder is missing or too old."""

    def wrapper(self, scratch: Path) -> list[str]:
        """The command line before the server's own; reports go to ``scratch``."""

    def environment(self) -> Mapping[str, str]:
        """Variables that the recorder needs in the server."""

    def window(self, steps: int, scratch: Path) -> dict[str, Any]:
        """The body of ``/start_profile`` that records ``steps`` forward passes."""

    def reports(self, scratch: Path) -> dict[int, Path]:
        """The reports by the number of their window, from 1."""

    def read(self, report: Path, scratch: Path) -> Recorded:
        """Read a report; ``EmptyReportError`` where nothing was recorded, ``InputError`` where it cannot be read."""

    def version(self) -> str:
        """The recorder and its release, for the sweep's record."""


def backend_of(name: str, *, on_gpu: bool) -> Backend:
    """The recorder called ``name``."""
    from .nsys import NsysBackend

    return {"nsys": NsysBackend}[name](on_gpu=on_gpu)
