"""The verdict of a sweep on a terminal: one row per concurrency, three sentences, and how far to trust them."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from profkit.analyzers.economics.result import Economics, Row
from profkit.analyzers.result import Analysis
from profkit.analyzers.words import duration, share
from profkit.traces import printable

from .verdict import sweeps_of, title_of

UNKNOWN = "unknown"
NARROW = 96
"""Below this width of the terminal the interval and the error are left out."""

COLUMNS = ("batch", "plain step", "cycle", "break-even", "95 %", "accept", "headroom", "predicted", "measured", "error")


def print_verdicts(console: Console, analysis: Analysis) -> None:
    """Print each pair of configurations that was compared over several concurrencies."""
    for found in sweeps_of(analysis):
        console.print()
        console.print(_table(found, console.width))
        for sentence in found.sentences:
            console.print(printable(sentence), markup=False, style="bold")
        console.print(printable(found.prediction), markup=False)
    console.print()


def _table(found: Economics, width: int) -> Table:
    title = printable(f"Does speculation pay? {title_of(found)}").replace("[", r"\[")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown = [place for place, name in enumerate(COLUMNS) if width >= NARROW or name not in ("95 %", "error")]
    for place in shown:
        table.add_column(COLUMNS[place], justify="right", no_wrap=True)
    for row in found.rows:
        cells = _cells(row)
        table.add_row(*(cells[place] for place in shown))
    return table


def _cells(row: Row) -> list[str]:
    interval = row.break_even_ci95
    return [
        str(row.batch_size),
        duration(row.plain.step_ns),
        duration(row.speculative.step_ns),
        f"{row.break_even:.2f}",
        f"{interval[0]:.2f}–{interval[1]:.2f}" if interval else UNKNOWN,
        _known(row.speculative.accept_len, ".2f"),
        _change(row.headroom_share),
        _known(row.predicted_speedup, ".2f"),
        _known(row.measured_speedup, ".2f"),
        _change(row.prediction_error),
    ]


def _known(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _change(value: float | None) -> str:
    return UNKNOWN if value is None else share(value, signed=True)
