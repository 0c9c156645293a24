"""``make bench``: what ``profkit analyze`` and ``profkit report`` take, start-up included; writes docs/performance.md.

And how fast CUPTI's records become a dump, and that a trace (``cupti_decode``).

Cases are the captures of real servers in the shared folder (``PROFKIT_SHARED``, or ``shared`` beside the checkout;
skipped where it is missing) and generated recordings of 1,000,000 and 5,000,000 ops.
"""

from __future__ import annotations

import argparse
import lzma
import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from . import cupti_decode
from .measure import Taken, machine, measure

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
SQLITE_CAPTURES = ("ep2-dflash-graph-c1", "ep2-dflash-eager-c1", "ep2-ar-graph-c1")
KINETO_CAPTURE = "dense8b-dflash-graph-c1.kineto.json.gz"
SIZES = (1_000_000, 5_000_000)
LARGE_FROM = 5_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """A recording to read; ``ops`` is ``None`` where nobody counted."""

    name: str
    path: Path
    ops: int | None
    repeats: int = 3


@dataclass(frozen=True, slots=True)
class Row:
    """What a case took to analyse and to report, and what a bare read of it takes."""

    case: Case
    analyze: Taken
    report: Taken
    floor: Taken


class Bench:
    """Runs commands in the environment of a user who has used profkit before: with its byte code at hand."""

    def __init__(self, folder: Path) -> None:
        self._page = folder / "report.html"
        self._environment = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONPATH": str(ROOT)}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def python(self, *arguments: str, repeats: int = 1) -> Taken:
        """Run Python with ``arguments``."""
        return measure([sys.executable, "-m", *arguments], self._environment, repeats)

    def row(self, case: Case) -> Row:
        """Measure ``case``."""
        path = str(case.path)
        print(f"{case.name}: analyze", file=sys.stderr)
        analyze = self.python("profkit", "analyze", path, repeats=case.repeats)
        print(f"{case.name}: report", file=sys.stderr)
        report = self.python("profkit", "report", path, "-o", str(self._page), repeats=case.repeats)
        return Row(case, analyze, report, self.python("benchmarks.floor", path, repeats=case.repeats))


def captures(folder: Path) -> Iterator[Case]:
    """The captures of the shared folder, decompressed into ``folder``."""
    shared = Path(os.environ.get("PROFKIT_SHARED") or ROOT.parent / "shared") / "captures"
    for name in SQLITE_CAPTURES:
        packed, plain = shared / f"{name}.sqlite.xz", folder / f"{name}.sqlite"
        if _there(packed):
            # Apart, so that this process stays small: see main.
            with ProcessPoolExecutor(1, get_context("spawn")) as apart:
                ops = apart.submit(_unpacked, packed, plain).result()
            yield Case(name, plain, ops)
    if _there(shared / KINETO_CAPTURE):
        yield Case(KINETO_CAPTURE, shared / KINETO_CAPTURE, None)


def _there(path: Path) -> bool:
    if not path.exists():
        print(f"skipped: there is no {path.name} in the shared folder; set PROFKIT_SHARED", file=sys.stderr)
    return path.exists()


def _unpacked(packed: Path, plain: Path) -> int:
    """Decompress a capture; returns how many ops it holds."""
    with lzma.open(packed) as source, plain.open("wb") as target:
        shutil.copyfileobj(source, target)
    return _count(plain)


def _count(path: Path) -> int:
    from .floor import read_sqlite

    activities = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
    return sum(len(rows) for table, rows in read_sqlite(path).items() if table in activities)


def generated(bench: Bench, folder: Path, sizes: Sequence[int]) -> Iterator[Case]:
    """Generated recordings with graphs and without, each removed before the next one is written."""
    for ops in sizes:
        for kind in ("graph", "eager"):
            path = folder / f"{kind}-{ops}.sqlite"
            print(f"generated, {kind}, {ops:,} ops: write", file=sys.stderr)
            bench.python("benchmarks.generate", str(ops), str(path), *(["--eager"] if kind == "eager" else []))
            yield Case(f"generated, {kind}", path, ops, 1 if ops >= LARGE_FROM else 3)
            path.unlink()


