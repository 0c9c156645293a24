"""A comparison as one self-contained HTML file: waterfall, differential flame graph, both steps' timelines, tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from profkit.analyzers.diff.compare import tokens_of
from profkit.analyzers.diff.devices import device_of
from profkit.analyzers.diff.flame import ONLY, DiffFlame, diff_flame
from profkit.analyzers.diff.result import Diff, PairDiff
from profkit.analyzers.diff.side import Side
from profkit.analyzers.timeline import StepTimeline, typical_step

from . import diff_cells as cells
from . import figures as charts
from .diff_figures import longest, waterfall
from .inline import asset, joined_scripts, template
from .legend import CLASSES, PARTS, PHASES, SKEW, TRANSFER, Entry
from .payload import Embedded, embed, timeline_columns, words
from .units import FIXED, sentence

SCRIPTS = ("format.js", "payload.js", "flame.js", "flame_view.js", "diff_flame.js", "timeline.js", "timeline_view.js",
           "tables.js", "charts.js", "widgets.js", "diff_page.js")  # fmt: skip

TARGET = Entry(
    PHASES["verify"].colour, "target", "The target model's forward: verify on one side, decode on the other."
)

REST = Entry(
    PHASES["step_other"].colour, "rest", "Accept, KV append and other work of a step: one side has them as one."
)
RANK_ROWS = {
    "wall": "wall time",
    "compute": "compute",
    "host": "host gaps",
    "waiting": "waiting in collectives",
    "transfer": "transfer in collectives",
}

TERMS = (
    ("change", "B minus A, per step of the slowest rank, or per accepted token. A token is a step over its tokens."),
    ("slowest rank", "Of ranks that are equally slow, but for a hair, the one for which the others wait."),
    ("95 %", "The interval that holds the true change in 95 of 100 such recordings, by block bootstrap over steps."),
    ("longer, shorter", "More than noise: among all rows of a table together, the chance of a false alarm is 5 %."),
    ("maybe", "The row's own interval leaves out 0, but among so many rows that may be chance."),
    ("within noise", "Steps of one recording differ by as much among themselves."),
    ("not tested", "There are too few steps, or none, to tell a change from noise."),
    ("new, gone", "Only B, or only A, spends time there."),
    ("faster, slower", "A kernel at the same place of the step takes less, or more, time: more than noise."),
    ("more often, less often", "The number of calls explains the change of their sum, and the time of one does not."),
    ("waits more, waits less", "More than half of a collective's change is waiting for the last rank."),
    ("replaced", "Another kernel stands at the same place of the step."),
    ("only in A, only in B", "No kernel stands at the same place of the other's step."),
    ("36 × 47.7 µs", "Below the sum of a kernel's durations: how often it runs, and how long one call takes."),
)

BOTH = ONLY.index("both")

NUMBER = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s|%)(?!\w))")
"""The space between a number and its unit, at which no line may end."""

OPTION = re.compile(r"--[a-z-]+(?: (?:step|token))?")


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
    def whole(self) -> bool:
        """Whether whole recordings are compared, for want of decode steps."""
        return self.pair.window == "recording"

    @property
    def unit(self) -> str:
        """What times are of: ``per step``, ``of the whole recording``."""
        return "of the whole recording" if self.whole else f"per {cells.unit_of(self.pair)}"

    @property
    def compared(self) -> bool:
        """Whether tables have anything to show: not of what cannot be compared, nor of a recording with itself."""
        return self.pair.total is not None and not self.pair.comparable.identical

    @property
    def tested(self) -> bool:
        """Whether changes could be told from noise."""
        return cells.tested(self.pair)


def render_diff_page(found: Diff, pairs: Sequence[tuple[Side, Side]]) -> str:
    """The HTML page of ``found``; ``pairs`` are the recordings of its pairs, in the same order."""
    views = [View(index, pair) for index, pair in enumerate(found.pairs)]
    text: str = template("diff_page.html.j2").render(
        found=found,
        views=views,
        title=f"{found.a} → {found.b}" + (f" and {len(views) - 1} more" if len(views) > 1 else ""),
        data=_data(views, pairs),
        script=Markup(joined_scripts(SCRIPTS)),
        style=Markup(asset("page.css") + asset("waterfall.css") + asset("diff.css")),
        parts=PARTS,
        phases=PHASES,
        titles=PHASES | {"target": TARGET, "rest": REST},
        rank_rows=RANK_ROWS,
        classes=CLASSES,
        skew=SKEW,
        transfer=TRANSFER,
        terms=TERMS,
        cells=cells,
        tone=_tone,
        waterfall=waterfall,
        longest=longest,
        unbroken=_unbroken,
        prose=_prose,
        reason=_reason,
    )
    return text


def _tone(row: cells.Row) -> str:
    """How a change is coloured: by its direction, or as noise; not at all where nothing was tested."""
    if row.ci95_ns is None:
        return "untested"
    return cells.direction(row.delta_ns) if row.significant else "noise"


def _unbroken(text: str) -> str:
    return NUMBER.sub(FIXED, text)


def _prose(text: str) -> Markup:
    """Sentences in which figures and options stay on one line."""
    return Markup(OPTION.sub(r'<code class="word">\g<0></code>', str(escape(_unbroken(text)))))


def _reason(text: str) -> Markup:
    """A reason as a sentence; names of settings keep their letters."""
    return _prose(f"{text}." if "_" in text.split(" ")[0] else sentence(text))


def _data(views: Sequence[View], pairs: Sequence[tuple[Side, Side]]) -> Embedded:
    return embed(
        {
            "colours": {
                "classes": charts.colours(CLASSES), "parts": charts.colours(PARTS), "phases": charts.colours(PHASES),
            },
            "skew": SKEW.colour,
            "meanings": {name: entry.meaning for name, entry in PARTS.items()},
            "titles": {name: entry.title for name, entry in PARTS.items()},
            "pairs": [_pair_data(view, *both) for view, both in zip(views, pairs, strict=True)],
            "words": words(),
        }
    )  # fmt: skip


def _pair_data(view: View, a: Side, b: Side) -> dict[str, Any]:
    """Drawings of a pair, and the sections that have nothing to show of it."""
    timelines = _aligned(a, b, view.pair) if view.compared else None
    filled = {"parts": view.pair.parts, "ranks": view.pair.ranks, "kernels": view.pair.kernels, "timeline": timelines}
    empty = [name for name, content in filled.items() if not (view.compared and content)]
    return {
        "empty": empty if view.compared else ["waterfall", "flame", *empty],
        "flame": _flame_columns(diff_flame(a, b, tokens_of(a, b, view.pair.per))) if view.compared else None,
        "inferred": [side.cycle.phases_inferred for side in (a, b)],
        "timelines": timelines,
    }


def _flame_columns(flame: DiffFlame) -> dict[str, Any]:
    """The columns in whole nanoseconds; counts with a digit, as they are per step; ``only`` says ``a`` or ``b`` of
    frames that one side alone has.
    """
    return {
        "a": [round(ns) for ns in flame.a_ns.tolist()],
        "a_count": [round(count, 2) for count in flame.a_count.tolist()],
        "b": [round(ns) for ns in flame.b_ns.tolist()],
        "b_count": [round(count, 2) for count in flame.b_count.tolist()],
        "label": flame.label.tolist(),
        "level": flame.level.tolist(),
        "name": flame.name.tolist(),
        "only": ["" if place == BOTH else ONLY[place] for place in flame.only.tolist()],
        "parent": flame.parent.tolist(),
        "strings": list(flame.strings),
    }


def _aligned(a: Side, b: Side, pair: PairDiff) -> list[dict[str, Any]] | None:
    """Both typical steps on one scale, with the compared ranks' GPU work beginning at the same place."""
    steps = [typical_step(side.attribution) for side in (a, b)]
    if steps[0] is None or steps[1] is None:
        return None
    devices = [device_of(side, known.rank or 0) for side, known in zip((a, b), pair.sides, strict=True)]
    begins = [_begin(step, device) for step, device in zip(steps, devices, strict=True) if step is not None]
    columns = [timeline_columns(step) for step in steps if step is not None]
    for one, begin in zip(columns, begins, strict=True):
        later = max(begins) - begin
        one["start"] = [start + later for start in one["start"]]
        one["marks"] = [[device, first + later, last + later] for device, first, last in one["marks"]]
        one["span"] += later
    span = max(one["span"] for one in columns)
    return [one | {"span": span} for one in columns]


def _begin(step: StepTimeline, device: int | None) -> int:
    """When the GPU work of ``device`` begins; of any where that one does not take part."""
    marks = None if device is None else step.marks.get(device)
    return (marks or next(iter(step.marks.values())))[0]
