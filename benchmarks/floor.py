"""The least that a reader can do: the same columns with bare ``sqlite3``, the same JSON with ``orjson``.

``python -m benchmarks.floor FILE`` reads one file and exits; it makes no arrays and answers no question.
"""

from __future__ import annotations

import gzip
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

ACTIVITY = ("start", "end", "deviceId", "streamId", "globalPid", "correlationId")
COLUMNS = {
    "StringIds": ("id", "value"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (*ACTIVITY, "demangledName", "graphNodeId"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (*ACTIVITY, "copyKind", "bytes", "graphNodeId"),
    "CUPTI_ACTIVITY_KIND_MEMSET": (*ACTIVITY, "bytes", "graphNodeId"),
    "NVTX_EVENTS": ("start", "end", "eventType", "globalTid", "domainId", "textId", "text"),
    "CUDA_GRAPH_NODE_EVENTS": ("start", "globalTid", "graphNodeId", "originalGraphNodeId"),
}
"""What ``profkit.traces.nsys`` reads of an export."""


def read_sqlite(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of the tables in ``COLUMNS`` that are there."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        return {
            table: connection.execute(f"SELECT {', '.join(map(_quoted, columns))} FROM {table}").fetchall()
            for table, columns in COLUMNS.items()
            if table in there
        }


def _quoted(name: str) -> str:
    return f'"{name}"'


def read_json(path: Path) -> object:
    """All of a gzipped JSON file."""
    import orjson

    return orjson.loads(gzip.decompress(path.read_bytes()))


if __name__ == "__main__":
    file = Path(sys.argv[1])
    if file.suffix == ".gz":
        read_json(file)
    else:
        read_sqlite(file)
