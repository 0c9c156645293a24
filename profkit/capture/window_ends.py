"""The ends of windows as the server's own processes note them (``profkit.sglang.window_ends``)."""

from __future__ import annotations

import contextlib
from pathlib import Path

from profkit.sglang.window_ends import FILES


def ends_since(folder: Path, since_ns: int) -> list[int]:
    """When processes noted the end of a window, from ``since_ns`` on; nanoseconds of the monotonic clock."""
    lines = [line for file in folder.glob(FILES) for line in _lines(file)]
    return sorted(end for line in lines if line.isdigit() and (end := int(line)) >= since_ns)


def _lines(file: Path) -> list[str]:
    """The whole lines of ``file``: its process may be writing the last one."""
    with contextlib.suppress(OSError):
        return file.read_text("ascii", "replace").split("\n")[:-1]
    return []


def remove_ends(folder: Path) -> None:
    """Remove the notes: they are of no use without the run's own times."""
    for file in folder.glob(FILES):
        file.unlink(missing_ok=True)
