"""One configuration, batch size and graph mode by several recorders: do they tell the same, inflation taken out?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from .eager_to_graphs import launched_eagerly
from .inflation import with_estimates
from .inflation_result import Inflation, InflationPart, RecorderCheck, RecorderOps, RecorderRow
from .result import TraceFigures, sweep_of
from .vocabulary import PARTS, PHASES
from .words import listed, share

AGREEMENT = 0.03
"""Recorders agree where no figure differs by more than this share of a step."""

KERNELS = ("compute", "copy")
STEP, UNION = "step", "union"
BUSY = ("compute", "collective", "copy")

Told = tuple[TraceFigures, Inflation]


def cross_check(traces: Sequence[TraceFigures]) -> tuple[RecorderCheck, ...]:
    """One check for each run that several recorders recorded, each by its own figures alone.

    The estimates must not have been bounded by one another yet (``bounded_by_least_inflated``).
    """
    return tuple(_check(group) for group in recorder_groups(traces))


def bounded_by_least_inflated(traces: Sequence[TraceFigures]) -> tuple[TraceFigures, ...]:
    """``traces`` with the kernels of each bounded by those of the recorder of the same run that costs least."""
    bounded: dict[int, Inflation] = {}
    for group in recorder_groups(traces):
        known = [(trace, own, own.ratio) for trace, own in group if own.ratio is not None]
        if len(known) < 2:
            continue
        least = min(known, key=lambda one: one[2])
        for trace, own, ratio in known:
            if ratio > least[2]:
                found = with_estimates(own, _most(own, least[1]))
                bounded[id(trace)] = structs.replace(found, bounded_by=least[0].name)
    return tuple(structs.replace(trace, inflation=bounded.get(id(trace), trace.inflation)) for trace in traces)


def _most(own: Inflation, least: Inflation) -> list[int | None]:
    """For each part of ``own`` its most: kernels and copies of a phase with as many ops in ``least``."""
    cells = {(row.phase, row.part): row.recorded_ns for row in least.parts}
    return [
        cells.get((row.phase, row.part))
        if row.part in KERNELS and own.ops.get(row.phase, 0) == least.ops.get(row.phase)
        else None
        for row in own.parts
    ]


def recorder_groups(traces: Sequence[TraceFigures]) -> Iterator[list[Told]]:
    """Recordings of one sweep, configuration, kind, batch size, graph mode and ranks: the first of each recorder.

    Phases that are inferred are not compared with annotated ones.
    """
    groups: dict[tuple[object, ...], dict[str, Told]] = {}
    for trace in traces:
        own = trace.inflation
        if own is None or not own.parts or not trace.provenance.config or trace.cycle.batch_size is None:
            continue
        eager = launched_eagerly(trace.graphs.values())
        ranks = tuple(sorted(device.rank for device in trace.devices.values()))
        run, cycle = (sweep_of(trace), trace.provenance.config, eager, ranks), trace.cycle
        key = (*run, cycle.kind, cycle.batch_size, cycle.phases_inferred)
        groups.setdefault(key, {}).setdefault(own.recorder, (trace, own))
    return (list(group.values()) for group in groups.values() if len(group) > 1)


def _check(group: list[Told]) -> RecorderCheck:
    figures = [own for _, own in group]
    rows = tuple(_rows(figures))
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
        text=_text(recorders, rows, counts, agree),
    )


def _rows(figures: Sequence[Inflation]) -> Iterator[RecorderRow]:
    """The step, and each phase's union and parts. A phase's union shrinks by what its busy parts do."""
    cells = [{(row.phase, row.part): row for row in own.parts} for own in figures]
    recorded_step = tuple(own.recorded_ns or 0 for own in figures)
    steps = tuple(own.unrecorded_ns for own in figures)
    known = [ns for ns in steps if ns is not None]
    shortest = min(recorded_step), min(known) if len(known) == len(steps) else None
    yield _row("", STEP, recorded_step, steps, shortest)
    for phase in PHASES:
        if any(phase in own.unions for own in figures):
            unions = tuple(own.unions.get(phase, 0) for own in figures)
            taken = [_busy_excess(own, phase) for own in figures]
            left = tuple(None if t is None else u - t for u, t in zip(unions, taken, strict=True))
            yield _row(phase, UNION, unions, left, shortest)
        for part in PARTS:
            found = [own.get((phase, part)) for own in cells]
            if any(found):
                yield _row(phase, part, tuple(map(_recorded, found)), tuple(map(_unrecorded, found)), shortest)


def _row(
    phase: str, part: str, recorded: tuple[int, ...], unrecorded: Sequence[int | None], steps: tuple[int, int | None]
) -> RecorderRow:
    known = tuple(ns for ns in unrecorded if ns is not None)
    if steps[1] is None or len(known) < len(recorded):
        return RecorderRow(phase, part, recorded, _spread(recorded, steps[0]))
    return RecorderRow(phase, part, recorded, _spread(recorded, steps[0]), known, _spread(known, steps[1]))


def _spread(values: Sequence[int], step: int) -> float:
    return (max(values) - min(values)) / max(step, 1)


def _recorded(cell: InflationPart | None) -> int:
    return cell.recorded_ns if cell else 0


def _unrecorded(cell: InflationPart | None) -> int | None:
    return cell.unrecorded_ns if cell else 0


def _busy_excess(own: Inflation, phase: str) -> int | None:
    rows = [row for row in own.parts if row.phase == phase and row.part in BUSY]
    known = [row.recorded_ns - row.unrecorded_ns for row in rows if row.unrecorded_ns is not None]
    return sum(known) if len(known) == len(rows) else None


def _agree(rows: Sequence[RecorderRow], counts: Sequence[RecorderOps]) -> bool | None:
    spreads = [row.unrecorded_spread for row in rows]
    known = [spread for spread in spreads if spread is not None]
    if not all(row.same for row in counts):
        return False
    return max(known) <= AGREEMENT if len(known) == len(spreads) else None


def _text(
    recorders: Sequence[str], rows: Sequence[RecorderRow], counts: Sequence[RecorderOps], agree: bool | None
) -> str:
    unlike = [row.phase for row in counts if not row.same]
    number = f"ops differ in number in {listed(unlike)}" if unlike else "a step has the same number of ops"
    before, after = _widest([row.recorded_spread for row in rows]), _widest([row.unrecorded_spread for row in rows])
    said = f"recorded by {listed(list(recorders))}, {number}; figures differ by up to {before} of a step"
    if after is None:
        return f"{said}; what recording cost each of them is not known"
    said = f"{said} as recorded, and by up to {after} after inflation is taken out"
    return said if agree or unlike else f"{said}, more than the {share(AGREEMENT, 1)} within which they agree"


def _widest(spreads: Sequence[float | None]) -> str | None:
    known = [spread for spread in spreads if spread is not None]
    return share(max(known), 1) if len(known) == len(spreads) else None
