"""Plotly figures from tables; colours of text, axes and background are left to the page's theme."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from profkit.analyzers.per_step import Budget, KindRow, PhaseCollectives
from profkit.analyzers.words import duration

from .legend import PARTS, PHASES, SKEW, TRANSFER, Entry
from .units import size

MS = 1e-6
BAR, ROOM = 26, 74
INFERRED = " (inferred)"
BAR_WIDTH = 0.72
"""Of the distance between two ranks, also where each group has one rank only."""

HATCH, PALE_HATCH = "rgba(255,255,255,0.55)", "rgba(70,45,0,0.42)"


@dataclass(slots=True)
class _Axis:
    """Rows of a bar chart from top to bottom: a heading for each trace, a bar for each rank."""

    places: list[float] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    headings: list[tuple[float, str]] = field(default_factory=list)
    next: float = 0.0

    @classmethod
    def of(cls, groups: Iterable[tuple[str, Sequence[str]]]) -> _Axis:
        axis = cls()
        for heading, labels in groups:
            if heading:
                axis.headings.append((axis.next, heading))
                axis.next += 0.8
            for label in labels:
                axis.places.append(axis.next)
                axis.labels.append(label)
                axis.next += 1.0
            axis.next += 0.35
        return axis

    def layout(self, title: str) -> dict[str, Any]:
        """The layout of a chart with this axis."""
        return {
            "barmode": "stack",
            "bargap": 0.28,
            "height": round(ROOM + BAR * self.next),
            "margin": {"l": 8, "r": 64, "t": 8, "b": 44},
            "showlegend": False,
            "hovermode": "closest",
            "xaxis": {"title": {"text": title, "standoff": 10}, "rangemode": "tozero", "zeroline": False},
            "yaxis": {
                "tickmode": "array",
                "tickvals": self.places,
                "ticktext": [label + "  " for label in self.labels],
                "range": [self.next - 0.35, -0.6],
                "automargin": True,
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
            },
            "annotations": [
                {
                    "x": 0, "y": place, "xref": "paper", "xanchor": "left", "yanchor": "middle", "showarrow": False,
                    "text": f"<b>{_plain(text)}</b>",
                }
                for place, text in self.headings
            ],
        }  # fmt: skip


def parts_figure(groups: Sequence[Sequence[Budget]]) -> str:
    """The budget of each rank by part, in ms per step, as a stacked bar; one group for each trace."""
    rows = [row for group in groups for row in group if row.wall is not None]
    axis = _budget_axis(groups)
    bars = []
    for part, entry in PARTS.items():
        values = [row.parts[part] for row in rows]
        if part == "collective":
            bars += _collective_bars(axis, rows)
        elif any(values):
            bars.append(_bar(entry.title, axis, values, entry.colour, hatched=part.startswith("gap_")))
    return _figure([*bars, _walls(axis, rows)], axis.layout("ms per step"))


def _collective_bars(axis: _Axis, rows: Sequence[Budget]) -> list[dict[str, Any]]:
    """The part ``collective``: waiting and transfer, or as a whole where the two cannot be told apart."""
    whole = [row.parts["collective"] if row.skew is None else row.unpaired for row in rows]
    bars = [
        (SKEW.title, [row.skew for row in rows], SKEW.colour, True),
        (TRANSFER.title, [row.transfer for row in rows], TRANSFER.colour, False),
        (PARTS["collective"].title, whole, PARTS["collective"].colour, False),
    ]
    return [
        _bar(title, axis, values, colour, hatched=hatched) for title, values, colour, hatched in bars if any(values)
    ]


def phases_figure(groups: Sequence[Sequence[Budget]]) -> str:
    """The budget of each rank by phase; what the GPU waits for a phase's next op is hatched."""
    rows = [row for group in groups for row in group if row.wall is not None]
    axis = _budget_axis(groups)
    bars = []
    for phase, entry in PHASES.items():
        splits = [row.phases.get(phase) for row in rows]
        mark = INFERRED if any(row.inferred for row in rows if phase in row.phases) else ""
        for waiting in (False, True):
            values = [None if split is None else split.waiting if waiting else split.busy for split in splits]
            if any(values):
                title = f"{entry.title}{mark}, {'GPU waits' if waiting else 'GPU busy'}"
                bars.append(_bar(title, axis, values, entry.colour, hatched=waiting))
    return _figure([*bars, _walls(axis, rows)], axis.layout("ms per step"))


def _budget_axis(groups: Sequence[Sequence[Budget]]) -> _Axis:
    known = [[row for row in group if row.wall is not None] for group in groups]
    return _Axis.of((group[0].trace, [f"rank {row.rank}" for row in group]) for group in known if group)


