"""Recorders. Each opens a window through SGLang's own endpoint, and reads what was written of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from profkit.traces import ProfkitError, Trace, UsageError

BACKENDS = ("nsys", "cupti", "torch")
"""The recorders by name; the first is the default."""


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A report as a trace, and the UTC nanosecond of the trace's time zero (``None`` where the report does not say)."""

    trace: Trace
    zero_utc_ns: int | None


class EmptyReportError(ProfkitError):
    """A report without a single event: there is nothing in it to import, now or later."""


class Backend(Protocol):
    """What the run needs of a recorder."""

    @property
    def importer(self) -> str | None:
        """The program that turns a window into a report while the server runs on, where there is one."""

    @property
    def holds_environment(self) -> bool:
        """Whether a report holds the server's whole environment."""

    def check(self) -> None:
        """Raise ``UsageError`` where the recorder is missing or too old."""

    def wrapper(self, scratch: Path) -> list[str]:
        """The command line before the server's own, if any; reports go to ``scratch``."""

    def environment(self) -> Mapping[str, str]:
        """Variables that the recorder needs in the server."""

    def window(self, number: int, steps: int, scratch: Path) -> dict[str, Any]:
        """The body of ``/start_profile`` that records ``steps`` forward passes as the window ``number`` (from 1)."""

    def reports(self, scratch: Path) -> dict[int, Path]:
        """The reports, files or folders, by the number of their window."""

    def read(self, report: Path, scratch: Path) -> Recorded:
        """Read a report; ``EmptyReportError`` where nothing was recorded, ``InputError`` where it cannot be read."""

    def version(self) -> str:
        """The recorder's release, for the sweep's record."""


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` of recorders, each once. Raises ``UsageError`` where one is empty or unknown, or there are none."""
    advice = f"give {', '.join(BACKENDS)}, or several with commas"
    if not all(names) or not names:
        raise UsageError(f"--backend '{','.join(names)}': the name of a recorder is missing; {advice}")
    for unknown in [name for name in names if name not in BACKENDS]:
        raise UsageError(f"--backend {unknown}: no such recorder; {advice}")
    return tuple(dict.fromkeys(names))


def backend_of(name: str, *, on_gpu: bool) -> Backend:
    """The recorder called ``name``, one of ``BACKENDS``."""
    match name:
        case "cupti":
            from .cupti import CuptiBackend

            return CuptiBackend(on_gpu=on_gpu)
        case "torch":
            from .torch import TorchBackend

            return TorchBackend(on_gpu=on_gpu)
        case _:
            from .nsys import NsysBackend

            return NsysBackend(on_gpu=on_gpu)
