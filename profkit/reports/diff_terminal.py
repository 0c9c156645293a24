"""A comparison as compact tables for a terminal, ending in one sentence."""

from __future__ import annotations

import io
import shutil
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from profkit.analyzers.diff.result import Change, Diff, Interval, Judgement, KernelChange, PairDiff, PartChange, State
from profkit.analyzers.diff.sentence import signed
from profkit.analyzers.words import duration
from profkit.traces import printable

MOST_PARTS, MOST_KERNELS, BESIDE_NAME = 10, 6, 72
WIDE = 108
UNKNOWN = "unknown"
NOISE = "within noise"
ORDER: tuple[State, ...] = ("same", "faster", "slower", "replaced", "new", "gone")


def render_diff(diff: Diff, width: int | None = None) -> str:
    """All pairs one after the other, and a table of them all. ``width`` in characters, else the terminal's."""
    out = io.StringIO()
    columns = width or min(max(shutil.get_terminal_size((110, 24)).columns, 80), 140)
    console = Console(file=out, width=columns, highlight=False)
    for pair in diff.pairs:
        _pair(console, pair, several=len(diff.pairs) > 1)
    if len(diff.pairs) > 1:
        console.rule("[bold]all pairs", align="left")
        console.print(_overview(diff.pairs))
        console.print()
    for name in diff.unpaired:
        _line(console, f"! {name} has no partner of the same concurrency.")
    for pair in diff.pairs:
        prefix = f"{pair.a} → {pair.b}: " if len(diff.pairs) > 1 else ""
        console.print(printable(f"{prefix}{pair.summary}"), markup=False, style="bold")
    return out.getvalue().rstrip()


def _line(console: Console, text: str) -> None:
    console.print(printable(text), markup=False)


def _plain(text: str) -> str:
    return printable(text).replace("[", r"\[")


def _pair(console: Console, pair: PairDiff, several: bool) -> None:
    console.rule(f"[bold]{_plain(pair.a)} → {_plain(pair.b)}", align="left")
    _line(console, _headline(pair))
    mark = "✗" if pair.comparable.status == "no" else "!"
    for reason in pair.comparable.reasons:
        _line(console, f"{mark} {reason}.")
    console.print()
    if pair.total is None:
        return
    console.print(_parts(pair, pair.total, console.width))
    console.print()
    if pair.kernels:
        _kernels(console, pair.kernels)
    for judgement in pair.limits:
        _line(console, _judged(judgement))
    if pair.limits:
        console.print()


def _headline(pair: PairDiff) -> str:
    a, b = pair.sides
    if pair.window == "recording":
        return f"whole recordings · the longest ranks: {a.rank} and {b.rank}"
    slowest = f"slowest rank: {a.rank}" if a.rank == b.rank else f"slowest ranks: {a.rank} and {b.rank}"
    return f"{a.steps} and {b.steps} steps · per {'accepted token' if pair.per == 'token' else 'step'} · {slowest}"


def _table(title: str, *columns: str, left: int = 1) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right", no_wrap=True, overflow="ellipsis")
    return table


def _interval(interval: Interval | None) -> str:
    return UNKNOWN if interval is None else f"{signed(interval[0])} … {signed(interval[1])}"


def _percent(row: Change | PartChange | KernelChange) -> str:
    return f"{100 * row.delta_ns / row.a_ns:+.1f} %".replace("-", "−") if row.a_ns else "new" if row.b_ns else "–"


def _verdict(row: Change | PartChange | KernelChange) -> str:
    if row.ci95_ns is None:
        return UNKNOWN
    if not row.significant and row.ci95_ns[0] <= 0 <= row.ci95_ns[1]:
        return NOISE
    # Among so many rows, one whose own interval leaves out 0 may still be chance.
    return ("" if row.significant else "maybe ") + ("longer" if row.delta_ns > 0 else "shorter")


def _figures(row: Change | PartChange | KernelChange) -> list[str]:
    times = [duration(row.a_ns), duration(row.b_ns), signed(row.delta_ns), _percent(row)]
    return [*times, _interval(row.ci95_ns), _verdict(row)]


def _parts(pair: PairDiff, total: Change, width: int) -> Table:
    """The ten largest changes, and the rest in one row: together they are the total's.

    A narrow terminal has no room for the class and the interval; ``--json`` and the page have both.
    """
    shown, rest = pair.parts[:MOST_PARTS], pair.parts[MOST_PARTS:]
    columns = ("phase", "part", "class", "A", "B", "change", "", "95 %", "")
    kept = [place for place in range(len(columns)) if width >= WIDE or place not in (2, 7)]
    table = _table("The changes that matter", *(columns[place] for place in kept), left=3 if width >= WIDE else 2)

    def add(style: str, *cells: str) -> None:
        table.add_row(*(cells[place] for place in kept), style=style)

    for row in shown:
        add("" if row.significant else "dim", row.phase, row.part, row.kernel_class or "–", *_figures(row))
    if rest:
        sums = [sum(getattr(row, name) for row in rest) for name in ("a_ns", "b_ns", "delta_ns")]
        add("", f"{len(rest)} more", "", "", duration(sums[0]), duration(sums[1]), signed(sums[2]), "", "", "")
    add("bold", "total", "", "", *_figures(total))
    return table


def _kernels(console: Console, kernels: Sequence[KernelChange]) -> None:
    """The largest changes of kernels that are no noise, and how many groups of kernels there are of each state."""
    changed = [row for row in kernels if row.state != "same" and (row.significant or row.ci95_ns is None)]
    if changed:
        table = _table("Kernels, sums of durations", "", "phase", "kernel", "×", "A", "B", "change", "", left=3)
        for row in changed[:MOST_KERNELS]:
            count = f"{row.a_count:.4g}" if row.a_count == row.b_count else f"{row.a_count:.3g} → {row.b_count:.3g}"
            times = [duration(row.a_ns), duration(row.b_ns), signed(row.delta_ns), _percent(row)]
            name = _shortened(_kernel_name(row), console.width - BESIDE_NAME)
            table.add_row(row.state, row.phase, _plain(name), count, *times)
        console.print(table)
    _line(console, _counted(kernels))
    console.print()


def _kernel_name(row: KernelChange) -> str:
    names = [name for name in (row.a_name, row.b_name) if name is not None]
    return names[0] if len(set(names)) == 1 else " → ".join(names)


def _shortened(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 1]}…"


def _counted(kernels: Sequence[KernelChange]) -> str:
    counts = Counter(row.state for row in kernels)
    return "Groups of kernels: " + ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])


def _judged(judgement: Judgement) -> str:
    change = judgement.change
    grown = f"{signed(change.delta_ns)}" + (f" ({judgement.percent:+.1f} %)" if judgement.percent is not None else "")
    verdict = {
        "exceeded": "✗ exceeded",
        "noise": "· beyond it, but within noise",
        "unknown": "✗ beyond it, and noise is unknown",
        "held": "✓ held",
    }[judgement.status]
    return f"{verdict}: {judgement.limit}, the change is {grown}"


def _overview(pairs: Sequence[PairDiff]) -> Table:
    table = _table("", "A", "B", "concurrency", "A takes", "B takes", "change", "", "95 %", "", left=2)
    table.title = None
    for pair in pairs:
        concurrency = [str(side.concurrency) if side.concurrency is not None else "–" for side in pair.sides]
        shown = concurrency[0] if concurrency[0] == concurrency[1] else " → ".join(concurrency)
        figures = _figures(pair.total) if pair.total else [UNKNOWN] * 5 + ["not comparable"]
        table.add_row(_plain(pair.a), _plain(pair.b), shown, *figures)
    return table
