"""Answers of a workspace's own analyzers, for a terminal."""

from __future__ import annotations

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from profkit.analyzers.custom import Answered, Figure
from profkit.analyzers.custom import Table as AnswerTable
from profkit.traces import printable

from .custom import cell, heading, is_text, spark_lines
from .prose import say
from .units import sentence

MOST_OF_A_WORD = 16
PADDING = 2


def print_answer(console: Console, answered: Answered) -> None:
    """The question, tables, figures as blocks, and last the sentences."""
    console.print()
    console.rule(Text(printable(answered.title), "bold"), align="left")
    say(console, " · ".join(filter(None, (answered.of, answered.file))))
    if answered.source:
        say(console, f"Source of the rates: {sentence(answered.source)}")
    if answered.note:
        say(console, f"Note: {sentence(answered.note)}")
    console.print()
    for shown in answered.answer.tables:
        # Rich makes a table without edges, whose columns it had to narrow, one character too wide.
        console.print(_filled(shown, console.width), width=console.width - 1, crop=False)
        console.print()
    for figure in answered.answer.figures:
        console.print(_blocks(figure))
        console.print()
    for said in answered.answer.sentences:
        say(console, said)


def _table(title: str) -> Table:
    return Table(title=Text(title, "bold"), title_justify="left", box=None, pad_edge=False, padding=(0, PADDING, 0, 0))


def _filled(shown: AnswerTable, width: int) -> Table:
    """Where it is too wide, words go to the next line; numbers stay whole, and if need be the table stays wide."""
    table = _table(shown.title)
    rows = [[cell(value, column) for value, column in zip(row, shown.columns, strict=True)] for row in shown.rows]
    needed = 0
    for place, column in enumerate(shown.columns):
        words = " ".join([heading(column), *(row[place] for row in rows)]).split()
        longest = min(max(map(len, words), default=1), MOST_OF_A_WORD)
        needed += longest + PADDING
        justify: JustifyMethod = "right" if place and not is_text(shown, place) else "left"
        table.add_column(Text(heading(column)), justify=justify, overflow="fold", min_width=longest)
    table.width = needed if needed > width else None
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _blocks(figure: Figure) -> Table:
    """A row of blocks for each series."""
    table = _table(f"{figure.title} ({figure.y_title} over {figure.x_title}: {', '.join(figure.labels)})")
    for place, head in enumerate(("", "from 0", "lowest … highest")):
        table.add_column(head, justify="right" if place == 2 else "left", overflow="fold")
    for row in spark_lines(figure):
        table.add_row(*map(Text, row))
    return table
