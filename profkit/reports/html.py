"""The report as one self-contained HTML file: no network, no fonts, all assets inline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from profkit.analyzers.attribution import Attribution
from profkit.analyzers.custom import Answered
from profkit.analyzers.cycle import slowest_device
from profkit.analyzers.device_result import DeviceFigures
from profkit.analyzers.diff.sentence import signed
from profkit.analyzers.flame import gpu_flame, host_flame
from profkit.analyzers.inflation_parts import HOST_SHARE
from profkit.analyzers.inflation_recorders import JITTER, figure
from profkit.analyzers.per_step import (
    Budget,
    KernelRow,
    KindRow,
    PhaseCollectives,
    WaitRow,
    budgets,
    collectives_by_phase,
    kernels_per_step,
    kinds_per_step,
    waits_per_step,
)
from profkit.analyzers.result import Analysis, TraceFigures
from profkit.analyzers.timeline import StepTimeline, typical_step
from profkit.analyzers.unpaired import in_one_line
from profkit.analyzers.words import phase_name

from . import figures as charts
from .counters import activity_table, every, link_title, rates, shares, shown_links
from .custom import answer_charts, cell, is_text, sections
from .diff_figures import longest
from .inflation import DIFFERS, folded, lengthened, part_rows, told_rows
from .inline import asset, joined_scripts, plotly_script, template
from .layers import MODELS, LayerView, layer_view
from .legend import CLASSES, GRAPH_ROWS, PARTS, PHASES, SKEW, TERMS, TRANSFER, Entry
from .payload import Embedded, embed, flame_columns, timeline_columns, words
from .savings import TITLES as SAVINGS
from .savings import phase_cells, saving_bars
from .tabs import chosen_by_sweep, tabs
from .verdict import outcome_of, untold_comparisons, untold_gains, verdict_views

SCRIPTS = ("format.js", "payload.js", "flame.js", "flame_view.js", "timeline.js", "timeline_tracks.js",
           "timeline_view.js", "tables.js", "charts.js", "widgets.js", "page.js")  # fmt: skip
UNEVEN = 4


@dataclass(frozen=True, slots=True)
class View:
    """One trace as the page shows it."""

    index: int
    figures: TraceFigures
    budgets: list[Budget]
    slowest: Budget | None
    by_phase: list[PhaseCollectives]
    kinds: list[KindRow]
    waits: list[WaitRow]
    kernels: dict[str, list[KernelRow]]
    timeline: StepTimeline | None
    layers: dict[str, LayerView]

    @property
    def devices(self) -> list[tuple[str, DeviceFigures]]:
        """The devices by rank."""
        return sorted(self.figures.devices.items(), key=lambda item: item[1].rank)

    @property
    def inferred(self) -> bool:
        """Whether the phases were told from structure."""
        return self.figures.cycle.phases_inferred

    def reason(self, figure: str) -> str:
        """Why ``figure`` is unknown, as the health checks say."""
        checks = self.figures.health.checks
        spoiled = [check for check in checks if any(figure in name or name == "all" for name in check.spoils)]
        failed = spoiled or [check for check in checks if check.status == "abstain"]
        return failed[0].detail if failed else "the recording does not tell"


def render_report(
    results: Sequence[tuple[TraceFigures, Attribution]], analysis: Analysis, answers: Sequence[Answered] = ()
) -> str:
    """The HTML page for ``results``, traces in the order given; ``analysis`` adds the comparisons between them, and
    ``answers`` what analyzers of the workspace say.
    """
    views = [_view(index, figures, attribution) for index, (figures, attribution) in enumerate(results)]
    text: str = template("page.html.j2").render(
        views=views,
        analysis=analysis,
        title=_title(views),
        data=_data(results, views, answers),
        sections=sections(answers),
        cell=cell,
        is_text=is_text,
        plotly=Markup(plotly_script()),
        script=Markup(joined_scripts(SCRIPTS)),
        style=Markup(asset("page.css") + asset("waterfall.css") + asset("verdict.css")),
        parts=PARTS,
        phases=PHASES,
        classes=CLASSES,
        terms=TERMS,
        graph_rows=GRAPH_ROWS,
        skew=SKEW,
        transfer=TRANSFER,
        pieces=_pieces,
        used_parts=_used(views, "parts"),
        used_phases=_used(views, "phases"),
        uneven=_uneven(views),
        models=MODELS,
        saving_bars=saving_bars,
        saving_titles=SAVINGS,
        phase_cells=phase_cells,
        longest=longest,
        signed=signed,
        inflation_parts=part_rows,
        inflation_folded=folded,
        lengthened=lengthened,
        host_share=HOST_SHARE,
        jitter=JITTER,
        phase_name=phase_name,
        recorder_figure=figure,
        told_rows=told_rows,
        differs=DIFFERS,
        verdicts=verdict_views(analysis),
        untold=untold_comparisons(analysis),
        untold_gains=untold_gains(analysis),
        unpaired=in_one_line(analysis.unpaired),
        outcome_of=outcome_of,
        shown_links=shown_links,
        link_title=link_title,
        link_rates=rates,
        link_shares=shares,
        activity_table=activity_table,
        tabs=tabs([view.figures.name for view in views]),
        chosen_by_sweep=chosen_by_sweep([view.figures.name for view in views]),
        every=every,
    )
    return text


def _view(index: int, figures: TraceFigures, attribution: Attribution) -> View:
    rows = budgets(figures, attribution)
    slowest = slowest_device(attribution)
    devices = sorted(figures.devices.values(), key=lambda device: device.rank)
    return View(
        index=index,
        figures=figures,
        budgets=rows,
        slowest=next((row for row in rows if row.device == str(slowest) and row.wall is not None), None),
        by_phase=[row for device in devices for row in collectives_by_phase(device)],
        kinds=[row for device in devices for row in kinds_per_step(device)],
        waits=waits_per_step(figures),
        kernels={name: kernels_per_step(device) for name, device in figures.devices.items()},
        timeline=typical_step(attribution),
        layers={name: layer_view(device) for name, device in figures.devices.items() if device.layers.kinds},
    )


def _title(views: Sequence[View]) -> str:
    names = [view.figures.name for view in views]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _used(views: Sequence[View], kind: str) -> list[str]:
    """The parts or phases that take any time, in their fixed order."""
    order = PARTS if kind == "parts" else PHASES
    used = {name for view in views for row in view.budgets for name, value in getattr(row, kind).items() if value}
    return [name for name in order if name in used]


def _pieces(budget: Budget) -> list[tuple[Entry, bool, float]]:
    """What a step is made of: how it is shown, whether the GPU waits, and nanoseconds; waiting in collectives too."""
    pieces: list[tuple[Entry, bool, float | None]] = []
    for part, entry in PARTS.items():
        if part == "collective" and budget.skew is not None:
            pieces += [(SKEW, True, budget.skew), (TRANSFER, False, budget.transfer), (entry, False, budget.unpaired)]
        else:
            pieces.append((entry, part.startswith("gap_"), budget.parts[part]))
    return [(entry, waits, value) for entry, waits, value in pieces if value]


def _uneven(views: Sequence[View]) -> bool:
    """Whether steps differ so much in length that only shares can be compared on one axis."""
    walls = [row.wall for view in views for row in view.budgets if row.wall]
    return bool(walls) and max(walls) > UNEVEN * min(walls)


def _data(
    results: Sequence[tuple[TraceFigures, Attribution]], views: Sequence[View], answers: Sequence[Answered]
) -> Embedded:
    groups = [view.budgets for view in views]
    plots = {"parts": charts.parts_figure(groups), "phases": charts.phases_figure(groups)}
    for view in views:
        for device, own in view.layers.items():
            plots |= {f"layers-{view.index}-{device}-{phase}": json.dumps(chart) for phase, chart in own.charts.items()}
        if view.by_phase:
            plots[f"skew-{view.index}"] = charts.skew_figure(view.by_phase)
        if any(row.kind.bytes and row.kind.bus_bandwidth for row in view.kinds):
            plots[f"bandwidth-{view.index}"] = charts.bandwidth_figure(view.kinds, _link(results[view.index][1]))
    return embed(
        {
            "charts": {name: json.loads(plot) for name, plot in plots.items()} | answer_charts(sections(answers)),
            "colours": {
                "classes": charts.colours(CLASSES), "parts": charts.colours(PARTS), "phases": charts.colours(PHASES),
            },
            "skew": SKEW.colour,
            "meanings": {name: entry.meaning for name, entry in PARTS.items()},
            "titles": {name: entry.title for name, entry in PARTS.items()},
            "traces": [_trace_data(view, attribution) for view, (_, attribution) in zip(views, results, strict=True)],
            "words": words(),
        }
    )  # fmt: skip


def _trace_data(view: View, attribution: Attribution) -> dict[str, Any]:
    flames = {}
    for name, _ in view.devices:
        gpu, host = gpu_flame(attribution, int(name)), host_flame(attribution, int(name))
        flames[name] = {"gpu": flame_columns(gpu), "host": flame_columns(host)}
    return {
        "flames": flames,
        "inferred": view.inferred,
        "name": view.figures.name,
        "ranks": {name: device.rank for name, device in view.devices},
        "timeline": timeline_columns(view.timeline) if view.timeline else None,
    }


def _link(attribution: Attribution) -> float | None:
    """The slowest link's limit, in bytes per second."""
    return min((device.link_bandwidth for device in attribution.trace.devices if device.link_bandwidth), default=None)
