"""The analysis as compact tables for a terminal, ending in the sentence to act on."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from profkit.analyzers.analysis import prediction_in_words
from profkit.analyzers.custom import Answered
from profkit.analyzers.device_result import DeviceFigures
from profkit.analyzers.result import Analysis, TraceFigures
from profkit.analyzers.vocabulary import PARTS, PHASES
from profkit.analyzers.words import counted, duration, share, tokens
from profkit.traces import printable

from .counters import activity_block, link_line
from .custom_terminal import print_answer
from .graph_terminal import Block, graph_blocks
from .inflation import check_blocks, inflation_line, unknown_line
from .layers import layer_table
from .prose import in_folder, say
from .units import unknown_figures
from .verdict_terminal import print_answers, print_notes, print_untold, print_verdicts

UNKNOWN = "unknown"
MAX_RANKS = 8
BESIDE_RANKS, RANK = 41, 9
"""Characters of the widest table's other columns, and of a rank's."""

MODULES = ("module", "layers", "per step", "per layer", "in collectives", "of its phase")
MODULES_NARROW = ("\nmodule", "\nlayers", "per\nstep", "per\nlayer", "in\ncollectives", "of its\nphase")
"""Columns of the table of modules; on a narrow terminal with headings of two lines."""

MAX_CAUSES = 4
WIDE = 96


def render_terminal(analysis: Analysis, width: int | None = None, answers: Sequence[Answered] = ()) -> str:
    """All traces one after the other, what comparing them says, and what analyzers of the workspace answer.

    ``width`` in characters, else the terminal's.
    """
    out, console = _console(width)
    again = {name: check.traces[0] for check in analysis.recorder_checks for name in check.traces[1:]}
    for trace in analysis.traces:
        _trace(console, trace, again.get(trace.name))
    if len(analysis.traces) > 1:
        console.rule("[bold]side by side", align="left")
        console.print(_overview(analysis.traces, console.width))
    print_verdicts(console, analysis)
    print_untold(console, analysis)
    for saving in analysis.graph_savings:
        say(console, f"{saving.eager} → {saving.graphs}: {saving.text}.")
    if len(analysis.traces) > 1:
        console.print()
        for trace in analysis.traces:
            if trace.name not in again:
                say(console, f"{trace.name}: {trace.summary}")
    _recorders(console, analysis)
    print_notes(console, analysis)
    for answered in answers:
        print_answer(console, answered)
    return out.getvalue().strip()


def render_answers(analysis: Analysis, width: int | None = None) -> str:
    """In sentences alone: whether speculation pays, or where there is no pair, what holds each trace back."""
    out, console = _console(width)
    print_answers(console, analysis)
    return out.getvalue().strip()


def _console(width: int | None) -> tuple[io.StringIO, Console]:
    out = io.StringIO()
    shown = width or min(max(shutil.get_terminal_size((110, 24)).columns, 80), 140)
    return out, Console(file=out, width=shown, highlight=False)


def _recorders(console: Console, analysis: Analysis) -> None:
    """Whether several recorders of one run tell the same, and of which recordings it is not known what they cost."""
    for check in analysis.recorder_checks:
        console.print()
        for block in check_blocks(check, console.width):
            _block(console, block)
        say(console, f"{in_folder(check.traces)}: {check.text}.")
    if said := unknown_line(analysis.traces):
        console.print()
        say(console, said)


def _print(console: Console, table: Table) -> None:
    console.print(table)
    console.print()


def _trace(console: Console, trace: TraceFigures, like: str | None) -> None:
    """All tables of a recording; of one that another recorder made of the same run as ``like``, only what differs."""
    console.rule(f"[bold]{_plain(trace.name)}", align="left")
    say(console, _headline(trace))
    console.print()
    most = max(1, min(MAX_RANKS, (console.width - BESIDE_RANKS) // RANK))
    _budgets(console, trace, most)
    if said := inflation_line(trace):
        say(console, said)
        console.print()
    if trace.devices and not like:
        _print(console, _phases(trace))
    _counters(console, trace)
    if like:
        if said := link_line(_slowest(trace)) if trace.devices else None:
            say(console, said)
        say(console, f"Phases, graphs and modules as in {like}; its own: profkit analyze {trace.path or trace.name}")
        console.print()
    else:
        _exchange(console, trace, most)
        _own_graphs(console, trace, most)
        _modules(console, trace)
    _health(console, trace)
    _verdict(console, trace)
    console.print()


def _budgets(console: Console, trace: TraceFigures, most: int) -> None:
    stepping = [figures for figures in trace.devices.values() if figures.window is not None]
    if stepping and stepping[0].busy_union_ns is not None:
        _print(console, _budget(stepping[:most], _slowest(trace)))
        if len(stepping) > most:
            say(console, f"… and {len(stepping) - most} more ranks: see --json or the page")


def _counters(console: Console, trace: TraceFigures) -> None:
    which = f" of rank {_slowest(trace).rank}" if len(trace.devices) > 1 else ""
    if trace.devices and (block := activity_block(_slowest(trace), which)):
        _block(console, block)


def _exchange(console: Console, trace: TraceFigures, most: int) -> None:
    if any(figures.collectives.count for figures in trace.devices.values()):
        console.print(_collectives(trace, most))
        for line in _waits(trace):
            say(console, line)
        if said := link_line(_slowest(trace)):
            say(console, said)
        console.print()


def _own_graphs(console: Console, trace: TraceFigures, most: int) -> None:
    if any(graph.launches_per_step for graph in trace.graphs.values()):
        _print(console, _graphs(trace, most))
    _graph_coverage(console, trace)
    if trace.with_graphs is not None:
        say(console, f"What if: {prediction_in_words(trace.with_graphs) or trace.with_graphs.unknown}.")
        console.print()


def _modules(console: Console, trace: TraceFigures) -> None:
    if trace.devices and _slowest(trace).layers.kinds:
        columns = MODULES if console.width >= WIDE else MODULES_NARROW
        table = _table(f"GPU time by module, rank {_slowest(trace).rank}", *columns)
        table.columns[0].overflow, table.columns[0].no_wrap = "fold", False
        _print(console, layer_table(_slowest(trace), table))


def _plain(text: str) -> str:
    return printable(text).replace("[", r"\[")


def _headline(trace: TraceFigures) -> str:
    cycle, source = trace.cycle, trace.provenance
    said = [f"{source.tool} {source.tool_version}".strip() or trace.source]
    if cycle.kind:
        said.append(f"{cycle.kind} decoding")
    if cycle.batch_size is not None:
        said.append(f"batch {cycle.batch_size}")
    if cycle.steps:
        said.append(counted(cycle.steps, "step"))
    if cycle.period_ns_median is not None:
        said.append(f"{duration(cycle.period_ns_median)} from step to step (median, slowest rank)")
    if cycle.us_per_token is not None:
        said.append(f"{cycle.us_per_token:,.0f} µs per token at accept length {tokens(cycle.accept_len or 1)}")
    return " · ".join(said)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
    return table


def _words_left(table: Table) -> Table:
    """``table`` with its columns of words on the left, as they are read."""
    for column in table.columns[1:]:
        known = [str(cell) for cell in column.cells if cell not in ("", "–", UNKNOWN)]
        if known and all(cell[0].isalpha() for cell in known):
            column.justify = "left"
    return table


def _ms(ns: float | None, steps: int = 1) -> str:
    return UNKNOWN if ns is None else f"{ns / max(steps, 1) / 1e6:,.3f}"


def _budget(devices: Sequence[DeviceFigures], slowest: DeviceFigures) -> Table:
    whose = f"share of rank {slowest.rank}" if len(devices) > 1 else "share"
    table = _table("Where a step goes, mean in ms", "part", *(f"rank {d.rank}" for d in devices), whose)
    for part in PARTS:
        if any(d.partition_ns[part] for d in devices):
            table.add_row(
                part,
                *(_ms(d.partition_ns[part], d.steps) for d in devices),
                share(slowest.partition_ns[part] or 0, slowest.window.wall_ns if slowest.window else 1),
            )
    walls = [_ms(d.window.wall_ns if d.window else None, d.steps) for d in devices]
    table.add_row("[bold]wall", *(f"[bold]{wall}" for wall in walls), "[bold]100 %")
    return table


def _slowest(trace: TraceFigures) -> DeviceFigures:
    """The rank that the cycle is of."""
    devices = list(trace.devices.values())
    return next((figures for figures in devices if figures.rank == trace.cycle.rank), devices[0])


def _phases(trace: TraceFigures) -> Table:
    """GPU time by phase of one rank: the slowest, or the first where there are no steps."""
    shown = _slowest(trace)
    which = f" of rank {shown.rank}" if len(trace.devices) > 1 else ""
    inferred = "; phases are inferred" if trace.cycle.phases_inferred else ""
    table = _table(
        f"GPU time by phase{which} over the whole recording, ms{inferred}",
        "phase", "ops", "sum", "union", "first to last", "collectives", "in graphs",
    )  # fmt: skip
    for phase in PHASES:
        found = shown.phases.get(phase)
        if found:
            table.add_row(
                phase,
                f"{found.ops:,}",
                *(_ms(ns) for ns in (found.sum_ns, found.union_ns, found.span_ns, found.collective_union_ns)),
                share(found.graph_ops, found.ops) if found.graph_ops else "–",
            )
    return table


def _collectives(trace: TraceFigures, most: int) -> Table:
    shown = [figures for figures in trace.devices.values() if figures.collectives.count][:most]
    table = _table("Collectives of the decode steps, ms per step", "", *(f"rank {d.rank}" for d in shown))
    table.add_row("collectives per step", *(f"{d.collectives.count / max(d.steps, 1):.0f}" for d in shown))
    for name, field in (
        ("sum", "sum_ns"),
        ("exposed", "exposed_ns"),
        ("waiting for the last rank (skew)", "skew_ns"),
        ("transfer", "transfer_ns"),
    ):
        table.add_row(name, *(_ms(getattr(d.collectives, field), d.steps) for d in shown))
    return table


def _waits(trace: TraceFigures) -> Iterator[str]:
    """What each rank waits for most, in words."""
    for figures in list(trace.devices.values())[:MAX_RANKS]:
        dearest = max(figures.collectives.waits, key=lambda wait: wait.ns, default=None)
        if dearest:
            ns = duration(dearest.ns / max(figures.steps, 1))
            where = f"rank {dearest.rank}'s {dearest.part} in {dearest.phase}"
            yield f"rank {figures.rank} waits mostly for {where}: {ns} per step"


def _graphs(trace: TraceFigures, most: int) -> Table:
    shown = list(trace.graphs.items())[:most]
    table = _table(
        "CUDA graphs of the decode steps", "", *(f"rank {trace.devices[device].rank}" for device, _ in shown)
    )
    graphs = [graph for _, graph in shown]
    table.add_row("graph launches per step", *(f"{g.launches_per_step or 0:.1f}" for g in graphs))
    for phase in dict.fromkeys(phase for graph in graphs for phase in graph.nodes_per_launch):
        table.add_row(
            f"kernels and copies per launch, {phase}", *(f"{g.nodes_per_launch.get(phase, 0):,}" for g in graphs)
        )
    table.add_row("ops outside graphs per step", *(f"{g.ops_outside_graphs_per_step or 0:.0f}" for g in graphs))
    for phase in dict.fromkeys(phase for graph in graphs for phase in graph.nodes_per_launch):
        calls = [graph.phases[phase].launch_call_ns_median if phase in graph.phases else None for graph in graphs]
        table.add_row(f"launch call, {phase}, median", *("–" if ns is None else duration(ns) for ns in calls))
    return table


def _graph_coverage(console: Console, trace: TraceFigures) -> None:
    """What runs in graphs and what does not, of the slowest rank."""
    for block in graph_blocks(trace, _slowest(trace), console.width >= WIDE) if trace.devices else ():
        _block(console, block)


def _block(console: Console, block: Block) -> None:
    if block.rows:
        say(console, block.title, "bold")
        table = _table("", *map(_plain, block.columns))
        table.title = None
        for row in block.rows:
            table.add_row(*map(_plain, row))
        console.print(_words_left(table))
    for line in block.lines:
        say(console, line)
    console.print()


def _health(console: Console, trace: TraceFigures) -> None:
    for check in trace.health.checks:
        if check.status != "ok":
            mark, spoiled = "!" if check.status == "warn" else "✗", unknown_figures(check.detail, check.spoils)
            say(console, f"{mark} {check.id.replace('_', ' ')}: {check.detail}. {spoiled}".rstrip())
            console.print()


def _verdict(console: Console, trace: TraceFigures) -> None:
    if trace.verdict:
        table = _table("What holds the step back", "cause", "rank", "phase", "per step")
        for cause in trace.verdict[:MAX_CAUSES]:
            rank = "all" if cause.rank is None else str(cause.rank)
            table.add_row(cause.cause, rank, cause.phase or "–", duration(cause.ns_per_step))
        _print(console, _words_left(table))
    say(console, trace.summary, "bold")


def _overview(traces: Sequence[TraceFigures], width: int) -> Table:
    """One row per recording, without columns that no recording fills, and without the cause on a narrow terminal.

    "–" stands for what a recording has none of.
    """
    step = "median step" if width >= WIDE else "step"
    columns = ("recording", "batch", step, "draft", "verify", "decode", "µs/token", "tokens/s", "first cause")
    rows = [_overview_row(trace) for trace in traces]
    empty = {"tokens/s": UNKNOWN}
    kept = [at for at, name in enumerate(columns) if any(row[at] != empty.get(name, "–") for row in rows)]
    kept = kept if width >= WIDE else [place for place in kept if columns[place] != "first cause"]
    table = _table("", *(columns[place] for place in kept))
    table.show_header, table.title = True, None
    table.columns[0].overflow, table.columns[0].no_wrap = "fold", False
    for row in rows:
        table.add_row(*(row[place] for place in kept))
    for column, place in zip(table.columns[1:], kept[1:], strict=True):
        column.min_width = max(len(columns[place]), *(len(row[place]) for row in rows))
    return _words_left(table)


def _overview_row(trace: TraceFigures) -> list[str]:
    cycle, rate = trace.cycle, trace.provenance.tokens_per_s
    phases = [cycle.phase_ns_median.get(phase) for phase in ("draft", "verify", "decode")]
    return [
        _plain(trace.name),
        str(cycle.batch_size if cycle.batch_size is not None else UNKNOWN),
        duration(cycle.period_ns_median) if cycle.period_ns_median is not None else UNKNOWN,
        *(duration(ns) if ns else "–" for ns in phases),
        f"{cycle.us_per_token:,.0f}" if cycle.us_per_token is not None else UNKNOWN,
        f"{rate:,.0f}" if rate is not None else UNKNOWN,
        trace.verdict[0].cause if trace.verdict else "–",
    ]
