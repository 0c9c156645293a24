"""The tables of an Nsight Systems export, whichever way they are stored.

Tables and columns come and go with the schema version: ask what is there, and select by name.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .errors import InputError
from .model import I64, UNKNOWN

CHUNK = 100_000
"""Rows per statement: bounds the memory of the text that SQLite builds."""

THREADS = min(4, os.cpu_count() or 1)

Columns = dict[str, I64]


class NsysTables(Protocol):
    """Read access to one export."""

    path: Path

    def columns(self, table: str) -> frozenset[str]:
        """The column names of ``table``; none where it is missing."""

    def has_rows(self, table: str) -> bool:
        """Whether ``table`` is there and not empty."""

    def integers(self, table: str, wanted: Sequence[str]) -> Columns:
        """The ``wanted`` columns as int64; ``UNKNOWN`` where NULL or where there is no such column."""

    def texts(self, table: str, key: str, value: str) -> Mapping[int, str]:
        """``value`` by ``key`` for every row of ``table``; empty where the table is missing."""

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        """The ``wanted`` columns of a small table, row by row; ``None`` where there is no such column."""


class SqliteTables:
    """An export of type ``sqlite``."""

    def __init__(self, path: Path, file: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._file = file
        self._connection = connection
        tables = [name for (name,) in self._query("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self._columns = {
            name: frozenset(row[1] for row in self._query(f"PRAGMA table_info({_quoted(name)})")) for name in tables
        }

    def _query(self, statement: str) -> sqlite3.Cursor:
        try:
            return self._connection.execute(statement)
        except sqlite3.DatabaseError as error:
            raise InputError(
                self.path, f"damaged SQLite file ({error})", "export it again with `nsys export --type sqlite`"
            ) from error

    def columns(self, table: str) -> frozenset[str]:
        return self._columns.get(table, frozenset())

    def has_rows(self, table: str) -> bool:
        return table in self._columns and bool(self._query(f"SELECT 1 FROM {_quoted(table)} LIMIT 1").fetchall())

    def integers(self, table: str, wanted: Sequence[str]) -> Columns:
        present = [name for name in wanted if name in self.columns(table)]
        parts: dict[str, list[I64]] = {name: [] for name in present}
        for row in self._listed(table, present) if present else ():
            for name, text in zip(present, row, strict=True):
                if text is not None:
                    parts[name].append(self._parse(table, name, text))
        size = sum(len(part) for part in parts[present[0]]) if present else 0
        missing = np.full(size, UNKNOWN, np.int64)
        # Popped, so that the parts of a column are free again when the next one is joined.
        return {name: np.concatenate([missing[:0], *parts.pop(name)]) if name in parts else missing for name in wanted}

    def _listed(self, table: str, names: Sequence[str]) -> Iterator[tuple[str | None, ...]]:
        """For each span of rows, the values of each column as one text: twice as fast as rows of Python integers."""
        selected = ",".join(f"group_concat(ifnull({_quoted(name)},{UNKNOWN}))" for name in names)
        statement = f"SELECT {selected} FROM {_quoted(table)} WHERE rowid BETWEEN"
        statements = [f"{statement} {low} AND {high}" for low, high in self._row_spans(table)]
        if len(statements) == 1:
            yield self._query(statements[0]).fetchone()
        elif statements:
            from concurrent.futures import ThreadPoolExecutor  # 10 ms that only a large table has to pay

            with ThreadPoolExecutor(THREADS) as threads:
                yield from threads.map(self._apart, statements)

    def _apart(self, statement: str) -> tuple[str | None, ...]:
        """The one row of ``statement``, over a connection of its own: SQLite holds no lock while it works."""
        with closing(_connect(self._file)) as connection:
            row: tuple[str | None, ...] = connection.execute(statement).fetchone()
        return row

    def _row_spans(self, table: str) -> Iterator[tuple[int, int]]:
        """Spans of row numbers that hold all rows; a gap between row numbers, however wide, costs nothing."""
        first = f"SELECT min(rowid) FROM {_quoted(table)}"
        (low,) = self._query(first).fetchone()
        while low is not None:
            high = low + CHUNK - 1
            yield low, high
            (low,) = self._query(f"{first} WHERE rowid > {high}").fetchone()

    def _parse(self, table: str, column: str, text: str) -> I64:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                return np.fromstring(text, np.int64, sep=",")
            except (DeprecationWarning, ValueError) as error:
                raise InputError(
                    self.path,
                    f"column {column} of table {table} holds something other than integers",
                    "export the recording again with `nsys export --type sqlite`",
                ) from error

    def texts(self, table: str, key: str, value: str) -> Mapping[int, str]:
        if not {key, value} <= self.columns(table):
            return {}
        statement = f"SELECT {_quoted(key)}, {_quoted(value)} FROM {_quoted(table)}"
        return {row[0]: _text(row[1]) for row in self._query(statement) if row[1] is not None}

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        present = self.columns(table)
        if not present:
            return []
        selected = ",".join(_quoted(name) if name in present else "NULL" for name in wanted)
        return self._query(f"SELECT {selected} FROM {_quoted(table)}").fetchall()


class ParquetTables:
    """An export of type ``parquetdir``: a folder with one Parquet file per table."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = {file.stem: file for file in sorted(path.glob("*.parquet"))}
        self._columns = {name: self._schema(name) for name in self._files}

    def _schema(self, table: str) -> frozenset[str]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return frozenset(pq.read_schema(self._files[table]).names)
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(table, error) from error

    def _damaged(self, table: str, error: Exception) -> InputError:
        return InputError(self._files[table], f"damaged Parquet file ({error})", "export it again")

    def columns(self, table: str) -> frozenset[str]:
        return self._columns.get(table, frozenset())

    def has_rows(self, table: str) -> bool:
        import pyarrow.parquet as pq

        return table in self._files and pq.read_metadata(self._files[table]).num_rows > 0

    def _read(self, table: str, wanted: Sequence[str]) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_table(self._files[table], columns=list(wanted))
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(table, error) from error

    def integers(self, table: str, wanted: Sequence[str]) -> Columns:
        import pyarrow as pa
        import pyarrow.compute as pc

        present = [name for name in wanted if name in self.columns(table)]
        if not present:
            return dict.fromkeys(wanted, np.empty(0, np.int64))
        data = self._read(table, present)
        missing = np.full(data.num_rows, UNKNOWN, np.int64)
        columns = dict.fromkeys(wanted, missing)
        for name in present:
            filled = pc.fill_null(data[name].cast(pa.int64()), UNKNOWN)
            columns[name] = filled.to_numpy()
        return columns

    def texts(self, table: str, key: str, value: str) -> Mapping[int, str]:
        if not {key, value} <= self.columns(table):
            return {}
        data = self._read(table, [key, value])
        pairs = zip(data[key].to_pylist(), data[value].to_pylist(), strict=True)
        return {key_: _text(text) for key_, text in pairs if text is not None}

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        present = [name for name in wanted if name in self.columns(table)]
        if not present:
            return []
        data = self._read(table, present)
        empty = [None] * data.num_rows
        lists = [data[name].to_pylist() if name in present else empty for name in wanted]
        return list(zip(*lists, strict=True))


@contextmanager
def open_tables(path: Path, file: Path) -> Iterator[NsysTables]:
    """Open the export in ``file``; errors name ``path``, the user's own file. The input is never changed."""
    if file.is_dir():
        yield ParquetTables(path)
        return
    _refuse_cut_off(path, file)
    connection = _connect(file)
    try:
        yield SqliteTables(path, file, connection)
    except sqlite3.DatabaseError as error:
        raise InputError(
            path, f"damaged SQLite file ({error})", "export it again with `nsys export --type sqlite`"
        ) from error
    finally:
        connection.close()


def _refuse_cut_off(path: Path, file: Path) -> None:
    """SQLite itself notices a missing end only when it has to read there. Its header says how long the file was."""
    with file.open("rb") as raw:
        header = raw.read(100)
    page = int.from_bytes(header[16:18], "big")
    size = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
    current = header[24:28] == header[92:96]
    if current and file.stat().st_size < size:
        fault = f"damaged SQLite file (cut off: {file.stat().st_size:,} of {size:,} bytes)"
        raise InputError(path, fault, "copy or export it again")


def _connect(file: Path) -> sqlite3.Connection:
    from urllib.parse import quote

    connection = sqlite3.connect(f"file:{quote(str(file.resolve()))}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
