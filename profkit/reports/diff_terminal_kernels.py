"""The kernels of a comparison in a terminal: a line with the name, and below it what both sides spend on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from profkit.analyzers.diff.result import KernelChange, PairDiff
from profkit.analyzers.words import duration
from profkit.traces import printable

from .diff_cells import calls, change, kernels_of, relative, state, unit_of, waiting

MOST = 6
WAITS = ("waits more", "waits less")


def print_kernels(console: Console, pair: PairDiff) -> None:
    """The largest changes of kernels that are no noise, and how many groups of kernels there are of each state."""
    changed = [row for row in pair.kernels if row.state != "same" and (row.significant or row.ci95_ns is None)][:MOST]
    if changed:
        what = f"time per {unit_of(pair)} (with waiting in collectives), calls × time of one"
        console.print(f"[bold]Kernels[/bold]{kernels_of(pair)}, {what}")
        heads, *lines = _figures(console, changed)
        console.print(heads, markup=False)
        for row, line in zip(changed, lines, strict=True):
            waits = [waiting(row)] if row.state in WAITS else []
            title = " · ".join([state(row), row.phase, *waits, _name(row)])
            console.print(printable(title), markup=False, style="bold", no_wrap=True, overflow="ellipsis")
            console.print(line, markup=False)
    console.print(f"Groups of kernels: {_counted(pair.kernels)}", markup=False)


def _figures(console: Console, rows: Sequence[KernelChange]) -> list[str]:
    """The heads of the columns, and a line for each of ``rows``."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("", "A", "calls", "B", "calls", "change", ""):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        a, b = calls(row.a_count, row.a_call_ns), calls(row.b_count, row.b_call_ns)
        table.add_row("", duration(row.a_ns), a, duration(row.b_ns), b, change(row), relative(row))
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n").split("\n")


def _name(row: KernelChange) -> str:
    names = [name for name in (row.a_name, row.b_name) if name is not None]
    return names[0] if len(set(names)) == 1 else " → ".join(names)


def _counted(kernels: Sequence[KernelChange]) -> str:
    """``3 faster, 2 only in B``: most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in Counter(map(state, kernels)).most_common())
