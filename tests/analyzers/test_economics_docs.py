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
NAMES = {
    "tp1": "one GPU",
    "ep2": "two GPUs, expert-parallel",
    "tp1-qwen3-235b": "one GPU, 12 layers of Qwen3-235B-A22B",
}


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
    """All eight are met; of the five with a range, two lie in it."""
    said, rows = words("docs/economics.md"), [row for name in NAMES for row in pair(name).rows]
    errors = sorted(row.prediction_error or 0.0 for row in rows)
    assert len(rows) == 8 and max(map(abs, errors)) < 0.1
    ends = f"from {signed(errors[0])} to {signed(errors[-1])}"
    assert f"All eight predictions lie within 10 % of the measured speed-up**, {ends}." in said
    off = [row.error_off_range for row in rows if row.error_off_range is not None]
    assert [end == 0 for end in off] == [False, True, False, True, False]
    assert f"two lie inside it, two {signed(off[0])[1:-2]} and {signed(off[4])[1:]} above" in said
    assert f"one GPU at 128, {signed(off[2])[1:]} below" in said
    one, two = (pair(name).crossover for name in ("tp1", "ep2"))
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
    assert errors == pytest.approx([2.9, -3.3, -11.9], abs=0.05)
    assert "2.9 % too high at 1, 3.3 % too low at 32 and 11.9 % too low at 128" in words("docs/economics.md")
    assert f"({row.speculative.recorded_ns / 1e6:.1f} ms a cycle)" in words("docs/economics.md")


def test_what_throughput_has_beyond_steps_is_nearly_as_much_on_both_sides() -> None:
    """Of each of the 128 requests that a life of 1,024 tokens refills, in ms."""
    said, row = words("docs/economics.md"), pair("tp1").rows[2]
    for side, place in ((row.speculative, "{:.1f} ms with DFlash"), (row.plain, "and {:.1f} ms without")):
        assert side.throughput_ns is not None
        passes = 1024 / (side.accept_len or 1.0)
        assert place.format((side.throughput_ns - side.step_ns) * passes / 128 / 1e6) in said
        assert f"{side.throughput_ns * passes / 1e9:.1f} s" in said
        times = f"{side.throughput_ns / 1e6:.3g} ms where {side.step_ns / 1e6:.3g} ms were timed"
        assert f"{times} ({signed(side.throughput_ns / side.step_ns - 1)})" in said


def test_both_name_the_counts_of_throughput() -> None:
    row = pair("tp1").rows[2]
    before, after = row.speculative.tokens_per_s_before, row.speculative.tokens_per_s_after
    plain = f"{row.plain.tokens_per_s_before:,.0f} and {row.plain.tokens_per_s_after:,.0f}"
    for path in ("docs/economics.md", "traces/README.md"):
        assert f"{before:,.0f} tokens/s before the window and {after:,.0f} after it" in words(path)
        assert plain in words(path)
    said, ends = words("traces/README.md"), row.measured_range
    assert ends is not None and f"a speed-up of {from_to(ends)}" in said
    assert f"Steps predict {row.predicted_speedup:.2f}, {signed(row.prediction_error)[1:]} less than" in said
    assert f"{row.speculative.step_ns / 1e6:.1f} ms over {row.speculative.unrecorded_steps} unrecorded steps" in said
    assert f"{row.speculative.unrecorded_steps} cycles, {before:,.0f} tokens/s" in words("docs/economics.md")
