"""How far to trust the economics, in plain words: predicted against measured, and what the intervals do not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..words import duration, listed, share
from .outcome import from_to
from .result import Decoding, Range, Row
from .words import batches, recorded_steps, unrecorded_steps

AGREES = 0.1
"""Predicted speed-ups are said to agree with measured ones up to this share."""


def prediction(rows: Sequence[Row]) -> str:
    """How far the predicted speed-ups lie off the measured ones, and what is known of those that lie far off."""
    errors = {row.batch_size: row.prediction_error for row in rows if row.prediction_error is not None}
    if not errors:
        return f"The speed-up predicted from {basis(rows)} cannot be checked: {_unchecked(rows)}."
    fine = {batch_size: abs(error) for batch_size, error in errors.items() if abs(error) <= AGREES}
    said = []
    if fine:
        most = max(1, math.ceil(100 * max(fine.values()) - 1e-9))
        places = [f"{row.batch_size}{_in_range(row)}" for row in rows if row.batch_size in fine]
        said.append(f"is within {most} % of the measured one at {listed(places)}")
    said += [_off(row) for row in rows if row.batch_size in errors and row.batch_size not in fine]
    unchecked = [row.batch_size for row in rows if row.batch_size not in errors]
    said += [f"at {batches(unchecked)} it cannot be checked"] if unchecked else []
    start = f"The speed-up predicted from {basis(rows)}"
    return f"{start}{'' if fine else ':'} {'; '.join(said)}.{_counted_once(rows)}"


def _in_range(row: Row) -> str:
    """Where the prediction lies against the range of measured speed-ups, in brackets; empty where there is none."""
    return f" ({_against_range(row.measured_range, row.error_off_range)})" if row.measured_range else ""


def _against_range(ends: Range, off: float | None) -> str:
    if not off:
        return f"inside the measured range of {from_to(ends)}"
    written = share(abs(off))
    least = "under 0.1 %" if written == "0.0 %" else written
    return f"{least} off the nearest end of the measured range of {from_to(ends)}"


def _counted_once(rows: Sequence[Row]) -> str:
    once = [row.batch_size for row in rows if row.measured_speedup is not None and row.measured_range is None]
    if not once:
        return ""
    return f" At {batches(once)} throughput was counted once: how far the measured speed-up varies is not known."


def _unchecked(rows: Sequence[Row]) -> str:
    if all(row.speculative.accept_len is None for row in rows):
        return "the accept length is not known"
    if any(row.plain.tokens_per_s and row.speculative.tokens_per_s for row in rows):
        return "the throughput that was measured is of another accept length"
    return "throughput without a recorder is not known for both"


def basis(rows: Sequence[Row]) -> str:
    """Which steps the prediction rests on; where sides differ in that, each by itself."""
    kinds = {row.basis for row in rows}
    if kinds == {"unrecorded"}:
        return "steps timed without a recorder"
    if kinds == {"recorded"}:
        return "recorded steps"
    sides = {"cycles": [row.speculative for row in rows], "plain steps": [row.plain for row in rows]}
    return listed([_timed(name, rows, own) for name, own in sides.items()])


def _timed(name: str, rows: Sequence[Row], own: Sequence[Decoding]) -> str:
    recorded = [row.batch_size for row, side in zip(rows, own, strict=True) if side.unrecorded_ns is None]
    if not recorded:
        return f"{name} timed without a recorder"
    if len(recorded) == len(rows):
        return f"{name} only recorded"
    return f"{name} timed without a recorder (at {batches(recorded)} only recorded)"


def _off(row: Row) -> str:
    error, measured, predicted = row.prediction_error or 0.0, row.measured_speedup or 0.0, row.predicted_speedup or 0.0
    sides = []
    for name, side in (("cycle", row.speculative), ("plain step", row.plain)):
        was = "recorded" if side.unrecorded_ns is None else "timed"
        if side.throughput_ns is not None:
            off = share(side.throughput_ns / side.step_ns - 1, signed=True)
            sides.append(
                f"a {name} of {duration(side.throughput_ns)} where {duration(side.step_ns)} were {was} ({off})"
            )
    weighed = f", {_against_range(row.measured_range, row.error_off_range)}" if row.measured_range else ""
    return (
        f"at {row.batch_size} it is {abs(100 * error):.1f} % too {'high' if error > 0 else 'low'} ({predicted:.2f} "
        f"against {measured:.2f}){weighed}: the measured throughput amounts to {listed(sides)}, prefills and all "
        "lengths of context included"
    )


def intervals(rows: Sequence[Row]) -> str:
    """What the intervals hold and what not, and where the measured throughput lies outside; empty without any."""
    known = [(row, row.break_even_ci95) for row in rows if row.break_even_ci95]
    if not known:
        return ""
    timed = unrecorded_steps(rows)
    behind = f", while break-even rests on {timed} that were timed without a recorder" if timed else ""
    said = (
        f"The intervals are the spread of the {recorded_steps(rows)} of each recording alone{behind}: another "
        "recording of the same configuration can lie outside"
    )
    implied = [(row, row.measured_break_even, interval) for row, interval in known if row.measured_break_even]
    outside = [_implied(row, value) for row, value, interval in implied if not _holds(interval, value)]
    if outside:
        return f"{said}, and so does the break-even that measured throughput implies, at {listed(outside)}."
    return f"{said}; the break-even that measured throughput implies lies inside." if implied else f"{said}."


def _implied(row: Row, value: float) -> str:
    ends = (
        f"; {from_to(row.measured_break_even_range)} by counts before and after"
        if row.measured_break_even_range
        else ""
    )
    return f"{row.batch_size} ({value:.2f}{ends})"


def _holds(interval: Range, value: float) -> bool:
    """With two digits, as tables show them."""
    return round(interval[0], 2) <= round(value, 2) <= round(interval[1], 2)
