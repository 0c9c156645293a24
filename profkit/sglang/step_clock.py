"""When each step of this process began, in a memory-mapped ring that capture reads while the server runs.

The file ``steps-PID.bin`` has a header of 64 bytes (``HEADER``: magic, rows in the ring, rows written since the
start, pid) and rows of 16 bytes (``ROW``: monotonic nanoseconds at which the step began, requests in it, and a last
number: 1 for a decode step and 0 for a prefill, plus twice the tokens of context of all its requests where these were
counted). Row number i lies in slot i modulo the ring's size, and is complete once it is counted.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any

MAGIC = b"PKSTEPS2"
HEADER = struct.Struct("<8sqqq")
HEADER_BYTES = 64
ROW = struct.Struct("<qii")
CAPACITY = 1 << 16
DECODE = 1 << 32
CONTEXT_SHIFT = 33
MOST_CONTEXT = (1 << 30) - 1
COUNT = 2

COUNT_EVERY = 16
"""Decode steps from one count of the contexts to the next: it takes 0.1 µs for each request."""


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
        self._until_counted = 0

    def note(self, began_ns: int, requests: int, decode: bool, batch: Any) -> None:
        """A step begins: mostly three stores, since a hook has a microsecond for all that it does.

        Contexts are counted in the first decode step after a prefill, and in every sixteenth.
        """
        if not decode:
            self._until_counted = 0
        elif self._until_counted:
            self._until_counted -= 1
            requests |= DECODE
        else:
            self._until_counted = COUNT_EVERY - 1
            requests |= DECODE | context_tokens(batch) << CONTEXT_SHIFT
        count = self._count
        cell = self._first + 2 * (count & (CAPACITY - 1))
        cells = self._cells
        cells[cell] = began_ns
        cells[cell + 1] = requests
        self._count = cells[COUNT] = count + 1


def context_tokens(batch: Any) -> int:
    """Tokens that the requests of ``batch`` have, of prompt and output; 0 where the batch does not tell."""
    try:
        tokens = sum(len(request.origin_input_ids) + len(request.output_ids) for request in batch.reqs)
    except (AttributeError, TypeError):
        return 0
    return min(tokens, MOST_CONTEXT)
