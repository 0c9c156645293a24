"""One configuration, batch size and graph mode by several recorders: do they tell the same, inflation taken out?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import structs

from .eager_to_graphs import launched_eagerly
from .inflation_result import Inflation, InflationPart, RecorderCheck, RecorderOps, RecorderRow
from .result import TraceFigures, one_name, sweep_of
from .vocabulary import PARTS, PHASES
from .words import PARTS_IN_WORDS, listed, part_name, range_of, share

AGREEMENT = 0.03
"""Recorders agree where no figure differs by more than this share of itself …"""

JITTER = 0.001
"""… other than by less than this share of the step."""

NAMED = 3
STEP, UNION, ATTENTION, WORK, OTHER_WORK = "step", "union", "attention", "work", "other_work"
BUSY = ("compute", "collective", "copy")
KERNELS = ("compute", "copy")
"""Compared together: a small copy within a GPU is a copy to one recorder and a kernel to another."""

WITHIN = {UNION: (ATTENTION, WORK), WORK: (ATTENTION,)}
"""What a figure holds that is told in its place."""

Told = tuple[TraceFigures, Inflation]


def cross_check(traces: Sequence[TraceFigures]) -> tuple[RecorderCheck, ...]:
    """One check for each run that several recorders recorded, each by its own figures alone."""
    return tuple(_check(group) for group in recorder_groups(traces))


def recorder_groups(traces: Sequence[TraceFigures]) -> Iterator[list[Told]]:
    """Recordings of one sweep, model, configuration, kind, batch size, graph mode and ranks: the first by each.

    Phases that are inferred are not compared with annotated ones.
    """
    groups: dict[tuple[object, ...], list[Told]] = {}
    for trace in traces:
        own = trace.inflation
        if own is None or not own.parts or not trace.provenance.config or trace.cycle.batch_size is None:
            continue
        eager = launched_eagerly(trace.graphs.values())
        ranks = tuple(sorted(device.rank for device in trace.devices.values()))
        run, cycle = (sweep_of(trace), trace.provenance.config, eager, ranks), trace.cycle
        key = (*run, cycle.kind, cycle.batch_size, cycle.phases_inferred)
        groups.setdefault(key, []).append((trace, own))
    apart = (group for told in groups.values() for group in _by_model(told))
    return (group for group in apart if len(group) > 1)


def _by_model(told: Sequence[Told]) -> Iterator[list[Told]]:
    """The first of each recorder, by model; those without a name are of the only model that is named, if one is."""
    names = {trace.provenance.model for trace, _ in told}
    only = max(names) if one_name(*names) else ""
    groups: dict[str, dict[str, Told]] = {}
    for trace, own in told:
        groups.setdefault(trace.provenance.model or only, {}).setdefault(own.recorder, (trace, own))
    return (list(group.values()) for group in groups.values())


def _check(group: list[Told]) -> RecorderCheck:
    figures = [own for _, own in group]
    floor = JITTER * min(own.recorded_ns or 0 for own in figures)
    rows = tuple(_marked(row, floor) for row in _rows(figures, floor))
    counts = tuple(
        RecorderOps(phase, tuple(own.ops.get(phase, 0) for own in figures))
        for phase in PHASES
        if any(phase in own.ops for own in figures)
    )
    recorders = tuple(own.recorder for own in figures)
    agree = _agree(rows, counts)
    return RecorderCheck(
        traces=tuple(trace.name for trace, _ in group),
        recorders=recorders,
        batch_size=group[0][0].cycle.batch_size or 0,
        ratios=tuple(own.ratio for own in figures),
        rows=rows,
        ops=counts,
        agree=agree,
        text=_text(recorders, rows, counts, floor) + _of_contexts(figures, rows),
    )


def _rows(figures: Sequence[Inflation], floor: float) -> Iterator[RecorderRow]:
    """The step, and each phase's union, kernels and other parts. A phase's union shrinks by what its busy parts do."""
    cells = [{(row.phase, row.part): row for row in own.parts} for own in figures]
    yield _row("", STEP, [own.recorded_ns for own in figures], [own.unrecorded_ns for own in figures])
    for phase in PHASES:
        if any(phase in own.unions for own in figures):
            unions = [own.unions.get(phase, 0) for own in figures]
            taken = [_excess(own, phase, BUSY) for own in figures]
            yield _row(phase, UNION, unions, [*map(_less, unions, taken)])
        yield from _kernel_rows(figures, phase, floor)
        for part in PARTS:
            found = [own.get((phase, part)) for own in cells]
            if any(found) and part not in KERNELS:
                yield _row(phase, part, [*map(_recorded, found)], [*map(_unrecorded, found)])


def _kernel_rows(figures: Sequence[Inflation], phase: str, floor: float) -> Iterator[RecorderRow]:
    """Kernels and copies; where these differ, also those of attention, which take as long as contexts are, alone."""
    whole = [sum(row.recorded_ns for row in own.parts if _is(row, phase, KERNELS)) for own in figures]
    taken = [_excess(own, phase, KERNELS) for own in figures]
    if not any(whole):
        return
    row = _marked(_row(phase, WORK, whole, [*map(_less, whole, taken)]), floor)
    yield row
    attention = [own.attention.get(phase, 0) for own in figures]
    if row.differs and any(attention):
        theirs = [_share(one, own, all_of) for one, own, all_of in zip(taken, attention, whole, strict=True)]
        rest = [all_of - own for all_of, own in zip(whole, attention, strict=True)]
        yield _row(phase, ATTENTION, attention, [*map(_less, attention, theirs)])
        yield _row(phase, OTHER_WORK, rest, [*map(_less, rest, map(_less, taken, theirs))])


def _share(taken: int | None, own: int, whole: int) -> int | None:
    return None if taken is None else taken * own // max(whole, 1)


def _less(ns: int | None, taken: int | None) -> int | None:
    return None if ns is None or taken is None else ns - taken


def _is(row: InflationPart, phase: str, parts: Sequence[str]) -> bool:
    return row.phase == phase and row.part in parts


def _row(phase: str, part: str, recorded: Sequence[int | None], unrecorded: Sequence[int | None]) -> RecorderRow:
    as_recorded = tuple(ns or 0 for ns in recorded)
    known = tuple(ns for ns in unrecorded if ns is not None)
    if len(known) < len(as_recorded):
        return RecorderRow(phase, part, as_recorded, _spread(as_recorded))
    return RecorderRow(phase, part, as_recorded, _spread(as_recorded), known, _spread(known))


def _marked(row: RecorderRow, floor: float) -> RecorderRow:
    """``row`` with whether it differs: by its figures without inflation where these are known."""
    values = _values(row)
    return structs.replace(row, differs=_spread(values) > AGREEMENT and max(values) - min(values) > floor)


def _spread(values: Sequence[int]) -> float:
    """From the least to the most, over the least; 1 where a recorder has none at all of it."""
    return (max(values) - min(values)) / min(values) if min(values) > 0 else float(max(values) > 0)


def _recorded(cell: InflationPart | None) -> int:
    return cell.recorded_ns if cell else 0


def _unrecorded(cell: InflationPart | None) -> int | None:
    return cell.unrecorded_ns if cell else 0


def _excess(own: Inflation, phase: str, parts: Sequence[str]) -> int | None:
    """What recording cost in ``parts`` of a phase."""
    rows = [row for row in own.parts if _is(row, phase, parts)]
    known = [row.recorded_ns - row.unrecorded_ns for row in rows if row.unrecorded_ns is not None]
    return sum(known) if len(known) == len(rows) else None


def _agree(rows: Sequence[RecorderRow], counts: Sequence[RecorderOps]) -> bool | None:
    if not all(row.same for row in counts):
        return False
    return not any(row.differs for row in rows) if all(row.unrecorded_ns is not None for row in rows) else None


def _text(recorders: Sequence[str], rows: Sequence[RecorderRow], counts: Sequence[RecorderOps], floor: float) -> str:
    unlike = [row.phase for row in counts if not row.same]
    number = f"ops differ in number in {listed(unlike)}" if unlike else "a step has the same number of ops"
    within = _widest([_values(row) for row in rows if not row.differs], floor)
    agree = f"agree within {share(within, 1)}"
    beyond = [f"{figure(row)} ({_ends(row)})" for row in _told(rows)]
    said = f"figures {agree}"
    if beyond:
        said = f"figures differ: {listed(_first(beyond))}{f'; the others {agree}' if within else ''}"
    return f"recorded by {listed(list(recorders))}, {number}; {_of_cost(rows)}, {said}"


def _told(rows: Sequence[RecorderRow]) -> list[RecorderRow]:
    """The rows that differ, by how much, without those that only hold others of them."""
    differing = [row for row in rows if row.differs]
    known = {(row.phase, row.part) for row in differing}
    kept = [row for row in differing if not any((row.phase, part) in known for part in WITHIN.get(row.part, ()))]
    return sorted(kept, key=lambda row: (row.part != STEP, min(_values(row)) - max(_values(row))))


def _of_contexts(figures: Sequence[Inflation], rows: Sequence[RecorderRow]) -> str:
    """Why attention alone differs, if it does: empty where other kernels differ as well."""
    unlike = {(row.phase, row.part) for row in rows if row.differs}
    phases = [phase for phase, part in unlike if part == WORK]
    if not phases or any((p, ATTENTION) not in unlike or (p, OTHER_WORK) in unlike for p in phases):
        return ""
    said = "; of the kernels only attention differs"
    steps = [own.elsewhere_ns for own in figures if own.elsewhere_ns is not None]
    if len(steps) < len(figures):
        return f"{said}, which takes longer the longer contexts are; those of the windows are not known"
    return f"{said}{_elsewhere(figures, steps)}" if _follows(figures, steps) else said


def _follows(figures: Sequence[Inflation], steps: Sequence[int]) -> bool:
    """Whether attention is longest and shortest where steps at a window's contexts are, which can be told apart."""
    attention = [sum(own.attention.values()) for own in figures]
    ends = [(column.index(min(column)), column.index(max(column))) for column in (attention, list(steps))]
    return ends[0] == ends[1] and _spread(steps) > math.hypot(*(own.ratio_error or 0.0 for own in figures))


