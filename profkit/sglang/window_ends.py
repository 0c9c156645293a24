"""When the windows of this process ended: a line of monotonic nanoseconds for each in ``ends-PID.txt``.

A recorder that lives in the process writes its dump before SGLang says a word; capture sees here that nothing is
recorded any more, and that what follows is writing.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

FILES = "ends-*.txt"


def note_end(folder: Path | None) -> None:
    """A window of this process ends now. Where that cannot be written, SGLang's log tells it later."""
    if folder is None:
        return
    line = f"{time.monotonic_ns()}\n"
    with contextlib.suppress(OSError), (folder / f"ends-{os.getpid()}.txt").open("a", encoding="ascii") as file:
        file.write(line)