def skew_figure(rows: Sequence[PhaseCollectives]) -> str:
    """Waiting for the last rank, and transfer, by rank and phase; hatched where the two cannot be told apart."""
    ranks = sorted({row.rank for row in rows})
    ordered = [row for rank in ranks for row in rows if row.rank == rank]
    groups = [(f"rank {rank}", [PHASES[row.phase].title for row in rows if row.rank == rank]) for rank in ranks]
    axis = _Axis.of(groups)
    bars = [
        _bar(SKEW.title, axis, [row.skew for row in ordered], SKEW.colour, hatched=True),
        _bar(TRANSFER.title, axis, [row.transfer for row in ordered], TRANSFER.colour),
    ]
    unsplit = [row.total if row.skew is None else None for row in ordered]
    if any(unsplit):
        bars.append(_bar("skew and transfer, not told apart", axis, unsplit, "#9A9A9A", hatched=True))
    return _figure(bars, axis.layout("ms per step"))


def bandwidth_figure(rows: Sequence[KindRow], link: float | None) -> str:
    """Message size against bus bandwidth, one point for each kind, phase and size, and the link's limit."""
    known = [row for row in rows if row.kind.bytes and row.kind.bus_bandwidth]
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [row.kind.bytes for row in known],
        "y": [(row.kind.bus_bandwidth or 0.0) * 1e-9 for row in known],
        "marker": {"size": 10, "color": [PHASES[row.kind.phase].colour for row in known], "line": {"width": 1}},
        "text": [f"rank {row.rank}: {_plain(row.kind.kind)} in {row.kind.phase}" for row in known],
        "hovertemplate": "%{text}<br>%{x:,} bytes, %{y:.3~g} GB/s<extra></extra>",
    }
    layout: dict[str, Any] = {
        "height": 320,
        "margin": {"l": 8, "r": 24, "t": 16, "b": 48},
        "showlegend": False,
        "xaxis": {"title": {"text": "message size per rank"}, **_sizes([row.kind.bytes or 1 for row in known])},
        "yaxis": {"title": {"text": "bus bandwidth, GB/s"}, "rangemode": "tozero", "automargin": True},
    }
    if link:
        line = {"width": 2, "dash": "dash", "color": "#C9275F"}
        layout["shapes"] = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": link * 1e-9, "y1": link * 1e-9, "line": line}
        ]
        layout["annotations"] = [
            {
                "xref": "paper", "x": 1, "y": link * 1e-9, "yanchor": "bottom", "xanchor": "right", "showarrow": False,
                "text": f"link limit {link * 1e-9:.3g} GB/s",
            }
        ]  # fmt: skip
    return _figure([points], layout)


def _sizes(values: Sequence[int]) -> dict[str, Any]:
    """A logarithmic axis of sizes, labelled at powers of two."""
    low, high = math.log2(min(values)), math.log2(max(values))
    powers = range(math.floor(low), math.ceil(high) + 1, 1 if high - low < 8 else 2)
    return {
        "type": "log",
        "tickvals": [2**power for power in powers],
        "ticktext": [size(2**power) for power in powers],
        "range": [(low - 0.7) * math.log10(2), (high + 0.7) * math.log10(2)],
    }


def _bar(
    title: str, axis: _Axis, values: Sequence[float | None], colour: str, *, hatched: bool = False
) -> dict[str, Any]:
    marker: dict[str, Any] = {"color": colour, "line": {"width": 0}}
    if hatched:
        marker["pattern"] = {
            "shape": "/",
            "fgcolor": PALE_HATCH if Entry(colour, "", "").pale else HATCH,
            "size": 5,
            "solidity": 0.22,
        }
    return {
        "type": "bar",
        "orientation": "h",
        "name": title,
        "y": axis.places,
        "width": BAR_WIDTH,
        "x": [None if value is None else round(value * MS, 6) for value in values],
        "customdata": ["unknown" if value is None else duration(value) for value in values],
        "marker": marker,
        "hovertemplate": f"{_plain(title)}<br><b>%{{customdata}}</b> per step<extra></extra>",
    }


def _walls(axis: _Axis, rows: Sequence[Budget]) -> dict[str, Any]:
    """The wall time behind each bar."""
    return {
        "type": "scatter",
        "mode": "text",
        "name": "wall time",
        "x": [round((row.wall or 0.0) * MS, 6) for row in rows],
        "y": axis.places,
        "text": [f" {duration(row.wall or 0.0)}" for row in rows],
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _plain(text: str) -> str:
    """``text`` without anything that plotly takes for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("%{", "% {")


def _figure(traces: Sequence[dict[str, Any]], layout: dict[str, Any]) -> str:
    import plotly.graph_objects as go

    figure = go.Figure(data=list(traces), layout={**layout, "template": None})
    return json.dumps(json.loads(figure.to_json()), sort_keys=True, separators=(",", ":"))


def colours(entries: dict[str, Entry]) -> dict[str, str]:
    """The colour of each word."""
    return {name: entry.colour for name, entry in entries.items()}
