"""Modules of a model as tables and charts: by kind, and layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from profkit.analyzers.device_result import DeviceFigures, LayerTime
from profkit.analyzers.layers import FORWARDS
from profkit.analyzers.words import duration, share

from .legend import CLASSES, PHASES

MODELS = {"draft": "drafter", "verify": "target", "decode": "target"}
US = 1e-3
MOST_KINDS = 6
HEIGHT = 190


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A kind of module: times in nanoseconds per step, ``share`` of its phase; ``layers`` 0 for one outside of layers.

    ``per_layer`` is ``per_step`` over the layers that have one.
    """

    phase: str
    title: str
    layers: int
    per_step: float
    per_layer: float | None
    collective: float
    share: float


@dataclass(frozen=True, slots=True)
class LayerView:
    """What the page shows of one device: kinds by time, charts by phase, and each layer's nanoseconds per step."""

    rows: list[LayerRow]
    charts: dict[str, dict[str, Any]]
    layers: list[tuple[str, str, float, float]]
    borrowed: bool


def layer_view(figures: DeviceFigures) -> LayerView:
    """The modules of a device. ``layers`` holds phase, title, time, and the part of it in collectives."""
    steps = max(figures.steps, 1)
    return LayerView(
        rows=sorted(layer_rows(figures), key=lambda row: -row.per_step),
        charts=layer_charts(figures),
        layers=[
            (row.phase, _layer(row), row.sum_ns / steps, row.collective_ns / steps) for row in figures.layers.layers
        ],
        borrowed=figures.layers.borrowed,
    )


def _layer(row: LayerTime) -> str:
    if row.layer is None:
        return "outside of layers"
    return f"{row.stack} {row.layer}" if row.stack else f"layer {row.layer}"


def layer_rows(figures: DeviceFigures) -> list[LayerRow]:
    """The kinds of modules of a device by phase, dearest first."""
    steps = max(figures.steps, 1)
    whole = {phase: sum(row.sum_ns for row in figures.layers.kinds if row.phase == phase) for phase in FORWARDS}
    return [
        LayerRow(
            phase=row.phase,
            title=_title(row.kind, row.layers),
            layers=row.layers,
            per_step=row.sum_ns / steps,
            per_layer=row.sum_ns / steps / row.layers if row.layers else None,
            collective=row.collective_ns / steps,
            share=row.sum_ns / whole[row.phase] if whole[row.phase] else 0.0,
        )
        for row in figures.layers.kinds
    ]


def _title(kind: str | None, layers: int) -> str:
    if kind is None:
        return "no module known"
    if not layers:
        return kind
    return kind or "the layer itself"


def layer_table(figures: DeviceFigures, table: Table) -> Table:
    """Fill ``table`` (module, layers, per step, per layer, of it collectives, share) with the dearest kinds."""
    rows = layer_rows(figures)
    for phase in dict.fromkeys(row.phase for row in rows):
        mine = [row for row in rows if row.phase == phase]
        for row in mine[:MOST_KINDS]:
            _add(table, f"{phase}: {row.title}", row)
        rest = mine[MOST_KINDS:]
        if rest:
            total, exchange = sum(row.per_step for row in rest), sum(row.collective for row in rest)
            part = share(sum(row.share for row in rest), 1)
            table.add_row(f"{phase}: {len(rest)} more kinds", "", duration(total), "", _or_dash(exchange), part)
    return table


def _add(table: Table, title: str, row: LayerRow) -> None:
    per_layer = "" if row.per_layer is None else duration(row.per_layer)
    count = str(row.layers) if row.layers else ""
    table.add_row(title, count, duration(row.per_step), per_layer, _or_dash(row.collective), share(row.share, 1))


def _or_dash(ns: float) -> str:
    return duration(ns) if ns else "–"


def layer_charts(figures: DeviceFigures) -> dict[str, dict[str, Any]]:
    """A bar chart of microseconds per step over the layers, for each phase whose layers are known."""
    charts = {}
    for phase in FORWARDS:
        rows = [row for row in figures.layers.layers if row.phase == phase and row.layer is not None]
        if rows:
            charts[phase] = _chart(rows, phase, max(figures.steps, 1))
    return charts


def _chart(rows: Sequence[LayerTime], phase: str, steps: int) -> dict[str, Any]:
    layers = [f"{row.stack} {row.layer}" if row.stack else row.layer for row in rows]
    own = [(row.sum_ns - row.collective_ns) * US / steps for row in rows]
    exchange = [row.collective_ns * US / steps for row in rows]
    bars = [_bars("its own kernels", layers, own, PHASES[phase].colour)]
    if any(exchange):
        bars.append(_bars("collectives, waiting included", layers, exchange, CLASSES["collective"].colour))
    layout = {
        "barmode": "stack", "bargap": 0.2, "height": HEIGHT, "margin": {"l": 56, "r": 12, "t": 8, "b": 40},
        "showlegend": False, "hovermode": "x unified",
        "xaxis": {"title": {"text": f"layer of the {MODELS[phase]}", "standoff": 6}, "zeroline": False},
        "yaxis": {"title": {"text": "µs per step"}, "rangemode": "tozero", "zeroline": False, "fixedrange": True},
    }  # fmt: skip
    return {"data": bars, "layout": layout}


def _bars(name: str, layers: Sequence[str | int | None], values: list[float], colour: str) -> dict[str, Any]:
    return {
        "type": "bar", "name": name, "x": layers, "y": [round(value, 3) for value in values],
        "marker": {"color": colour}, "hovertemplate": "%{y:.1f} µs",
    }  # fmt: skip
