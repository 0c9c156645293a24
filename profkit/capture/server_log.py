"""The server's output: written to a file without secrets, and kept at hand for its last lines."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO

from .secrets import Scrubber

KEPT_LINES = 4000
SHOWN_LINES = 40
CAUSE = re.compile(r"\b\w*(?:Error|Exception)\b: .+")
NO_AGENT = "Agent launcher failed."
"""The last that nsys says where one that was killed in its first 0.1 s left a lock behind."""
LOCKED = (
    "nsys cannot start its agent, as after one that was killed while it started: when no nsys is in use, end the "
    "processes `nsys --start-agent`, remove /dev/shm/NSys-*, and try again"
)


class ServerLog:
    """What a server says; every line is scrubbed before it is written to ``file`` or kept."""

    def __init__(self, file: Path, scrub: Scrubber) -> None:
        self._path = file
        self._scrub = scrub
        self._lines: deque[tuple[int, int, str]] = deque(maxlen=KEPT_LINES)
        self._count = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def follow(self, stream: IO[bytes]) -> None:
        """Read ``stream`` to its end, line by line, in a thread of its own."""
        self._thread = threading.Thread(target=self._pump, args=(stream,), name="server-log", daemon=True)
        self._thread.start()

    def _pump(self, stream: IO[bytes]) -> None:
        """A file that cannot be written is given up, and reading goes on: a full pipe would hold up the server."""
        with stream:
            lines = (self._scrub(raw.decode("utf-8", "replace").rstrip()) for raw in stream)
            try:
                with self._path.open("wb", buffering=0) as file:
                    for line in lines:
                        self._keep(line)
                        file.write(line.encode() + b"\n")
            except OSError as error:
                self._keep(f"profkit: {self._path.name} cannot be written any more ({error.strerror})")
                for line in lines:
                    self._keep(line)

    def _keep(self, line: str) -> None:
        with self._lock:
            self._lines.append((self._count, time.monotonic_ns(), line))
            self._count += 1

    @property
    def position(self) -> int:
        """How many lines there have been: a place to search from."""
        return self._count

    def find(self, pattern: re.Pattern[str], since: int) -> str | None:
        """The first line from position ``since`` on that matches."""
        with self._lock:
            return next((line for number, _, line in self._lines if number >= since and pattern.search(line)), None)

    def times_of(self, pattern: re.Pattern[str], since: int) -> list[int]:
        """When the lines from position ``since`` on that match came, in nanoseconds of the monotonic clock."""
        with self._lock:
            return [came for number, came, line in self._lines if number >= since and pattern.search(line)]

    def tail(self, count: int = SHOWN_LINES) -> list[str]:
        """The last lines that say something."""
        with self._lock:
            return [line for _, _, line in self._lines if line.strip()][-count:]

    def cause(self) -> str | None:
        """What the last exception in the log says; what to do where the recorder could not even start."""
        with self._lock:
            said = [line.strip() for _, _, line in self._lines if line.strip()]
            if said[-1:] == [NO_AGENT]:
                return LOCKED
            found = (CAUSE.search(line) for _, _, line in reversed(self._lines))
            return next((match[0][:200] for match in found if match), None)

    def close(self) -> None:
        """Wait a moment for what the server still wrote while it ended."""
        if self._thread is not None:
            self._thread.join(timeout=5)
