"""The files of a window that CUPTI recorded, one of each process: read, and checked for what makes no sense.

``profkit.sglang.cupti_dump`` writes them and says what is in them. They are told by their content: an archive of
numpy's whose first member is ``header``. The table ``synchronisations`` is left where it is: it names no thread, and
the API calls of the same waits do.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from .compression import read_content, read_head
from .errors import InputError
from .model import I64, UNKNOWN

SCHEMA = "profkit.cupti/1"
SUFFIX = ".cupti"
ZIP_MAGIC = b"PK\x03\x04"
FIRST_NAME = slice(30, 40)
"""Where the name of an archive's first member begins, and as much of it as ``header.npy`` is long."""

ADVICE = "record again"
DAMAGED = (
    ValueError, EOFError, OSError, RuntimeError, TypeError, struct.error, zlib.error, zipfile.BadZipFile,
    msgspec.MsgspecError,
)  # fmt: skip
"""What numpy, zipfile and msgspec raise for bytes that make no sense."""

ON_GPU = ("start", "end", "device", "stream", "correlation", "graph", "graph_node")
CALL = ("start", "end", "thread", "correlation", "number")
COLUMNS = {
    "kernels": (*ON_GPU, "name"),
    "copies": (*ON_GPU, "bytes", "copy_kind"),
    "peer_copies": (*ON_GPU, "bytes", "copy_kind"),
    "memsets": (*ON_GPU, "bytes"),
    "runtime": CALL,
    "driver": CALL,
    "markers": ("time", "flags", "id", "thread", "name", "domain"),
    "nodes": ("time", "thread", "node", "original"),
}
TEXTS = ("name", "domain")

Columns = Mapping[str, I64]


Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
"""What a column can hold, and sums of a few of them."""

DEVICES = 2**31
Number = Annotated[int, msgspec.Meta(ge=0, lt=DEVICES)]
"""A GPU's number, which a trace holds in 32 bits."""


class RecordedDevice(msgspec.Struct):
    """A GPU by the number that its process gives it; bandwidth in bytes per second."""

    id: Number
    name: str = ""
    sm_count: Count | None = None
    memory_bandwidth: Count | None = None
    bus_id: str = ""


class Header(msgspec.Struct):
    """What a process says of its window; ``strings`` are those that columns index, times are UTC nanoseconds."""

    schema: str
    pid: Count
    began_ns: Count
    ended_ns: Count
    version: str = ""
    driver: str = ""
    dropped: Count = 0
    devices: list[RecordedDevice] = []
    apis: dict[str, dict[int, str]] = {}
    strings: list[str] = []


class DumpFile(msgspec.Struct, frozen=True):
    """The header and the tables of one file; times are UTC nanoseconds."""

    header: Header
    tables: Mapping[str, Columns]


class _Schema(msgspec.Struct):
    schema: str


def is_dump(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a process's records."""
    return head.startswith(ZIP_MAGIC) and head[FIRST_NAME] == b"header.npy"


def dumps_in(folder: Path) -> list[Path]:
    """The files of ``folder`` whose content is that of a dump, whatever they are called."""
    return [file for file in sorted(folder.iterdir()) if file.is_file() and is_dump(read_head(file))]


def read_dumps(path: Path) -> list[DumpFile]:
    """The dumps in the folder ``path``, ordered by pid, or the one that ``path`` is.

    Raises ``InputError`` naming the file that is damaged, of a schema that profkit does not know, or a second one of
    its process. A file that only has the name of a dump is a damaged one.
    """
    files = [path] if path.is_file() else sorted({*dumps_in(path), *path.glob(f"*{SUFFIX}")})
    if not files:
        raise InputError(path, f"no process left a {SUFFIX} file here", ADVICE)
    found = {file: _read(file) for file in files}
    _check_pids(found)
    return sorted(found.values(), key=lambda dump: dump.header.pid)


def _check_pids(found: Mapping[Path, DumpFile]) -> None:
    seen: dict[int, Path] = {}
    for file, dump in found.items():
        pid = dump.header.pid
        if pid in seen:
            raise InputError(file, f"a second dump of process {pid}, beside {seen[pid].name}", "move one of them away")
        seen[pid] = file


def _read(file: Path) -> DumpFile:
    data = read_content(file).data
    if not is_dump(data):
        raise InputError(file, "no dump of CUPTI's records" if data else "the file is empty", ADVICE)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            header = _header(file, archive["header"].tobytes())
            tables = {
                table: {column: _column(archive, f"{table}.{column}") for column in columns}
                for table, columns in COLUMNS.items()
            }
    except KeyError as error:
        raise InputError(file, f"a part of it is missing ({error.args[0]})", ADVICE) from error
    except DAMAGED as error:
        raise InputError(file, f"a damaged dump of CUPTI's records ({error})", ADVICE) from error
    _check(file, header, tables)
    return DumpFile(header, tables)


def _header(file: Path, raw: bytes) -> Header:
    schema = msgspec.json.decode(raw, type=_Schema).schema
    if schema != SCHEMA:
        raise InputError(file, f"unknown schema '{schema}'", "update profkit")
    return msgspec.json.decode(raw, type=Header)


def _column(archive: Mapping[str, Any], name: str) -> I64:
    values = archive[name]
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(f"{name} is no column of whole numbers")
    column: I64 = values.astype(np.int64)
    return column


def _check(file: Path, header: Header, tables: Mapping[str, Columns]) -> None:
    if header.ended_ns < header.began_ns:
        raise InputError(file, "its window ends before it begins", ADVICE)
    for table, columns in tables.items():
        if len({len(column) for column in columns.values()}) > 1:
            raise InputError(file, f"the columns of {table} differ in length", ADVICE)
    if not _below(len(header.strings), _all(tables, *TEXTS)):
        raise InputError(file, "a record names a string that is not there", ADVICE)
    if not _below(DEVICES, _all(tables, "device")):
        raise InputError(file, "a record names a device that there cannot be", ADVICE)


def _all(tables: Mapping[str, Columns], *names: str) -> list[I64]:
    """The columns of any table that have one of ``names``."""
    return [columns[name] for columns in tables.values() for name in names if name in columns]


def _below(end: int, columns: Sequence[I64]) -> bool:
    """Whether all values are unknown, or from 0 to before ``end``."""
    return all(not len(column) or UNKNOWN <= column.min() <= column.max() < end for column in columns)
