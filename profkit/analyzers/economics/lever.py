"""What would bring speculation to break-even, or take it there, by steps and by measured throughput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .outcome import outcome_of, speedup_of
from .result import Decided, Lever, Row


def lever_of(rows: Sequence[Row], block_sizes: Mapping[str, int | None], basis: Decided) -> Lever | None:
    """Of the lowest batch size that loses; where none does, of the one with the least speed-up.

    ``None`` without an accept length, of which one would have to say how much longer it would have to be.
    """
    known = {row.batch_size: speedup for row in rows if (speedup := speedup_of(row, basis)) is not None}
    told = [row for row in rows if row.batch_size in known and row.speculative.accept_len]
    if not told:
        return None
    losing = [row for row in told if outcome_of(row, basis) == "loses"]
    row = losing[0] if losing else min(told, key=lambda one: known[one.batch_size])
    return _lever(row, row.speculative.accept_len or 1.0, block_sizes[row.speculative.trace], basis)


def _lever(row: Row, accept_len: float, block_size: int | None, basis: Decided) -> Lever:
    side = row.speculative
    whole = sum(part.ns for part in side.parts)
    cycle: float = side.step_ns
    excess, needed = cycle - accept_len * row.plain.step_ns, row.break_even
    if basis == "measured" and row.measured_speedup and row.measured_break_even:
        cycle = side.throughput_ns or cycle
        excess, needed = cycle * (1 - row.measured_speedup), row.measured_break_even
    largest = max(side.parts, key=lambda part: part.ns, default=None)
    return Lever(
        batch_size=row.batch_size,
        accept_len=accept_len,
        accept_len_needed=needed,
        excess_ns=excess,
        cycle_ns=round(cycle),
        phase=largest.phase if largest else None,
        group=largest.group if largest else None,
        part_ns=largest.ns * cycle / whole if largest else None,
        block_size=block_size,
        basis=basis,
        outcome=outcome_of(row, basis),
        steps_ns=side.step_ns,
        recorded=side.unrecorded_ns is None,
    )
