"""``PID.cupti``: what one process recorded in one window, as plain arrays that need no CUPTI to be read.

The file is one of numpy's ``.npz`` archives, without pickled objects. ``header``, its first member by which it is
told from other archives, holds JSON as bytes:

    schema          ``profkit.cupti/1``
    pid, version    of the process, and of CUPTI
    driver          the CUDA driver's version
    devices         id, name, sm_count, memory_bandwidth (bytes/s), bus_id of the GPUs in the records
    dropped         records for which CUPTI had no room
    began_ns, ended_ns   when the window was open, UTC
    apis            by ``runtime`` and ``driver``: the name of each call's number
    strings         what ``name`` and ``domain`` columns index

and the other arrays are columns: ``TABLE.COLUMN``, see ``COLUMNS``. Times are UTC nanoseconds.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .cupti_records import DRIVER, KERNEL, MARKER, MEMCPY, MEMSET, PEER_COPY, RUNTIME, SYNCHRONIZATION, Records

SCHEMA = "profkit.cupti/1"
SUFFIX = ".cupti"

ON_GPU = {
    "start": "start", "end": "end", "device": "device_id", "stream": "stream_id", "correlation": "correlation_id",
    "graph": "graph_id", "graph_node": "graph_node_id",
}  # fmt: skip
CALL = {
    "start": "start", "end": "end", "thread": "thread_id", "correlation": "correlation_id", "number": "cbid",
}  # fmt: skip

COLUMNS: Mapping[int, tuple[str, Mapping[str, str]]] = {
    KERNEL: ("kernels", {**ON_GPU, "name": "name"}),
    MEMCPY: ("copies", {**ON_GPU, "bytes": "bytes", "copy_kind": "copy_kind"}),
    PEER_COPY: ("peer_copies", {**ON_GPU, "bytes": "bytes", "copy_kind": "copy_kind"}),
    MEMSET: ("memsets", {**ON_GPU, "bytes": "bytes"}),
    RUNTIME: ("runtime", CALL),
    DRIVER: ("driver", CALL),
    MARKER: ("markers", {"time": "timestamp", "flags": "flags_", "id": "id", "name": "name", "domain": "domain"}),
    SYNCHRONIZATION: (
        "synchronisations",
        {"start": "start", "end": "end", "correlation": "correlation_id", "stream": "stream_id", "type": "type"},
    ),
}
"""The table of each kind of record, and CUPTI's field for each of its columns."""

TEXTS = ("name", "domain")

Arrays = dict[str, npt.NDArray[Any]]


def columns_of(records: Mapping[int, Records], text_at: Callable[[int], str]) -> tuple[Arrays, list[str]]:
    """Records as columns, and the strings that they index; ``text_at`` reads the string at an address."""
    arrays: Arrays = {}
    strings: dict[str, int] = {}
    for kind, (table, columns) in COLUMNS.items():
        rows = records[kind]
        for column, field in columns.items():
            values = rows[field].astype(np.int64)
            arrays[f"{table}.{column}"] = _indexed(values, strings, text_at) if column in TEXTS else values
        if kind == MARKER:
            arrays[f"{table}.thread"] = rows["object_id"]["pt"]["thread_id"].astype(np.int64)
    return arrays, list(strings)


def _indexed(addresses: npt.NDArray[Any], strings: dict[str, int], text_at: Callable[[int], str]) -> npt.NDArray[Any]:
    """The number of the string at each address; -1 where there is none."""
    distinct, inverse = np.unique(addresses, return_inverse=True)
    texts = [text_at(int(address)) if address else None for address in distinct]
    numbers = [-1 if text is None else strings.setdefault(text, len(strings)) for text in texts]
    found: npt.NDArray[Any] = np.array(numbers, np.int64)[inverse]
    return found


def write_dump(path: Path, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a dump whole: it has its name once it is complete."""
    encoded = np.frombuffer(json.dumps({"schema": SCHEMA, **header}).encode(), np.uint8)
    members: dict[str, Any] = {"header": encoded, **arrays}
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, **members)
    part.replace(path)


def demangler() -> Callable[[int], str]:
    """Reads the string at an address, and undoes the C++ ABI's mangling of a kernel's name if that can be done here."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return lambda address: ctypes.string_at(address).decode("utf-8", "replace")
    demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

    def text_at(address: int) -> str:
        raw = ctypes.string_at(address)
        plain = demangle(raw, None, None, ctypes.byref(ctypes.c_int())) if raw.startswith(b"_Z") else None
        text = ctypes.string_at(plain) if plain else raw
        free(plain)
        return text.decode("utf-8", "replace")

    return text_at