COLUMNS = ("recording", "ops", "analyze", "CPU", "peak", "µs/op", "report", "CPU", "peak", "bare read", "CPU", "peak")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1)), *map(_cells, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    ops = row.case.ops
    each = f"{row.analyze.cpu / ops * 1e6:.1f}" if ops else ""
    shown = [f"{row.case.name}", f"{ops:,}" if ops else "", *_taken(row.analyze), each]
    return (*shown, *_taken(row.report), *_taken(row.floor))


def _taken(taken: Taken) -> tuple[str, str, str]:
    return f"{taken.wall:.2f} s", f"{taken.cpu:.2f} s", f"{taken.peak / 1e6:,.0f} MB"


def growth(rows: Sequence[Row]) -> str:
    """How the time of generated recordings grows with their ops, in a sentence; nothing with fewer than two sizes."""
    found = []
    for name in dict.fromkeys(row.case.name for row in rows):
        own = sorted((row for row in rows if row.case.name == name), key=lambda row: row.case.ops or 0)
        if len(own) > 1:
            few, many = own[0].analyze, own[-1].analyze
            ops = (own[-1].case.ops or 0) / (own[0].case.ops or 1)
            kind, user, cpu = name.split()[-1], many.user / few.user, many.cpu / few.cpu
            found.append(f"{kind}, {ops:.1f}-fold ops: {user:.1f}-fold user time, {cpu:.1f}-fold processor time")
    return _point(f"**Growth** of analyze: {'; '.join(found)}.") + "\n" if found else ""


def _point(text: str) -> str:
    """A point of a list, in lines as long as the page's others."""
    return textwrap.fill(text, 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


SWEEPS = {
    "analyze a sweep of six recordings": ("analyze", "traces/ep2-dflash"),
    "report on it": ("report", "traces/ep2-dflash"),
    "diff of two recordings": ("diff", "traces/ep2-dflash/c1-eager", "traces/ep2-dflash/c1"),
    "diff of two sweeps at three concurrencies": ("diff", "traces/ep2", "traces/ep2-dflash"),
    "the same with its page": ("diff", "traces/ep2", "traces/ep2-dflash", "-o"),
    "every lever at one concurrency": ("whatif", "traces/ep2-dflash/c128", "traces/ep2/c128"),
}
"""What is done with the reference sweeps of the workspace; a page goes where ``-o`` says."""


def sweeps(bench: Bench, folder: Path) -> str:
    """What commands on the reference sweeps take, as a Markdown table."""
    lines = ["| command | time | CPU | peak |", "| --- | ---: | ---: | ---: |"]
    for title, command in SWEEPS.items():
        print(title, file=sys.stderr)
        paths = [str(ROOT / part) if part.startswith("traces/") else part for part in command]
        page = [str(folder / "page.html")] if command[-1] == "-o" else []
        page = ["-o", str(folder / "page.html")] if command[0] == "report" else page
        taken = bench.python("profkit", *paths, *page, repeats=3)
        lines.append(f"| {title}: `{' '.join(command)}` | {' | '.join(_taken(taken))} |")
    return "\n".join(lines)


def page(rows: Sequence[Row], commands: str, decoding: str, where: str) -> str:
    """docs/performance.md; ``commands`` and ``decoding`` are the other tables, ``where`` describes the machine."""
    return f"""# Performance

Written by `make bench`; figures are of whole commands, from the start of Python to its exit, unless said otherwise.

{table(rows)}

- **analyze** is `profkit analyze FILE`, **report** is `profkit report FILE`, the page included. **CPU** is user and
  system time, **peak** the largest resident size. Of three runs (one from 5,000,000 ops on) the quickest is shown.
- **bare read** is the least that a reader can do: the same columns with `sqlite3` and `fetchall()`, the same JSON with
  `gzip` and `orjson.loads`, without making one array or answering one question (`benchmarks/floor.py`).
- Captures were recorded on two H200 (the Kineto one on one H200). Generated recordings have two ranks and the steps of
  a DFlash server: a draft graph of 105 nodes, a verify graph of 1,071 and 55 ops outside graphs; *eager* ones have a
  launch call for each op, and event records around each collective (`benchmarks/generate.py`).
{growth(rows)}{_point(f"Measured on: {where} at the start.")}

On the reference sweeps:

{commands}

What CUPTI noted in a window, within one process and on one core:

{decoding}

- The first line is what a rank of the server does after a window: buffers to arrays, names demangled, a file written
  (`benchmarks/cupti_decode.py`). The second is reading that file.

## Why it is quick

- SQLite builds one text per column and 100,000 rows, on several threads, and numpy parses it: no Python object is made
  for a value.
- Strings are resolved once per distinct string, rules matched once per distinct kernel name.
- Steps, phases and ranges are looked up once per launch call, not once per op: a graph launch owns 1,071 ops.
- Attribution is arithmetic on whole columns: sorting, searching in sorted columns, counting. Time grows with the
  number of ops, and with the number of ranks only through them.
- CUPTI's buffers are walked once for where records begin; numpy gathers those of a kind, eight bytes at a time.
- Commands import what they use: `analyze` needs no pandas, pyarrow, plotly or jinja2.
"""


def main() -> int:
    """Measure, print the table, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, nargs="*", default=SIZES, help="sizes of the generated recordings")
    parser.add_argument("--output", type=Path, default=PAGE, help="where to write the page")
    given = parser.parse_args()
    where = machine()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        bench = Bench(folder)
        commands = sweeps(bench, folder)
        rows = [bench.row(case) for cases in (captures(folder), generated(bench, folder, given.ops)) for case in cases]
        # Last, in this process: a child's peak is never below what its parent holds.
        decoding = cupti_decode.table(cupti_decode.decode())
    print(table(rows), commands, decoding, sep="\n\n")
    given.output.write_text(page(rows, commands, decoding, where), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
