"""The graphs of one rank as text, in short: what runs inside and outside of them, and what the host waits for.

The page and ``--json`` have all rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from profkit.analyzers.device_result import DeviceFigures
from profkit.analyzers.graph_result import GraphFigures
from profkit.analyzers.graph_words import boundary
from profkit.analyzers.result import TraceFigures
from profkit.analyzers.shortnames import short_name
from profkit.analyzers.words import duration

from .units import sentence

UNKNOWN = "unknown"
MAX_OUTSIDE = 5
MAX_SYNCS = 6
MIN_BLOCKED = 0.01
"""Share of the step for which the GPU idles behind blocking calls, below which they are not shown."""

NAME, RANGE = 30, 20
VERSION = re.compile(r"_v\d+$")


@dataclass(frozen=True, slots=True)
class Block:
    """A small table, and lines behind it."""

    title: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()


def graph_blocks(trace: TraceFigures, device: DeviceFigures, wide: bool) -> Iterator[Block]:
    """The blocks for ``device``; where no graph is launched, only what there is to say without one."""
    graphs = next(trace.graphs[name] for name, figures in trace.devices.items() if figures is device)
    if not device.steps or not graphs.phases:
        return
    which = f" of rank {device.rank}" if len(trace.devices) > 1 else ""
    if graphs.launches_per_step:
        yield _phases(graphs, device.steps, which, wide)
        yield _outside(graphs, device.steps, which, wide)
    if graphs.boundaries:
        yield _boundaries(graphs, which)
    if _blocks(graphs, device):
        yield _synchronisations(graphs, device.steps, which, wide)
    yield Block(lines=tuple(sentence(finding) for finding in graphs.findings))


def _blocks(graphs: GraphFigures, device: DeviceFigures) -> bool:
    """Whether the device idles behind blocking calls for a while, or nobody knows for how long."""
    idle = [row.gap_sync_ns for row in graphs.synchronisations]
    known = sum(ns for ns in idle if ns is not None)
    return None in idle or known >= max(MIN_BLOCKED * (device.window.wall_ns if device.window else 0), 1)


def _phases(graphs: GraphFigures, steps: int, which: str, wide: bool) -> Block:
    columns = ("phase", "in graphs", "GPU time", "outside", "GPU time", "launch call", "idle inside", "start-up")
    rows = [
        (
            name,
            _count(phase.ops_in_graphs, steps),
            _time(phase.in_graphs_ns, steps) if phase.ops_in_graphs != 0 else "–",
            _count(phase.ops_outside, steps),
            _time(phase.outside_ns, steps) if phase.ops_outside else "–",
            "–" if phase.launches == 0 else _time(phase.launch_call_ns_median),
            "–" if phase.launches == 0 else _time(phase.gap_in_graph_ns, steps),
            "–" if phase.launches == 0 else _time(phase.first_op_after_free_ns_median),
        )
        for name, phase in graphs.phases.items()
    ]
    kept = len(columns) if wide else len(columns) - 1
    line = "launch call: the host's time in one, median"
    lines = (f"{line}; start-up: from a free GPU to the first op" if wide else line,)
    return Block(f"In graphs and outside{which}, per step", columns[:kept], tuple(row[:kept] for row in rows), lines)


def _outside(graphs: GraphFigures, steps: int, which: str, wide: bool) -> Block:
    shown = graphs.outside[:MAX_OUTSIDE]
    rows = [
        (
            short_name(row.name)[:NAME],
            row.phase,
            *(((row.range or "–")[:RANGE],) if wide else ()),
            _count(row.ops, steps),
            _time(row.gpu_ns, steps),
            _time(row.host_ns, steps),
        )
        for row in shown
    ]
    more = len(graphs.outside) - len(shown)
    where = ("range",) if wide else ()
    return Block(
        f"What stays outside of graphs{which}, per step",
        ("kernel or copy", "phase", *where, "ops", "GPU time", "launch calls"),
        tuple(rows),
        (f"… and {more} more kinds: see --json or the page",) if more else (),
    )


def _boundaries(graphs: GraphFigures, which: str) -> Block:
    rows = [
        (
            boundary(row),
            UNKNOWN if row.launch_lead_ns_median is None else duration(row.launch_lead_ns_median),
            UNKNOWN if row.run_ahead_share is None else f"{row.run_ahead_share:.0%}".replace("%", " %"),
        )
        for row in graphs.boundaries
    ]
    return Block(f"Whether the host{which} is ahead", ("from … to", "launch lead, median", "host ahead"), tuple(rows))


def _synchronisations(graphs: GraphFigures, steps: int, which: str, wide: bool) -> Block:
    shown = graphs.synchronisations[:MAX_SYNCS]
    rows = [
        (
            VERSION.sub("", row.api),
            boundary(row),
            *(((row.range or "–")[:RANGE],) if wide else ()),
            _count(row.calls, steps),
            _time(row.host_ns, steps),
            _time(row.gap_sync_ns, steps),
        )
        for row in shown
    ]
    more = len(graphs.synchronisations) - len(shown)
    return Block(
        f"Blocking calls of the host{which}, per step",
        ("call", "between", *(("range",) if wide else ()), "calls", "host blocked", "GPU idle"),
        tuple(rows),
        (f"… and {more} more: see --json or the page",) if more else (),
    )


def _count(total: int | None, steps: int) -> str:
    if total is None:
        return UNKNOWN
    return f"{total // steps:,}" if total % steps == 0 else f"{total / steps:,.1f}"


def _time(total: int | None, steps: int = 1) -> str:
    return UNKNOWN if total is None else duration(total / steps)
