"""The economics in plain words: where it wins and loses, why, what would move the line, and how far to trust it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..result import Gain
from ..words import duration, listed, share
from .result import Crossing, Crossover, Decoding, Lever, Row

AGREES = 0.1
"""Predicted speed-ups are said to agree with measured ones up to this share."""


def where(speculative: str, rows: Sequence[Row], crossover: Crossover) -> str:
    """Which concurrencies it wins and loses at, by the measured throughput where all are measured."""
    measured = all(row.measured_speedup is not None for row in rows)
    speedups = [row.measured_speedup if measured else row.predicted_speedup for row in rows]
    if any(speedup is None for speedup in speedups):
        costs = listed([f"{row.break_even:.2f} plain steps at {row.batch_size}" for row in rows])
        return f"Whether {speculative} pays is unknown without its accept length; a cycle costs {costs}."
    found = [(row.batch_size, speedup) for row, speedup in zip(rows, speedups, strict=True) if speedup is not None]
    won = [f"{batch} ({speedup:.2f} ×)" for batch, speedup in found if speedup > 1]
    lost = [f"{batch} ({speedup:.2f} ×)" for batch, speedup in found if speedup <= 1]
    said = [f"wins at concurrency {listed(won)}"] if won else []
    said += [f"loses at {'' if won else 'concurrency '}{listed(lost)}"] if lost else []
    source = "by throughput measured without a recorder" if measured else "as predicted from its steps"
    meet = crossover.measured.at
    text = f"{crossover.text}, and the measured throughputs meet at {batch(meet)}" if meet else crossover.text
    return f"{speculative} {' and '.join(said)}, {source}; {text}."


def crossover_text(
    batch_sizes: Sequence[int], estimate: Crossing, low: Crossing, high: Crossing, again: Sequence[int]
) -> str:
    """Up to which concurrency it pays, by step times and accept length, and at which recorded ones ``again``."""
    first, last = batch_sizes[0], batch_sizes[-1]
    if estimate.state == "unknown":
        return "up to which concurrency it pays by its steps is unknown"
    if estimate.state == "above":
        said = f"by its steps it pays at every recorded concurrency: the crossover lies above {last}, not recorded"
    elif estimate.state == "below" and again:
        return f"by its steps it pays only at {_batches(again)} of the recorded concurrencies"
    elif estimate.state == "below":
        said = f"by its steps it pays at none of them: the crossover lies below {first}, not recorded"
    else:
        beyond = f" and again at {_batches(again)}" if again else ""
        said = f"by its steps it pays up to concurrency {batch(estimate.at or 0)}{beyond}"
    if "unknown" in (low.state, high.state) or low.state == high.state != "between":
        return said
    return f"{said} (95 %: {_end(low, first, last)} to {_end(high, first, last)})"


def _end(end: Crossing, first: int, last: int) -> str:
    return {"above": f"above {last}", "below": f"below {first}"}.get(end.state) or batch(end.at or 0)


def batch(at: float) -> str:
    """A batch size that lies between recorded ones."""
    return f"{at:.0f}" if at >= 10 else f"{at:.1f}"


def why(rows: Sequence[Row], gain: Gain | None) -> str:
    """Which parts make the speed-up shrink or grow."""
    if gain is not None:
        return f"{gain.text[0].upper()}{gain.text[1:]}."
    row = rows[0]
    return f"Why it changes is unknown from one concurrency; a cycle costs {row.break_even:.2f} plain steps."


def what_moves(lever: Lever | None, rows: Sequence[Row]) -> str:
    """The largest lever, and how far it would have to move; by steps, where the measured throughput says otherwise."""
    if lever is None:
        return "What would move the line is unknown without the accept length: give one with --accept-len."
    said = f"{_needed(lever)}{_by_part(lever)}."
    measured = next(row.measured_speedup for row in rows if row.batch_size == lever.batch_size)
    if measured is None or (measured > 1) == (lever.excess_ns < 0):
        return said
    return f"By its steps, though measured at {measured:.2f} ×: {said[0].lower()}{said[1:]}"


def _needed(lever: Lever) -> str:
    change = share(abs(lever.excess_ns), lever.cycle_ns)
    way = "shorter" if lever.excess_ns > 0 else "longer"
    cycle = f"the cycle {change} {way} (it takes {duration(lever.cycle_ns)})"
    if lever.excess_ns > 0:
        return (
            f"To break even at concurrency {lever.batch_size} the accept length would have to be "
            f"{lever.accept_len_needed:.2f} (it is {lever.accept_len:.2f}{_beyond(lever)}), or {cycle}"
        )
    return (
        f"At concurrency {lever.batch_size}, where it is nearest to losing, it pays until the accept length falls to "
        f"{lever.accept_len_needed:.2f} (it is {lever.accept_len:.2f}), or with {cycle}"
    )


def _beyond(lever: Lever) -> str:
    """That no drafter reaches an accept length of more than the block."""
    if lever.block_size is None or lever.accept_len_needed <= lever.block_size:
        return ""
    return f", and with blocks of {lever.block_size} tokens never more than {lever.block_size}"


def _by_part(lever: Lever) -> str:
    if not lever.part_ns or lever.phase is None:
        return "; which part that would have to come from is unknown"
    part = f"{lever.phase}'s {lever.group}"
    change = share(abs(lever.excess_ns), lever.part_ns)
    if lever.excess_ns <= 0:
        return f"; {part}, its largest part, could alone be {change} longer ({duration(lever.part_ns)} now)"
    if lever.excess_ns > lever.part_ns:
        return f"; no part could do that alone: {part}, the largest, takes {duration(lever.part_ns)}"
    return f"; {part}, its largest part, would alone have to be {change} shorter ({duration(lever.part_ns)} now)"


def prediction(rows: Sequence[Row]) -> str:
    """How far the predicted speed-ups lie off the measured ones, and what is known of those that lie far off."""
    errors = {row.batch_size: row.prediction_error for row in rows if row.prediction_error is not None}
    if not errors:
        return f"The predicted speed-up cannot be checked: {_unchecked(rows)}."
    fine = {batch_size: abs(error) for batch_size, error in errors.items() if abs(error) <= AGREES}
    said = []
    if fine:
        most = max(1, math.ceil(100 * max(fine.values()) - 1e-9))
        said.append(f"the predicted speed-up is within {most} % of the measured one at {_batches(list(fine))}")
    said += [_off(row) for row in rows if row.batch_size in errors and row.batch_size not in fine]
    unchecked = [row.batch_size for row in rows if row.batch_size not in errors]
    said += [f"at {_batches(unchecked)} it cannot be checked"] if unchecked else []
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]} ({basis(rows)})."


def _unchecked(rows: Sequence[Row]) -> str:
    if any(row.plain.tokens_per_s and row.speculative.tokens_per_s for row in rows):
        return "the throughput that was measured is of another accept length"
    return "throughput without a recorder is not known for both"


def basis(rows: Sequence[Row]) -> str:
    """Which steps the break-even rests on."""
    kinds = {row.basis for row in rows}
    if kinds == {"unrecorded"}:
        return "from steps that the engine's host timed without a recorder"
    if kinds == {"recorded"}:
        return "from recorded steps"
    sides = {"plain decoding's": [row.plain for row in rows], "the cycle's": [row.speculative for row in rows]}
    recorded = [f"{name}{at}" for name, own in sides.items() if (at := _recorded_at(rows, own)) is not None]
    timed = "from steps that the engine's host timed without a recorder"
    return f"{timed}, but for {listed(recorded)}, which were recorded"


def _recorded_at(rows: Sequence[Row], own: Sequence[Decoding]) -> str | None:
    """Where a side was only recorded: nothing to add if everywhere, ``None`` if nowhere."""
    found = [row.batch_size for row, side in zip(rows, own, strict=True) if side.unrecorded_ns is None]
    if not found:
        return None
    return "" if len(found) == len(rows) else f" at {_batches(found)}"


def _batches(batch_sizes: Sequence[int]) -> str:
    return listed([str(one) for one in batch_sizes])


def _off(row: Row) -> str:
    error, measured, predicted = row.prediction_error or 0.0, row.measured_speedup or 0.0, row.predicted_speedup or 0.0
    sides = []
    for name, side in (("cycle", row.speculative), ("plain step", row.plain)):
        was = "recorded" if side.unrecorded_ns is None else "timed"
        if side.throughput_ns is not None:
            off = 100 * (side.throughput_ns / side.step_ns - 1)
            sides.append(
                f"a {name} of {duration(side.throughput_ns)} where {duration(side.step_ns)} "
                f"were {was} ({off:+.0f} %)".replace("-", "−")
            )
    return (
        f"at {row.batch_size} it is {abs(100 * error):.0f} % too {'high' if error > 0 else 'low'} ({predicted:.2f} "
        f"against {measured:.2f}): the measured throughput amounts to {listed(sides)}, prefills and all lengths of "
        "context included"
    )
