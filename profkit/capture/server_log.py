"""The server's output: written to a file without secrets, and kept at hand for its last lines."""

from __future__ import annotations

import re
import threading
from collections import deque
from pathlib import Path
from typing import IO

from .secrets import Scrubber

KEPT_LINES = 4000
SHOWN_LINES = 40
CAUSE = re.compile(r"\b\w*(?:Error|Exception)\b: .+")


class ServerLog:
    """Reads ``stream`` line by line in a thread of its own; every line is scrubbed before it is written or kept."""

    def __init__(self, stream: IO[bytes], file: Path, scrub: Scrubber) -> None:
        self._stream = stream
        self._scrub = scrub
        self._lines: deque[tuple[int, str]] = deque(maxlen=KEPT_LINES)
        self._count = 0
        self._lock = threading.Lock()
        self._file = file.open("w", encoding="utf-8")
        self._thread = threading.Thread(target=self._pump, name="server-log", daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        with self._stream, self._file:
            for raw in self._stream:
                line = self._scrub(raw.decode("utf-8", "replace").rstrip())
                self._file.write(line + "\n")
                self._file.flush()
                with self._lock:
                    self._lines.append((self._count, line))
                    self._count += 1

    @property
    def position(self) -> int:
        """How many lines there have been: a place to search from."""
        return self._count

    def find(self, pattern: re.Pattern[str], since: int) -> str | None:
        """The first line from position ``since`` on that matches."""
        with self._lock:
            return next((line for number, line in self._lines if number >= since and pattern.search(line)), None)

    def tail(self, count: int = SHOWN_LINES) -> list[str]:
        """The last lines that say something."""
        with self._lock:
            return [line for _, line in self._lines if line.strip()][-count:]

    def cause(self) -> str | None:
        """What the last exception in the log says."""
        with self._lock:
            found = (CAUSE.search(line) for _, line in reversed(self._lines))
            return next((match[0][:200] for match in found if match), None)

    def close(self) -> None:
        """Wait a moment for what the server still wrote while it ended."""
        self._thread.join(timeout=5)
