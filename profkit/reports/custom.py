"""Answers of a workspace's own analyzers, as terminal and page show them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markupsafe import Markup

from profkit.analyzers.custom import Answered, Cell, Column, Figure, Lines, Table

from .inline import asset, joined_scripts, plotly_script, template
from .payload import embed
from .units import MINUS

UNKNOWN = "unknown"
COLOURS = ("#4A80D9", "#E69F00", "#12A192", "#B574E0", "#E2463A", "#8D95A3", "#0E5A33", "#C9275F")
BLOCKS = "▁▂▃▄▅▆▇█"
NO_VALUE = "·"
HEIGHT = 340
MARGIN = 0.06
"""Of a logarithmic axis, before its first and behind its last place."""

SCRIPTS = ("format.js", "payload.js", "tables.js", "charts.js", "widgets.js", "answers_page.js")


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure as the page shows it: under ``key`` in its data, with the name, colour and dash of each series."""

    key: str
    figure: Figure

    @property
    def legend(self) -> list[tuple[str, str, bool]]:
        """Name, colour, and whether it is a reference, of each series."""
        return [(one.name, colour_of(place), one.reference) for place, one in enumerate(self.figure.series)]


@dataclass(frozen=True, slots=True)
class Section:
    """An answer as a section of the page."""

    id: str
    answered: Answered
    charts: tuple[Chart, ...]


def sections(answers: Sequence[Answered]) -> list[Section]:
    """The sections of ``answers``, in their order."""
    return [
        Section(
            f"answer-{number}",
            answered,
            tuple(Chart(f"answer-{number}-{place}", figure) for place, figure in enumerate(answered.answer.figures)),
        )
        for number, answered in enumerate(answers)
    ]


def answer_charts(shown: Sequence[Section]) -> dict[str, dict[str, Any]]:
    """The charts of all sections by key, as Plotly takes them."""
    return {chart.key: plotly_chart(chart.figure) for section in shown for chart in section.charts}


def render_answers(answers: Sequence[Answered]) -> str:
    """A page of answers alone, for throughput tables without a recording."""
    shown = sections(answers)
    text: str = template("answers_page.html.j2").render(
        sections=shown,
        cell=cell,
        is_text=is_text,
        title=", ".join(dict.fromkeys(section.answered.of or "" for section in shown)),
        data=embed({"charts": answer_charts(shown)}),
        plotly=Markup(plotly_script()),
        script=Markup(joined_scripts(SCRIPTS)),
        style=Markup(asset("page.css")),
    )
    return text


def heading(column: Column) -> str:
    """The head of a column, with its unit."""
    return f"{column.name}, {column.unit}" if column.unit else column.name


def cell(value: Cell, column: Column) -> str:
    """A cell in words: a number with its column's digits, ``unknown`` for ``None``."""
    if value is None or isinstance(value, str):
        return UNKNOWN if value is None else value
    return f"{value:,.{column.digits}f}".replace("-", MINUS)


def is_text(table: Table, place: int) -> bool:
    """Whether a column holds words, which stand on the left; numbers stand on the right."""
    known = [row[place] for row in table.rows if row[place] is not None]
    return bool(known) and all(isinstance(value, str) for value in known)


def spark_lines(figure: Figure) -> Iterator[tuple[str, str, str]]:
    """For each series its name, a block for each place on one scale from 0, and its lowest and highest value."""
    known = [abs(value) for series in figure.series for value in series.values if value is not None]
    top = max(known, default=0.0) or 1.0
    for series in figure.series:
        values = [value for value in series.values if value is not None]
        bounds = f"{min(values):.3g} … {max(values):.3g}".replace("-", MINUS) if values else UNKNOWN
        yield series.name, " ".join(_block(value, top) for value in series.values), bounds


def _block(value: float | None, top: float) -> str:
    if value is None:
        return NO_VALUE
    return BLOCKS[round(max(value, 0.0) / top * (len(BLOCKS) - 1))]


def colour_of(place: int) -> str:
    """The colour of a figure's series by its place."""
    return COLOURS[place % len(COLOURS)]


def plotly_chart(figure: Figure) -> dict[str, Any]:
    """``figure`` as data and layout; nothing of its words is taken for markup."""
    layout: dict[str, Any] = {
        "barmode": "group", "bargap": 0.24, "height": HEIGHT, "margin": {"l": 60, "r": 16, "t": 8, "b": 48},
        "showlegend": False, "hovermode": "closest",
        "xaxis": {
            "title": {"text": escape(figure.x_title, quote=False), "standoff": 8}, "zeroline": False,
            "tickmode": "array", "ticktext": [escape(label, quote=False) for label in figure.labels],
            "tickvals": list(_places(figure)), **_scale(figure),
        },
        "yaxis": {
            "title": {"text": escape(figure.y_title, quote=False)}, "rangemode": "tozero", "zeroline": True,
            "fixedrange": True, "automargin": True,
        },
    }  # fmt: skip
    return {"data": [_trace(figure, place) for place in range(len(figure.series))], "layout": layout}


def _places(figure: Figure) -> tuple[float, ...]:
    return figure.places if isinstance(figure, Lines) else tuple(range(len(figure.x)))


def _scale(figure: Figure) -> dict[str, Any]:
    """The kind of the axis: one place after the other, or numbers of which each doubling is as long as any other."""
    if not (isinstance(figure, Lines) and figure.log2):
        return {"type": "category"}
    low, high = math.log10(figure.places[0]), math.log10(figure.places[-1])
    edge = MARGIN * (high - low) or 1.0
    return {"type": "log", "range": [low - edge, high + edge], "tickangle": 0}


def _trace(figure: Figure, place: int) -> dict[str, Any]:
    series, colour = figure.series[place], colour_of(place)
    name = escape(series.name, quote=False)
    trace: dict[str, Any] = {
        "name": name,
        "x": list(_places(figure)),
        "y": list(series.values),
        "text": [
            f"{name}<br>{escape(label, quote=False)}: <b>{'' if value is None else f'{value:.4g}'}</b>"
            for label, value in zip(figure.labels, series.values, strict=True)
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }
    if figure.kind == "bars":
        return {**trace, "type": "bar", "textposition": "none", "marker": {"color": colour}}
    line = {"color": colour, "width": 2, "dash": "dash" if series.reference else "solid"}
    return {**trace, "type": "scatter", "mode": "lines" if series.reference else "lines+markers", "line": line,
            "marker": {"size": 7, "color": colour}, "connectgaps": False}  # fmt: skip
