"""A comparison as compact tables for a terminal, ending in one sentence."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from profkit.analyzers.diff.result import Change, Diff, Judgement, PairDiff
from profkit.analyzers.diff.sentence import signed
from profkit.analyzers.words import duration
from profkit.traces import printable

from .diff_cells import (
    NOISE,
    NOTHING,
    Row,
    change,
    interval,
    part_and_class,
    ranks_of,
    relative,
    steps_of,
    tested,
    unit_of,
    unpaired_sentence,
    verdict,
)
from .diff_terminal_kernels import print_kernels
from .prose import say

MOST_PARTS = 10
RANK_COLUMNS = {
    "wall": "wall time",
    "compute": "compute",
    "host": "host gaps",
    "waiting": "waiting",
    "transfer": "transfer",
}
WIDE = 108
"""From so many characters on there is room for intervals; ``--json`` and the page always have them."""


def render_diff(diff: Diff, width: int | None = None) -> str:
    """All pairs one after the other, and a table of them all. ``width`` in characters, else the terminal's."""
    out = io.StringIO()
    columns = width or min(max(shutil.get_terminal_size((110, 24)).columns, 80), 140)
    console = Console(file=out, width=columns, highlight=False)
    common = _common_reasons(diff.pairs)
    if common:
        say(console, "Of every pair:")
        _reasons(console, diff.pairs, common)
        console.print()
    for pair in diff.pairs:
        _pair(console, pair, common)
    if len(diff.pairs) > 1:
        console.rule("[bold]all pairs", align="left")
        console.print(_overview(diff.pairs, columns))
        console.print()
    if diff.unpaired:
        say(console, f"! {unpaired_sentence(diff.unpaired)}")
    for pair in diff.pairs:
        prefix = f"{pair.a} → {pair.b}: " if len(diff.pairs) > 1 else ""
        say(console, f"{prefix}{pair.summary}", "bold")
    return out.getvalue().rstrip()


def _common_reasons(pairs: Sequence[PairDiff]) -> tuple[str, ...]:
    """What is said once, as it holds for each of several pairs."""
    if len(pairs) < 2:
        return ()
    first, *others = (pair.comparable.reasons for pair in pairs)
    return tuple(reason for reason in first if all(reason in reasons for reasons in others))


def _plain(text: str) -> str:
    return printable(text).replace("[", r"\[")


def _pair(console: Console, pair: PairDiff, common: Sequence[str]) -> None:
    """One pair: what was compared, with which doubts, and the tables; no tables of a recording with itself."""
    console.rule(f"[bold]{_plain(pair.a)} → {_plain(pair.b)}", align="left")
    if not pair.comparable.identical:
        say(console, _headline(pair))
        _reasons(console, [pair], [reason for reason in pair.comparable.reasons if reason not in common])
    if pair.total is not None and not pair.comparable.identical:
        console.print()
        console.print(_parts(pair, pair.total, console.width))
        console.print()
        if len(pair.ranks) > 1:
            console.print(_ranks(pair, console.width))
            console.print()
        if pair.kernels:
            print_kernels(console, pair)
    for judgement in pair.limits:
        say(console, _judged(judgement))
    console.print()


def _reasons(console: Console, pairs: Sequence[PairDiff], reasons: Sequence[str]) -> None:
    mark = "✗" if all(pair.comparable.status == "no" for pair in pairs) else "!"
    for reason in reasons:
        say(console, f"{mark} {reason}.")


def _headline(pair: PairDiff) -> str:
    if pair.total is None:
        return steps_of(pair)
    untested = "" if tested(pair) else " · not tested against noise"
    if pair.window == "recording":
        return f"whole recordings · {ranks_of(pair, 'longest')}{untested}"
    return f"{steps_of(pair)} · per {unit_of(pair)} · {ranks_of(pair, 'slowest')}{untested}"


def _table(title: str | None, columns: Sequence[str], left: int) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right", no_wrap=True)
    return table


def _figures(row: Row) -> list[str]:
    times = [duration(row.a_ns), duration(row.b_ns), change(row), relative(row)]
    return [*times, interval(row), verdict(row)]


