"""The tables and figures of docs/economics.md and traces/README.md are what the analysis says today."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.analyzers.economics.outcome import from_to
from profkit.analyzers.economics.result import Range, Row
from tests.analyzers.test_economics_recorded import pair

ROOT = Path(__file__).parents[2]
HEAD = (
    "", "concurrency", "break-even (spread)", "measured (range)", "accept length", "predicted", "measured (range)",
    "error", "off the range", "outcome",
)  # fmt: skip
NAMES = {"tp1": "one GPU", "ep2": "two GPUs, expert-parallel"}


def table_of() -> str:
    """The table of the documentation, from the reference captures."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for name, said in NAMES.items():
        lines += [(said if place == 0 else "", *cells(row)) for place, row in enumerate(pair(name).rows)]
    return "".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|\n" for line in lines)


def cells(row: Row) -> tuple[str, ...]:
    off = (
        "counted once"
        if row.error_off_range is None
        else signed(row.error_off_range)
        if row.error_off_range
        else "inside"
    )
    return (
        str(row.batch_size),
        with_ends(row.break_even, row.break_even_ci95),
        with_ends(row.measured_break_even, row.measured_break_even_range),
        f"{row.speculative.accept_len:.2f}",
        f"{row.predicted_speedup:.2f}",
        with_ends(row.measured_speedup, row.measured_range),
        signed(row.prediction_error),
        off,
        str(row.outcome),
    )


def with_ends(value: float | None, ends: Range | None) -> str:
    return f"{value:.2f}" + (f" ({from_to(ends)})" if ends else "")


def signed(error: float | None) -> str:
    return f"{100 * (error or 0.0):+.1f} %".replace("-", "−")


def words(path: str) -> str:
    return " ".join((ROOT / path).read_text("utf-8").split())


def test_the_table_is_what_the_commands_print() -> None:
    assert table_of() in (ROOT / "docs/economics.md").read_text("utf-8")


def test_the_prose_is_of_the_same_figures() -> None:
    """The one that is missed stands beside the five that are met."""
    said, rows = words("docs/economics.md"), [row for name in NAMES for row in pair(name).rows]
    missed = [row for row in rows if abs(row.prediction_error or 0.0) > 0.1]
    assert len(rows) == 6 and [row.batch_size for row in missed] == [128]
    assert (
        "Five of the six predictions lie within 10 % of the measured speed-up, and the sixth does not**: one GPU"
        in said
    )
    assert f"at 128 is {signed(missed[0].prediction_error)[1:]} too high against the quotient of the mean" in said
    assert (
        f"the prediction of {missed[0].predicted_speedup:.2f} lies {signed(missed[0].error_off_range)[1:]} above"
        in said
    )
    assert f"it lies {signed(rows[0].error_off_range)[1:]} above their range" in said and rows[1].error_off_range == 0
    low, high = missed[0].measured_range or (0.0, 0.0)
    assert f"between {low:.2f} and {high:.2f}" in said
    one, two = (pair(name).crossover for name in NAMES)
    for found, place in (
        (one, "is at {} by steps (spread of the 8 recorded steps: {} to {})"),
        (two, "at {} ({} to {})"),
    ):
        assert place.format(*(f"{end.at:.0f}" for end in (found.estimate, found.low, found.high))) in said
    assert f"loses by {100 * (1 - (rows[5].predicted_speedup or 1)):.1f} %" in said


def test_recorded_steps_would_predict_what_the_prose_says() -> None:
    errors = []
    for row in pair("tp1").rows:
        predicted = (row.speculative.accept_len or 0.0) * row.plain.recorded_ns / row.speculative.recorded_ns
        errors.append(100 * (predicted / (row.measured_speedup or 1) - 1))
    assert errors == pytest.approx([2.1, -2.0, 2.4], abs=0.05)
    assert "2.1 % too high at 1, 2.0 % too low at 32 and 2.4 % too high at 128" in words("docs/economics.md")


def test_both_name_the_counts_of_throughput() -> None:
    row = pair("tp1").rows[2]
    before, after = row.speculative.tokens_per_s_before, row.speculative.tokens_per_s_after
    plain = f"{row.plain.tokens_per_s_before:,.0f} and {row.plain.tokens_per_s_after:,.0f} in `tp1`"
    for path in ("docs/economics.md", "traces/README.md"):
        assert f"{before:,.0f} tokens/s before the window and {after:,.0f} after it" in words(path)
    said, ends = words("traces/README.md"), row.measured_range
    assert ends is not None and f"{plain}, a speed-up of {from_to(ends)}" in said
    assert f"means, {row.measured_speedup:.2f}, is not met by what steps predict ({row.predicted_speedup:.2f}, " in said
    assert f"{signed(row.prediction_error)[1:]} more)" in said
    assert f"{row.speculative.step_ns / 1e6:.1f} ms over {row.speculative.unrecorded_steps} unrecorded steps" in said
