"""CUPTI's activity buffers as arrays, one for each kind of record.

A buffer holds records of several kinds one behind the other; each begins with its kind, and all records of a kind are
equally long: how long depends on the release of CUPTI. Layouts come from cupti-python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

KERNEL, MEMCPY, MEMSET, DRIVER, RUNTIME, MARKER, SYNCHRONIZATION = 10, 1, 2, 4, 5, 12, 38
PEER_COPY, MARKER_DATA = 22, 13
NO_KIND = 0

STRUCTURES = {
    KERNEL: "kernel",
    MEMCPY: "memcpy",
    PEER_COPY: "memcpy_pto_p",
    MEMSET: "memset",
    DRIVER: "api",
    RUNTIME: "api",
    MARKER: "marker",
    SYNCHRONIZATION: "synchronization",
}
"""The kinds that are recorded, by CUPTI's number, and what cupti-python calls their layout."""

Layouts = Mapping[int, np.dtype[Any]]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Records = npt.NDArray[Any]


class LayoutError(Exception):
    """Records are laid out in another way than cupti-python says."""


def layouts_of(module: Any, sizes: Mapping[int, int]) -> dict[int, np.dtype[Any]]:
    """The layout of each kind in ``module`` (cupti-python's): the newest, of those as long as the records are.

    ``sizes`` are the lengths of records in bytes, for the kinds of which there are any.
    """
    return {kind: _layout(module, name, sizes.get(kind)) for kind, name in STRUCTURES.items()}


def _layout(module: Any, name: str, size: int | None) -> np.dtype[Any]:
    pattern = re.compile(rf"activity_{name}(\d*)_dtype")
    matches = [match for match in map(pattern.fullmatch, dir(module)) if match]
    matches.sort(key=lambda match: int(match[1] or 1))
    known: list[np.dtype[Any]] = [getattr(module, match[0]) for match in matches]
    fitting = [layout for layout in known if size in (None, layout.itemsize)]
    if not fitting:
        raise LayoutError(f"cupti-python knows no activity_{name} of {size} bytes: install the release of your CUPTI")
    return fitting[-1]


def records_of(buffers: Iterable[Bytes], layouts: Layouts) -> dict[int, Records]:
    """The records of each kind in ``layouts``, in the order of the buffers.

    Raises ``LayoutError`` where a record of another kind, or a part of one, is met.
    """
    parts: dict[int, list[Words]] = {kind: [] for kind in layouts}
    sizes = {kind: layout.itemsize for kind, layout in layouts.items()}
    for buffer in buffers:
        for kind, places in _places(buffer, sizes).items():
            parts[kind].append(_gathered(buffer, np.array(places, np.int64), sizes[kind]))
    return {kind: _joined(found, layouts[kind]) for kind, found in parts.items()}


def _places(buffer: Bytes, sizes: Mapping[int, int]) -> dict[int, list[int]]:
    """The byte at which each record of a kind begins."""
    words = [*buffer[: len(buffer) // 4 * 4].view(np.uint32).tolist(), NO_KIND]
    found: dict[int, list[int]] = {kind: [] for kind in sizes}
    place, end = 0, len(buffer)
    while place < end:
        kind = words[place // 4]
        if kind not in sizes or place + sizes[kind] > end:
            raise LayoutError(f"a record of kind {kind} at byte {place} of {end} is not one that was asked for")
        found[kind].append(place)
        place += sizes[kind]
    return {kind: places for kind, places in found.items() if places}


def _gathered(buffer: Bytes, places: npt.NDArray[np.int64], size: int) -> Words:
    """The records of ``size`` bytes that begin at ``places``, a row for each: read eight bytes at a time."""
    words = buffer[: len(buffer) // 8 * 8].view(np.uint64)
    rows: Words = words[(places // 8)[:, None] + np.arange(size // 8)]
    return rows


def _joined(parts: list[Words], layout: np.dtype[Any]) -> Records:
    """Joined before they are records: numpy would join those field by field, into a layout without gaps."""
    return np.concatenate(parts).view(layout).reshape(-1) if parts else np.empty(0, layout)
