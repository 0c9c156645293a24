"""A comparison as one self-contained HTML file: waterfall, differential flame graph, both steps' timelines, tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from profkit.analyzers.diff.compare import tokens_of
from profkit.analyzers.diff.flame import DiffFlame, diff_flame
from profkit.analyzers.diff.result import Change, Diff, KernelChange, PairDiff, PartChange
from profkit.analyzers.diff.sentence import signed
from profkit.analyzers.diff.side import Side
from profkit.analyzers.timeline import StepTimeline, typical_step

from . import figures as charts
from .diff_figures import waterfall_figure
from .inline import asset, joined_scripts, plotly_script, template
from .legend import CLASSES, PARTS, PHASES, SKEW, TRANSFER
from .payload import Embedded, embed, timeline_columns, words

SCRIPTS = ("format.js", "payload.js", "flame.js", "flame_view.js", "diff_flame.js", "timeline.js", "timeline_view.js",
           "tables.js", "charts.js", "widgets.js", "diff_page.js")  # fmt: skip

TERMS = (
    ("change", "B minus A, per step of the slowest rank, or per accepted token. A token is a step over its tokens."),
    ("95 %", "The interval that holds the true change in 95 of 100 such recordings, by block bootstrap over steps."),
    ("longer, shorter", "More than noise: among all rows of a table together, the chance of a false alarm is 5 %."),
    ("maybe", "The row's own interval leaves out 0, but among so many rows that may be chance."),
    ("within noise", "Steps of one recording differ by as much among themselves."),
    ("replaced", "Another kernel stands at the same place of the step."),
    ("new, gone", "Nothing stands at its place in the other step."),
)

Row = Change | PartChange | KernelChange


@dataclass(frozen=True, slots=True)
class View:
    """One pair as the page shows it."""

    index: int
    pair: PairDiff

    @property
    def name(self) -> str:
        """What the pair's tab says."""
        a, b = (side.concurrency for side in self.pair.sides)
        return f"concurrency {a}" if a is not None and a == b else f"{self.pair.a} → {self.pair.b}"

    @property
    def unit(self) -> str:
        """What times are of."""
        if self.pair.window == "recording":
            return "whole recording"
        return "per accepted token" if self.pair.per == "token" else "per step"


def render_diff_page(found: Diff, pairs: Sequence[tuple[Side, Side]]) -> str:
    """The HTML page of ``found``; ``pairs`` are the recordings of its pairs, in the same order."""
    views = [View(index, pair) for index, pair in enumerate(found.pairs)]
    text: str = template("diff_page.html.j2").render(
        found=found,
        views=views,
        title=f"{found.a} → {found.b}" + (f" and {len(views) - 1} more" if len(views) > 1 else ""),
        data=_data(views, pairs),
        plotly=Markup(plotly_script()),
        script=Markup(joined_scripts(SCRIPTS)),
        style=Markup(asset("page.css") + asset("diff.css")),
        parts=PARTS,
        phases=PHASES,
        classes=CLASSES,
        skew=SKEW,
        transfer=TRANSFER,
        terms=TERMS,
        signed=signed,
        interval=_interval,
        direction=_direction,
        judgement=_judgement,
    )
    return text


def _interval(row: Row) -> str:
    return "unknown" if row.ci95_ns is None else f"{signed(row.ci95_ns[0])} … {signed(row.ci95_ns[1])}"


def _sure(row: Row) -> bool:
    """Whether the row's own interval leaves out 0."""
    return row.ci95_ns is not None and not row.ci95_ns[0] <= 0 <= row.ci95_ns[1]


def _direction(row: Row) -> str:
    return "noise" if not row.significant else "longer" if row.delta_ns > 0 else "shorter"


def _judgement(row: Row) -> str:
    if not _sure(row):
        return "within noise"
    return ("" if row.significant else "maybe ") + ("longer" if row.delta_ns > 0 else "shorter")


def _data(views: Sequence[View], pairs: Sequence[tuple[Side, Side]]) -> Embedded:
    shown = [view for view in views if view.pair.total is not None]
    return embed(
        {
            "charts": {f"waterfall-{view.index}": json.loads(waterfall_figure(view.pair)) for view in shown},
            "colours": {
                "classes": charts.colours(CLASSES), "parts": charts.colours(PARTS), "phases": charts.colours(PHASES),
            },
            "skew": SKEW.colour,
            "meanings": {name: entry.meaning for name, entry in PARTS.items()},
            "titles": {name: entry.title for name, entry in PARTS.items()},
            "pairs": [_pair_data(view.pair, *both) for view, both in zip(views, pairs, strict=True)],
            "words": words(),
        }
    )  # fmt: skip


def _pair_data(pair: PairDiff, a: Side, b: Side) -> dict[str, Any]:
    compared = pair.total is not None
    return {
        "flame": _flame_columns(diff_flame(a, b, tokens_of(a, b, pair.per))) if compared else None,
        "inferred": [side.cycle.phases_inferred for side in (a, b)],
        "timelines": _aligned(a, b) if compared else None,
    }


def _flame_columns(flame: DiffFlame) -> dict[str, Any]:
    """The columns in whole nanoseconds; counts with a digit, as they are per step."""
    return {
        "a": [round(ns) for ns in flame.a_ns.tolist()],
        "a_count": [round(count, 2) for count in flame.a_count.tolist()],
        "b": [round(ns) for ns in flame.b_ns.tolist()],
        "b_count": [round(count, 2) for count in flame.b_count.tolist()],
        "label": flame.label.tolist(),
        "level": flame.level.tolist(),
        "name": flame.name.tolist(),
        "parent": flame.parent.tolist(),
        "strings": list(flame.strings),
    }


def _aligned(a: Side, b: Side) -> list[dict[str, Any]] | None:
    """Both typical steps on one scale, with the slowest ranks' GPU work beginning at the same place."""
    steps = [typical_step(side.attribution) for side in (a, b)]
    if steps[0] is None or steps[1] is None:
        return None
    begins = [_begin(step, side) for step, side in zip(steps, (a, b), strict=True) if step is not None]
    columns = [timeline_columns(step) for step in steps if step is not None]
    for one, begin in zip(columns, begins, strict=True):
        later = max(begins) - begin
        one["start"] = [start + later for start in one["start"]]
        one["marks"] = [[device, first + later, last + later] for device, first, last in one["marks"]]
        one["span"] += later
    span = max(one["span"] for one in columns)
    return [one | {"span": span} for one in columns]


def _begin(step: StepTimeline, side: Side) -> int:
    """When the GPU work of the slowest rank begins; of any rank where that one does not take part."""
    marks = step.marks.get(side.slowest()) or next(iter(step.marks.values()))
    return marks[0]
