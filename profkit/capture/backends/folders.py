"""Windows of recorders that work inside the server's processes: a folder for each, with a file for each rank."""

from __future__ import annotations

import re
from pathlib import Path

from profkit.traces import Trace

from . import EmptyReportError

NUMBERED = re.compile(r"^window-(\d+)$")
OLD_PROFILER = {"SGLANG_PROFILE_V2": "0"}
"""SGLang's newer profiler opens no window at once, and ends one without a word in the log."""


def folder_of(number: int, scratch: Path) -> Path:
    """The folder that the window ``number`` is written into."""
    return scratch / f"window-{number}"


def folders(scratch: Path, pattern: str) -> dict[int, Path]:
    """The folders of windows that hold files of ``pattern``, by number."""
    named = ((NUMBERED.match(folder.name), folder) for folder in scratch.iterdir())
    return {int(match[1]): folder for match, folder in named if match and any(folder.glob(pattern))}


def checked(trace: Trace) -> Trace:
    """``trace``; ``EmptyReportError`` where nothing is in it."""
    if not len(trace.ops) and not len(trace.ranges) and not len(trace.launches):
        raise EmptyReportError("its report holds no event: the recording was broken off, or never began")
    return trace
