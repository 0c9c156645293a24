"""The bundle: a trace on disk, as a folder of zstd Parquet files and a ``manifest.json``."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from .errors import InputError, OutputError
from .model import STRING_COLUMNS, TABLES, UNKNOWN, Device, Note, Process, Run, Source, Table, Trace

SCHEMA = "profkit.trace/1"
MANIFEST = "manifest.json"
ADVICE = "import the recording again with `profkit import`"


class Manifest(msgspec.Struct):
    """What ``manifest.json`` holds; ``files`` maps each Parquet file to its SHA-256."""

    schema: str
    source: Source
    run: Run
    processes: tuple[Process, ...]
    devices: tuple[Device, ...]
    notes: tuple[Note, ...]
    files: dict[str, str]


def is_bundle(path: Path) -> bool:
    """Whether ``path`` is a folder with a manifest."""
    return (path / MANIFEST).is_file()


def save_bundle(trace: Trace, path: Path) -> None:
    """Write ``trace`` to the folder ``path``, whole or not at all; an older bundle there is replaced.

    Raises ``OutputError`` if the folder cannot be written, or holds something that is no bundle.
    """
    if path.exists() and not (path.is_dir() and (is_bundle(path) or not any(path.iterdir()))):
        raise OutputError(path, "there is something else there", "choose another name, or remove it first")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _staged(path) as folder:
            _write(_compact(trace), folder)
    except OSError as error:
        raise OutputError(
            path, f"cannot write the bundle ({error.strerror})", "free space or choose a folder"
        ) from error


@contextmanager
def _staged(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` that takes its place if all goes well."""
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    aside = folder.with_name(f"{folder.name}-old")
    try:
        yield folder
        folder.chmod(0o755)
        if path.exists():
            path.replace(aside)
        folder.replace(path)
    finally:
        if aside.exists() and not path.exists():
            aside.replace(path)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)


def _compact(trace: Trace) -> Trace:
    """The same trace with only the strings that a row refers to: nothing else may leave the recording."""
    used = [getattr(getattr(trace, table), column) for table, columns in STRING_COLUMNS.items() for column in columns]
    kept = np.unique(np.concatenate(used)) if used else np.empty(0, np.int32)
    kept = kept[kept >= 0]
    place = np.full(len(trace.strings) + 1, UNKNOWN, np.int32)
    place[kept] = np.arange(len(kept))
    tables: dict[str, Any] = {}
    for name, table in trace.tables().items():
        renamed = {column: place[getattr(table, column)] for column in STRING_COLUMNS[name]}
        tables[name] = type(table)(**(table.columns() | renamed))
    rest: dict[str, Any] = {
        field: getattr(trace, field) for field in ("processes", "devices", "notes", "source", "run")
    }
    return Trace(**tables, **rest, strings=tuple(trace.strings[i] for i in kept.tolist()))


def _write(trace: Trace, folder: Path) -> None:
    import pyarrow as pa

    frames = {name: pa.table(table.columns()) for name, table in trace.tables().items() if len(table)}
    frames["strings"] = pa.table({"text": pa.array(trace.strings, pa.string())})
    files = {}
    for name, frame in frames.items():
        file = folder / f"{name}.parquet"
        _write_parquet(frame, file)
        files[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest = Manifest(SCHEMA, trace.source, trace.run, trace.processes, trace.devices, trace.notes, files)
    encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (folder / MANIFEST).write_bytes(encoded + b"\n")


def _write_parquet(frame: Any, file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wide = [field.name for field in frame.schema if field.type == pa.int64()]
    rest = [field.name for field in frame.schema if field.name not in wide]
    pq.write_table(
        frame,
        file,
        compression="zstd",
        compression_level=15,
        use_dictionary=rest,
        column_encoding=dict.fromkeys(wide, "DELTA_BINARY_PACKED"),
    )


def load_bundle(path: Path) -> Trace:
    """Read the bundle at ``path``.

    Raises ``InputError`` where a file is missing, damaged or of a newer schema.
    """
    manifest = _manifest(path)
    tables: dict[str, Any] = {name: _read(path, manifest.files, name, kind) for name, kind in TABLES.items()}
    trace = Trace(
        **tables,
        processes=manifest.processes,
        devices=manifest.devices,
        notes=manifest.notes,
        strings=_strings(path, manifest.files),
        source=manifest.source,
        run=manifest.run,
    )
    try:
        trace.check()
    except ValueError as error:
        raise InputError(path, f"damaged bundle ({error})", ADVICE) from error
    return trace


def _manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    try:
        raw = file.read_bytes()
        schema = msgspec.json.decode(raw)
        if isinstance(schema, dict) and schema.get("schema") != SCHEMA:
            raise InputError(file, f"unknown bundle schema '{schema.get('schema')}'", "update profkit, or import again")
        return msgspec.json.decode(raw, type=Manifest)
    except OSError as error:
        raise InputError(file, f"cannot read ({error.strerror})", "check the path and its permissions") from error
    except msgspec.MsgspecError as error:
        raise InputError(file, f"damaged manifest ({error})", ADVICE) from error


def _load(path: Path, files: Mapping[str, str], name: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = path / f"{name}.parquet"
    if file.name not in files:
        return None
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise InputError(file, f"cannot read ({error.strerror})", ADVICE) from error
    if hashlib.sha256(raw).hexdigest() != files[file.name]:
        raise InputError(file, "changed since it was written (the checksum differs)", ADVICE)
    try:
        return pq.ParquetFile(pa.BufferReader(raw)).read()
    except pa.ArrowException as error:
        raise InputError(file, f"damaged Parquet file ({error})", ADVICE) from error


def _read(path: Path, files: Mapping[str, str], name: str, kind: type[Table]) -> Table:
    frame = _load(path, files, name)
    if frame is None:
        return kind()
    file = path / f"{name}.parquet"
    return kind(**{column: _column(file, frame, column, dtype) for column, dtype in kind.dtypes().items()})


def _column(file: Path, frame: Any, column: str, dtype: str) -> Any:
    import pyarrow as pa

    if column not in frame.column_names:
        raise InputError(file, f"has no column '{column}'", ADVICE)
    try:
        values = frame[column].cast(pa.from_numpy_dtype(np.dtype(dtype)))
    except pa.ArrowException as error:
        raise InputError(file, f"column '{column}' holds something other than {dtype}", ADVICE) from error
    if values.null_count:
        raise InputError(file, f"column '{column}' has holes", ADVICE)
    # ``to_numpy`` would import pandas, which takes longer than to read the bundle.
    return np.from_dlpack(values.combine_chunks())


def _strings(path: Path, files: Mapping[str, str]) -> tuple[str, ...]:
    import pyarrow as pa

    frame = _load(path, files, "strings")
    if frame is None:
        return ()
    if "text" not in frame.column_names:
        raise InputError(path / "strings.parquet", "has no column 'text'", ADVICE)
    column = frame["text"].cast(pa.string()).combine_chunks()
    _, edges, data = column.buffers()
    cuts = np.frombuffer(edges or b"", np.int32)[column.offset : column.offset + len(column) + 1].tolist()
    text = data.to_pybytes() if data else b""
    return tuple(text[start:end].decode() for start, end in pairwise(cuts))
