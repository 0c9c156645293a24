"""The buffers that CUPTI writes records into: kept as they are while a window is open, read once it is closed.

cupti-python's own callback makes a Python object of each record as buffers fill, which disturbs the steps that are
recorded. Here the two callbacks only hand a buffer over and take it back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .cupti_records import Bytes

SIZE = 8 << 20
"""CUPTI's documentation asks for 1 to 10 MiB; a window of 100,000 records fills two or three of these."""

PREPARED = 16
SAMPLED = 5_000
ALIGNMENT = 64
MAPPED = Path("/proc/self/maps")

_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


def library() -> ctypes.CDLL:
    """The CUPTI that this process has loaded; the one that goes by its name where it has loaded none."""
    loaded = [line.split()[-1] for line in MAPPED.read_text().splitlines() if "libcupti.so" in line]
    return ctypes.CDLL(loaded[0] if loaded else "libcupti.so")


def record_sizes(cupti: ctypes.CDLL, buffers: Iterable[Bytes]) -> dict[int, int]:
    """The length in bytes of a record of each kind, as CUPTI steps through the beginning of each buffer."""
    sizes: dict[int, int] = {}
    for buffer in buffers:
        record, kind, place = ctypes.c_void_p(), 0, 0
        for _ in range(SAMPLED):
            status = cupti.cuptiActivityGetNextRecord(
                ctypes.c_void_p(buffer.ctypes.data), ctypes.c_size_t(len(buffer)), ctypes.byref(record)
            )
            here = len(buffer) if status else (record.value or 0) - buffer.ctypes.data
            if here > place:
                sizes[kind] = here - place
            if status:
                break
            kind, place = int(buffer[here : here + 4].view(np.uint32)[0]), here
    return sizes


class Buffers:
    """A pool of buffers, and those that CUPTI has given back, full or flushed, since the last ``clear``."""

    def __init__(self) -> None:
        self._free = [_buffer() for _ in range(PREPARED)]
        self._given: dict[int, Bytes] = {}
        self._filled: list[tuple[int, int]] = []
        # CUPTI calls these for as long as the process lives.
        self._requested, self._completed = _REQUESTED(self._hand_over), _COMPLETED(self._take_back)

    def register(self, cupti: ctypes.CDLL) -> None:
        """Give CUPTI the two callbacks. Raises ``OSError`` where it refuses them."""
        status = cupti.cuptiActivityRegisterCallbacks(self._requested, self._completed)
        if status:
            raise OSError(status, f"cuptiActivityRegisterCallbacks returned {status}")

    def filled(self) -> Iterator[Bytes]:
        """The valid part of each buffer that came back."""
        return (self._given[address][:valid] for address, valid in self._filled)

    def clear(self) -> None:
        """Use again what came back."""
        self._free += [self._given.pop(address) for address, _ in self._filled]
        self._filled.clear()

    def _hand_over(self, buffer: Any, size: Any, most_records: Any) -> None:
        try:
            chosen = self._free.pop()
        except IndexError:  # threads ask at once, so that looking first could be too early
            chosen = _buffer()
        address = chosen.ctypes.data
        self._given[address] = chosen
        buffer[0], size[0], most_records[0] = address, SIZE, 0

    def _take_back(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        self._filled.append((buffer, valid))


def _buffer() -> Bytes:
    """A buffer that begins where CUPTI may write; written to, so that no page is missing later."""
    raw = np.zeros(SIZE + ALIGNMENT, np.uint8)
    raw[:: 1 << 12] = 1
    first = -raw.ctypes.data % ALIGNMENT
    return raw[first : first + SIZE]
