"""The tables of an Nsight Systems export, whichever way they are stored.

Tables and columns come and go with the schema version: ask what is there, and select by name.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .errors import InputError
from .model import I64, UNKNOWN

CHUNK = 50_000
"""Rows per statement: bounds the memory of the text that SQLite builds."""

Columns = dict[str, I64]


class NsysTables(Protocol):
    """Read access to one export."""

    path: Path

    def columns(self, table: str) -> frozenset[str]:
        """The column names of ``table``; none where it is missing."""

    def integers(self, table: str, wanted: Sequence[str]) -> Columns:
        """The ``wanted`` columns as int64; ``UNKNOWN`` where NULL or where there is no such column."""

    def texts(self, table: str, key: str, value: str) -> Mapping[int, str]:
        """``value`` by ``key`` for every row of ``table``; empty where the table is missing."""

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        """The ``wanted`` columns of a small table, row by row; ``None`` where there is no such column."""


class SqliteTables:
    """An export of type ``sqlite``."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
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

    def integers(self, table: str, wanted: Sequence[str]) -> Columns:
        present = [name for name in wanted if name in self.columns(table)]
        parts: dict[str, list[I64]] = {name: [] for name in present}
        for low, high in self._row_spans(table) if present else ():
            # SQLite builds one text per column and numpy parses it: about twice as fast as rows of Python integers.
            selected = ",".join(f"group_concat(ifnull({_quoted(name)},{UNKNOWN}))" for name in present)
            row = self._query(
                f"SELECT {selected} FROM {_quoted(table)} WHERE rowid BETWEEN {low} AND {high}"
            ).fetchone()
            for name, text in zip(present, row, strict=True):
                if text is not None:
                    parts[name].append(self._parse(table, name, text))
        size = sum(len(part) for part in parts[present[0]]) if present else 0
        missing = np.full(size, UNKNOWN, np.int64)
        return {name: np.concatenate([missing[:0], *parts[name]]) if name in parts else missing for name in wanted}

    def _row_spans(self, table: str) -> Iterator[tuple[int, int]]:
        first, last = self._query(f"SELECT min(rowid), max(rowid) FROM {_quoted(table)}").fetchone()
        if first is not None:
            for low in range(first, last + 1, CHUNK):
                yield low, low + CHUNK - 1

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
        import pyarrow.parquet as pq

        self.path = path
        self._files = {file.stem: file for file in sorted(path.glob("*.parquet"))}
        self._columns = {name: frozenset(pq.read_schema(file).names) for name, file in self._files.items()}

    def columns(self, table: str) -> frozenset[str]:
        return self._columns.get(table, frozenset())

    def _read(self, table: str, wanted: Sequence[str]) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_table(self._files[table], columns=list(wanted))
        except (OSError, pa.ArrowException) as error:
            raise InputError(self._files[table], f"damaged Parquet file ({error})", "export it again") from error

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
    connection = sqlite3.connect(f"file:{_uri(file)}?mode=ro&immutable=1", uri=True)
    try:
        yield SqliteTables(path, connection)
    except sqlite3.DatabaseError as error:
        raise InputError(
            path, f"damaged SQLite file ({error})", "export it again with `nsys export --type sqlite`"
        ) from error
    finally:
        connection.close()


def _uri(file: Path) -> str:
    from urllib.parse import quote

    return quote(str(file.resolve()))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
