"""What recording costs, as terminal and page show it: a step and its parts without a recorder, beside the recorded."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.analyzers.inflation import grouped
from profkit.analyzers.inflation_recorders import JITTER, figure
from profkit.analyzers.inflation_result import Inflation, InflationPart, RecorderCheck, RecorderRow
from profkit.analyzers.result import TraceFigures
from profkit.analyzers.vocabulary import HOST_PARTS, PARTS
from profkit.analyzers.words import duration, listed, phase_name, range_of, share

from .graph_terminal import Block

GROUPS = {
    "host gaps": HOST_PARTS,
    "gaps inside graphs": ("gap_in_graph",),
    "queues": ("gap_queue", "gap_unknown"),
    "collectives": ("collective",),
    "copies": ("copy",),
    "kernels": ("compute",),
}
"""What the parts are called together in a sentence."""

TOLD = 0.01
"""Share of the step below which a part is not told on a terminal."""

FOLDED = 1.02
"""How many times as long a step must be in the recording for the page to show its parts without being asked."""


def inflation_line(trace: TraceFigures) -> str | None:
    """The step without a recorder, and what it is made of, in one sentence; ``None`` where nothing is known of it."""
    found = trace.inflation
    if found is None or found.recorded_ns is None:
        return None
    recorded = duration(found.recorded_ns)
    if found.unrecorded_ns is None and found.text:
        return f"{found.text[0].upper()}{found.text[1:]}."
    if found.unrecorded_ns is None:
        bound = found.at_most_ns
        if bound is None or bound >= found.recorded_ns:
            return None
        return f"Without a recorder a step takes at most {duration(bound)} instead of {recorded}, as throughput says."
    if found.unrecorded_ns == found.recorded_ns:
        return f"{found.text[0].upper()}{found.text[1:]}."
    step = f"{duration(found.unrecorded_ns)} ({range_of(found.low_ns, found.high_ns)}) instead of {recorded}"
    parts = [_said(row) for row in _groups(found)]
    return f"Without a recorder a step takes {step}{': ' if parts else ''}{', '.join(parts)}."


def _groups(found: Inflation) -> list[InflationPart]:
    rows = [grouped(found, names, title) for title, names in GROUPS.items()]
    return [row for row in rows if row is not None and row.recorded_ns >= TOLD * (found.recorded_ns or 0)]


def _said(row: InflationPart) -> str:
    unrecorded = duration(row.unrecorded_ns or 0)
    instead = "" if row.unrecorded_ns == row.recorded_ns else f" instead of {duration(row.recorded_ns)}"
    return f"{row.part} {unrecorded} ({range_of(row.low_ns, row.high_ns)}){instead}"


def unknown_line(traces: Sequence[TraceFigures]) -> str | None:
    """The one line on all recordings of which it is not known what recording cost, if there are any."""
    silent = [trace for trace in traces if trace.inflation and trace.inflation.unknown and not inflation_line(trace)]
    reasons = {trace.inflation.unknown for trace in silent if trace.inflation and trace.inflation.unknown}
    if not silent:
        return None
    which = "" if len(silent) == len(traces) else f" for {listed([trace.name for trace in silent])}"
    return f"What recording cost is unknown{which}: {listed(sorted(reasons))}."


def part_rows(found: Inflation) -> list[InflationPart]:
    """The parts of a step, all phases together, in their fixed order."""
    rows = (grouped(found, (name,), name) for name in PARTS)
    return [row for row in rows if row is not None]


def folded(found: Inflation) -> bool:
    """Whether recording costs too little for its parts to be shown without being asked for."""
    return found.ratio is None or found.ratio < FOLDED


def check_block(check: RecorderCheck, wide: bool) -> Block:
    """The check as a small table: the step, each phase's union, and parts that take a while; else only the spreads."""
    known = check.is_taken_out
    columns = ("", *(_columns(check.recorders, known) if wide else ("spread", "spread*")[: 1 + known]))
    shown = [row for row in check.rows if row.part in ("step", "union") or max(row.recorded_ns) >= _told(check)]
    rows = [(figure(row), *(_cells(row, known) if wide else _spreads(row)[: 1 + known])) for row in shown]
    for row in check.ops:
        counts = tuple(f"{count:,}" for count in row.ops) if wide else ()
        rows.append((f"{phase_name(row.phase)}, number of ops", *counts, "same" if row.same else "differ"))
    padded = tuple((*row, *[""] * (len(columns) - len(row))) for row in rows)
    which = f"Batch {check.batch_size} by {listed(list(check.recorders))}: ms per step, spreads in % of the figure"
    title = which if wide else "Spreads, % of the figure"
    notes = ("* after what recording costs is taken out, each recording by itself",) * known
    return Block(title, columns, padded, (*notes, f"differences below {share(JITTER, 1)} of a step are jitter"))


def _columns(recorders: Sequence[str], known: bool) -> tuple[str, ...]:
    recorded = (*recorders, "spread")
    return (*recorded, *(f"{name}*" for name in recorded)) if known else recorded


def _told(check: RecorderCheck) -> float:
    return TOLD * min(check.rows[0].recorded_ns)


def _cells(row: RecorderRow, known: bool) -> tuple[str, ...]:
    recorded = (*map(_ms, row.recorded_ns), share(row.recorded_spread, 1))
    if not known or row.unrecorded_ns is None or row.unrecorded_spread is None:
        return recorded
    return (*recorded, *map(_ms, row.unrecorded_ns), share(row.unrecorded_spread, 1))


def _spreads(row: RecorderRow) -> tuple[str, ...]:
    return tuple(share(one, 1) for one in (row.recorded_spread, row.unrecorded_spread) if one is not None)


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"
