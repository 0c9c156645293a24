"""How fast CUPTI's records become a dump, and a dump a trace: ``python -m benchmarks.cupti_decode``.

The records are laid out as those of CUPTI 13.0.1, in buffers as full as CUPTI fills them, in about the proportions of
a decode step with CUDA graphs. The first figure is what the server's process does after a window, while it waits.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profkit.sglang.cupti_buffers import SIZE
from profkit.sglang.cupti_dump import Arrays, columns_of, demangler, write_dump
from profkit.sglang.cupti_records import (
    DRIVER,
    KERNEL,
    MARKER,
    MEMCPY,
    MEMSET,
    RUNTIME,
    SYNCHRONIZATION,
    Bytes,
    records_of,
)
from profkit.traces.cupti import read_cupti
from tests.sglang.fake_cupti import BY_KIND, Names, buffers

RECORDS = 200_000
REPEATS = 5
SHARES = {KERNEL: 0.45, RUNTIME: 0.36, DRIVER: 0.04, MARKER: 0.08, MEMCPY: 0.03, MEMSET: 0.02, SYNCHRONIZATION: 0.02}
KERNELS = [f"_ZN2at6native{len(f'kernel{number}')}kernel{number}ILi128EEEvi" for number in range(60)]
TEXTS = [f"step:decode bs={size}" for size in range(1, 30)] + ["draft", "target", "accept", "kv_append"]
TICK = 1_000


@dataclass(frozen=True, slots=True)
class Decoded:
    """Seconds, the least of several rounds, that ``records`` in ``bytes`` took: to be written, and to be read."""

    records: int
    bytes: int
    write: float
    read: float


def recorded(count: int, names: Names) -> Iterator[Bytes]:
    """Buffers with ``count`` records of all kinds, shuffled; ``names`` holds their strings."""
    random = np.random.default_rng(1)
    order = random.choice([*SHARES], count, p=[*SHARES.values()])
    rows = {kind: _rows(kind, np.flatnonzero(order == kind), names, random) for kind in SHARES}
    whole = {kind: iter(own) for kind, own in rows.items()}
    return buffers((next(whole[kind]) for kind in order.tolist()), SIZE)


def _rows(kind: int, place: Any, names: Names, random: np.random.Generator) -> list[bytes]:
    """The records of a kind, at their places in the window."""
    rows = np.zeros(len(place), BY_KIND[kind])
    rows["kind"] = kind
    now = time.time_ns() + place * TICK
    if kind == MARKER:
        rows["timestamp"], rows["flags_"], rows["id"] = now, 2 + 2 * (place % 2), place // 2
        rows["name"] = np.where(rows["flags_"] == 2, _addresses(TEXTS, len(place), names, random), 0)
        rows["domain"] = np.where(rows["flags_"] == 2, names.at("profkit"), 0)
    else:
        rows["start"], rows["end"], rows["correlation_id"] = now, now + TICK // 2, place // 1_000 + 1
    if kind == KERNEL:
        rows["name"] = _addresses(KERNELS, len(place), names, random)
        rows["graph_id"], rows["graph_node_id"] = 3, 3 << 32 | place % 1_071
    data, size = rows.tobytes(), rows.dtype.itemsize
    return [data[at : at + size] for at in range(0, len(data), size)]


def _addresses(texts: list[str], count: int, names: Names, random: np.random.Generator) -> Any:
    return random.choice([names.at(text) for text in texts], count)


def dump(held: list[Bytes], file: Path) -> None:
    """What the recorder does with its buffers."""
    arrays, strings = columns_of(records_of(held, BY_KIND), demangler())
    nodes: Arrays = {f"nodes.{name}": np.empty(0, np.int64) for name in ("time", "thread", "node", "original")}
    now = time.time_ns()
    write_dump(file, {"pid": 1, "began_ns": now, "ended_ns": now, "strings": strings}, arrays | nodes)


def decode(count: int = RECORDS) -> Decoded:
    """Write and read ``count`` records."""
    names = Names()
    held = list(recorded(count, names))
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "1.cupti"
        write = _least(lambda: dump(held, file))
        read = _least(lambda: read_cupti(file))
    return Decoded(count, sum(map(len, held)), write, read)


def _least(work: Callable[[], object]) -> float:
    found = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


def table(found: Decoded) -> str:
    """The figures as a Markdown table."""
    lines = ["| CUPTI's records | time | records/s |", "| --- | ---: | ---: |"]
    size = f"{found.records:,} records, {found.bytes / 1e6:.0f} MB"
    for title, seconds in (("buffers to a dump", found.write), ("a dump to a trace", found.read)):
        lines.append(f"| {size}: {title} | {seconds:.2f} s | {found.records / seconds:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(decode()))
