"""What recording costs, as terminal and page show it: a step and its parts without a recorder, beside the recorded."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.analyzers.inflation import grouped
from profkit.analyzers.inflation_recorders import AGREEMENT, JITTER, figure
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
"""Share of the step below which a part is not told on a terminal, unless recorders differ in it."""

DIFFERS = f"differs by more than {100 * AGREEMENT:g} % of the figure"
"""What the mark ``!`` beside a figure says."""

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


def lengthened(found: Inflation) -> bool:
    """Whether it can be told that recording made the step longer, and how long it is without."""
    recorded, unrecorded = found.recorded_ns, found.unrecorded_ns
    return recorded is not None and unrecorded is not None and unrecorded < recorded


def told_rows(check: RecorderCheck) -> list[RecorderRow]:
    """The step, each phase's union, parts that take a while, and whatever differs; the rest is told only if asked."""
    return [row for row in check.rows if row.part in ("step", "union") or row.differs or _takes_a_while(row, check)]


def check_blocks(check: RecorderCheck, width: int) -> tuple[Block, ...]:
    """The check as a small table of the rows that are told.

    What recording costs is taken out in more columns where a line of ``width`` holds them, else in a second table.
    """
    rows = told_rows(check)
    names = [("",), *((figure(row),) for row in rows), *((_number_of(one.phase),) for one in check.ops)]
    recorded = _recorded(check, rows)
    marks = [("",), *(("!" if row.differs else "",) for row in rows)] if any(row.differs for row in rows) else []
    note = (f"! {DIFFERS}",) * bool(marks)
    notes = (*note, f"differences below {share(JITTER, 1)} of a step are jitter")
    which = f"Batch {check.batch_size} by {listed(list(check.recorders))}"
    title = f"{which}: ms per step, spreads in % of the figure"
    if not check.is_taken_out:
        return (_table(title, notes, names, recorded, marks),)
    without = _unrecorded(check, rows)
    starred = [tuple(f"{name}*" for name in without[0]), *without[1:]]
    stars = "* after what recording costs is taken out, each recording by itself"
    whole = _table(title, (stars, *notes), names, recorded, starred, marks)
    if _width(whole) <= width:
        return (whole,)
    second = f"{which}, without what recording costs: ms per step"
    return _table(title, (), names, recorded), _table(second, notes, names[: len(without)], without, marks)


def _takes_a_while(row: RecorderRow, check: RecorderCheck) -> bool:
    return max(row.recorded_ns) >= TOLD * min(check.rows[0].recorded_ns)


def _number_of(phase: str) -> str:
    return f"{phase_name(phase)}, number of ops"


def _recorded(check: RecorderCheck, rows: Sequence[RecorderRow]) -> list[tuple[str, ...]]:
    """Columns under their heads: figures as recorded, and numbers of ops."""
    figures = [(*map(_ms, row.recorded_ns), share(row.recorded_spread, 1)) for row in rows]
    ops = [(*(f"{count:,}" for count in row.ops), "same" if row.same else "differ") for row in check.ops]
    return [(*check.recorders, "spread"), *figures, *ops]


def _unrecorded(check: RecorderCheck, rows: Sequence[RecorderRow]) -> list[tuple[str, ...]]:
    """Columns under their heads: figures after inflation is taken out."""
    figures = [(*map(_ms, row.unrecorded_ns or ()), share(row.unrecorded_spread or 0.0, 1)) for row in rows]
    return [(*check.recorders, "spread"), *figures]


def _table(title: str, notes: tuple[str, ...], *columns: Sequence[tuple[str, ...]]) -> Block:
    """Groups of columns side by side, each a head and its rows; those that have fewer rows end in empty cells."""
    most = max(map(len, columns))
    padded = [[*group, *[("",) * len(group[0])] * (most - len(group))] for group in columns if group]
    head, *rows = (tuple(cell for part in line for cell in part) for line in zip(*padded, strict=True))
    return Block(title, head, tuple(rows), notes)


def _width(block: Block) -> int:
    """The characters of a line, with two between columns."""
    columns = list(zip(block.columns, *block.rows, strict=True))
    return sum(max(map(len, column)) for column in columns) + 2 * (len(columns) - 1)


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"
