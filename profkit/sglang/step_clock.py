"""When each step of this process began, in a memory-mapped ring that capture reads while the server runs.

The file ``steps-PID.bin`` has a header of 64 bytes (``HEADER``: magic, rows in the ring, rows written since the
start, pid) and rows of 16 bytes (``ROW``: monotonic nanoseconds at which the step began, requests in it, 1 for a decode
step and 0 for a prefill). Row number i lies in slot i modulo the ring's size, and is complete once it is counted.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

MAGIC = b"PKSTEPS1"
HEADER = struct.Struct("<8sqqq")
HEADER_BYTES = 64
ROW = struct.Struct("<qii")
CAPACITY = 1 << 16
DECODE = 1 << 32
COUNT = 2


class StepClock:
    """The ring of one process; the file appears with its first step, and takes 1 MiB."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(HEADER_BYTES + CAPACITY * ROW.size)
            self._map = mmap.mmap(file.fileno(), 0)
        self._map[: HEADER.size] = HEADER.pack(MAGIC, CAPACITY, 0, os.getpid())
        self._cells = memoryview(self._map).cast("q")
        self._first = HEADER_BYTES // 8
        self._count = 0

    def note(self, began_ns: int, requests: int, decode: bool) -> None:
        """A step begins: three stores, since a hook has a microsecond for all that it does."""
        count = self._count
        cell = self._first + 2 * (count & (CAPACITY - 1))
        cells = self._cells
        cells[cell] = began_ns
        cells[cell + 1] = requests | DECODE if decode else requests
        self._count = cells[COUNT] = count + 1