def _elsewhere(figures: Sequence[Inflation], steps: Sequence[int]) -> str:
    contexts = [own.context for own in figures if own.context is not None]
    tokens = f" ({min(contexts):,} to {max(contexts):,} tokens)" if len(contexts) == len(figures) else ""
    return (
        f", as the windows lie at unlike contexts{tokens}: without a recorder steps there take "
        f"{range_of(min(steps), max(steps))}, timed by the engine"
    )


def figure(row: RecorderRow) -> str:
    """What the row is of: ``step``, ``verify's ops``, ``verify's gaps inside graphs``."""
    return part_name(row.phase, PARTS_IN_WORDS.get(row.part, row.part)) if row.phase else row.part


def _of_cost(rows: Sequence[RecorderRow]) -> str:
    if any(row.unrecorded_ns is None for row in rows):
        return "what recording cost each of them is not known; as recorded"
    if all(row.unrecorded_ns == row.recorded_ns for row in rows):
        return "of none can it be told what recording cost; as recorded"
    return "after inflation is taken out"


def _values(row: RecorderRow) -> tuple[int, ...]:
    """Without inflation where that is known."""
    return row.unrecorded_ns or row.recorded_ns


def _ends(row: RecorderRow) -> str:
    return range_of(min(_values(row)), max(_values(row)))


def _first(names: Sequence[str]) -> list[str]:
    return list(names) if len(names) <= NAMED else [*names[:NAMED], f"{len(names) - NAMED} more"]


def _widest(figures: Sequence[tuple[int, ...]], floor: float) -> float:
    """The widest spread of figures that differ by more than jitter."""
    return max((_spread(values) for values in figures if max(values) - min(values) > floor), default=0.0)
