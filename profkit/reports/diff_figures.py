"""The waterfall of a comparison, as a plotly figure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from profkit.analyzers.diff.result import PairDiff, PartChange
from profkit.analyzers.diff.sentence import signed
from profkit.analyzers.words import duration

from .legend import PARTS

MOST = 10
LONGER, SHORTER, WHOLE = "#c5352b", "#2b62c5", "#7d8796"
ROOM = 0.08
PALE = "66"
"""Opacity of what is within noise, as the last two digits of a colour."""


@dataclass(frozen=True, slots=True)
class _Bar:
    """One row: from ``base``, ``length`` to the right or left, in nanoseconds."""

    label: str
    base: int
    length: int
    text: str
    colour: str


def waterfall_figure(pair: PairDiff) -> str:
    """From A's time through the largest changes, and the rest in one, to B's."""
    bars = _bars(pair)
    unit = "accepted token" if pair.per == "token" else "recording" if pair.window == "recording" else "step"
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(bars))),
        "base": [bar.base * 1e-6 for bar in bars],
        "x": [bar.length * 1e-6 for bar in bars],
        "text": [bar.text for bar in bars],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "marker": {"color": [bar.colour for bar in bars], "line": {"width": 0}},
    }
    layout: dict[str, Any] = {
        "height": 90 + 28 * len(bars),
        "margin": {"l": 8, "r": 96, "t": 8, "b": 44},
        "showlegend": False,
        "bargap": 0.3,
        "xaxis": {"title": {"text": f"ms per {unit}", "standoff": 10}, "zeroline": False, "range": _range(bars)},
        "yaxis": {
            "tickmode": "array", "tickvals": list(range(len(bars))), "ticktext": [f"{bar.label}  " for bar in bars],
            "autorange": "reversed", "automargin": True, "showgrid": False, "zeroline": False, "fixedrange": True,
        },
    }  # fmt: skip
    return _figure(trace, layout)


def _bars(pair: PairDiff) -> list[_Bar]:
    if pair.total is None:
        return []
    at = pair.total.a_ns
    bars = [_Bar("A", 0, at, duration(at), WHOLE)]
    for row in pair.parts[:MOST]:
        bars.append(_Bar(_label(row), at, row.delta_ns, signed(row.delta_ns), _colour(row.delta_ns, row.significant)))
        at += row.delta_ns
    rest = sum(row.delta_ns for row in pair.parts[MOST:])
    if pair.parts[MOST:]:
        known = any(row.significant for row in pair.parts[MOST:])
        label = f"{len(pair.parts) - MOST} smaller changes"
        bars.append(_Bar(label, at, rest, signed(rest), _colour(rest, known)))
    return [*bars, _Bar("B", 0, pair.total.b_ns, duration(pair.total.b_ns), WHOLE)]


def _range(bars: list[_Bar]) -> list[float]:
    """From a little left of 0, where the words of small bars stand, to the longest bar."""
    most = max(max(bar.base, bar.base + bar.length) for bar in bars) * 1e-6
    return [-ROOM * most, (1 + ROOM) * most]


def _label(row: PartChange) -> str:
    title = PARTS[row.part].title
    return f"{row.phase}: {title}" + (f", {row.kernel_class}" if row.kernel_class not in (None, row.part) else "")


def _colour(delta: int, significant: bool) -> str:
    return (LONGER if delta > 0 else SHORTER) + ("" if significant else PALE)


def _figure(trace: dict[str, Any], layout: dict[str, Any]) -> str:
    import plotly.graph_objects as go

    figure = go.Figure(data=[trace], layout={**layout, "template": None})
    return json.dumps(json.loads(figure.to_json()), sort_keys=True, separators=(",", ":"))