def _parts(pair: PairDiff, total: Change, width: int) -> Table:
    """The ten largest changes, and the rest in one row: together they are the total's."""
    shown = [row for row in pair.parts if row.delta_ns][:MOST_PARTS]
    rest = pair.parts[len(shown) :]
    columns = ("phase", "part", "A", "B", "change", "", "95 %", "")
    narrow = width < WIDE
    kept = [0, 1, 2, 3, 4, 5, *([6] if not narrow else []), 7] if tested(pair) else [0, 1, 2, 3, 4, 5]
    table = _table("The largest changes", [columns[place] for place in kept], left=2)
    if narrow:
        table.padding = (0, 1, 0, 0)

    def add(style: str, *cells: str) -> None:
        table.add_row(*(_short(cells[place]) if narrow else cells[place] for place in kept), style=style)

    for row in shown:
        pale = "dim" if tested(pair) and not row.significant else ""
        add(pale, row.phase, part_and_class(row.part, row.kernel_class), *_figures(row))
    if rest:
        sums = [sum(getattr(row, name) for row in rest) for name in ("a_ns", "b_ns", "delta_ns")]
        add("", f"{len(rest)} more", "", duration(sums[0]), duration(sums[1]), signed(sums[2]), "", "", "")
    add("bold", "total", "", *_figures(total))
    return table


def _ranks(pair: PairDiff, width: int) -> Table:
    """A row for each rank that both have: changes, or that they are no more than noise."""
    first = pair.ranks[0]
    columns = [name for name in RANK_COLUMNS if getattr(first, name) is not None]
    table = _table(f"Ranks, change per {unit_of(pair)}", ["rank", *(RANK_COLUMNS[name] for name in columns)], left=1)
    if width < WIDE:
        table.padding = (0, 1, 0, 0)
    for row in pair.ranks:
        changes: list[Change] = [getattr(row, name) for name in columns]
        table.add_row(str(row.rank), *map(_rank_cell, changes))
    return table


def _rank_cell(row: Change) -> str:
    return change(row) if row.ci95_ns is None or row.significant else "noise"


def _short(text: str) -> str:
    """A verdict where room is scarce: the sign of the change says its direction."""
    return "noise" if text == NOISE else "maybe" if text.startswith("maybe ") else text


def _judged(judgement: Judgement) -> str:
    judged = {
        "exceeded": "✗ exceeded",
        "noise": "· beyond it, but within noise",
        "unknown": "✗ not known to hold",
        "held": "✓ held",
    }[judgement.status]
    told = f"{judged}: {judgement.limit}"
    if judgement.change.a_ns or judgement.change.b_ns:
        told += f", the change is {change(judgement.change)} ({relative(judgement.change)})"
    return f"{told}; {judgement.note}" if judgement.note else told


def _overview(pairs: Sequence[PairDiff], width: int) -> Table:
    """A row for each pair; long names are folded, figures never cut."""
    columns = ("A", "B", "concurrency", "A takes", "B takes", "change", "", "95 %", "")
    dropped = (2, 7) if width < WIDE else (2,) if width < WIDE + 12 else ()
    kept = [place for place in range(len(columns)) if place not in dropped]
    table = _table(None, [columns[place] for place in kept], left=2)
    for column in table.columns[:2]:
        column.no_wrap, column.overflow = False, "fold"
    for pair in pairs:
        concurrency = [str(side.concurrency) if side.concurrency is not None else NOTHING for side in pair.sides]
        shown = concurrency[0] if concurrency[0] == concurrency[1] else " → ".join(concurrency)
        cells = [_plain(pair.a), _plain(pair.b), shown, *_total(pair)]
        table.add_row(*(_short(cells[place]) if width < WIDE else cells[place] for place in kept))
    return table


def _total(pair: PairDiff) -> list[str]:
    if pair.total is None:
        return [NOTHING] * 5 + ["not comparable"]
    return [*_figures(pair.total)[:5], "same recording"] if pair.comparable.identical else _figures(pair.total)
