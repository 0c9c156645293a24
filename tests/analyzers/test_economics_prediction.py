"""The speed-up predicted from steps beside the measured one, its range, and the steps it rests on."""

from __future__ import annotations

import pytest

from profkit.traces import StepTimes
from tests.analyzers.sweeps_by_hand import MS, by_hand, counted_twice, economics_of


def test_measured_speedups_have_the_range_of_their_quotients() -> None:
    """1,800 and 2,200 plain, 1,500 and 1,700 speculative: 1,500 / 2,200 to 1,700 / 1,800. By steps it is 0.667."""
    traces = by_hand()
    traces[4], traces[5] = counted_twice(traces[4], 1800, 2200), counted_twice(traces[5], 1700, 1500)
    found = economics_of(traces)
    row = found.rows[2]
    assert (row.speculative.tokens_per_s_before, row.speculative.tokens_per_s_after) == (1700, 1500)
    assert row.measured_speedup == pytest.approx(0.8) and row.outcome == "loses"
    assert row.measured_range == pytest.approx((1500 / 2200, 1700 / 1800))
    assert row.measured_break_even_range == pytest.approx((3 * 1800 / 1700, 3 * 2200 / 1500))
    assert row.error_off_range == pytest.approx(2 / 3 / (1500 / 2200) - 1)
    assert found.rows[0].measured_range is found.rows[0].error_off_range is None
    assert "and loses at 16 (0.80×, 0.68 to 0.94), by throughput" in found.sentences[0]
    assert "(0.67 against 0.80), 2.2 % off the nearest end of the measured range of 0.68 to 0.94:" in found.prediction
    assert found.prediction.endswith(
        "At 1 and 4 throughput was counted once: how far the measured speed-up varies is not known."
    )
    assert "16 (3.75; 3.18 to 4.40 by counts before and after)" in found.intervals


def test_a_prediction_that_lies_just_outside_is_not_said_to_be_0_percent_off() -> None:
    traces = by_hand()
    traces[4], traces[5] = counted_twice(traces[4], 2000, 2000), counted_twice(traces[5], 1400, 1333)
    assert "under 0.1 % off the nearest end" not in economics_of(traces).prediction
    traces[5] = counted_twice(traces[5], 1400, 1334)
    assert "16 (under 0.1 % off the nearest end of the measured range" in economics_of(traces).prediction


def test_a_prediction_inside_the_measured_range_says_so() -> None:
    """Only the speculative side was counted twice: 2,000 plain, 1,300 and 1,900."""
    traces = by_hand()
    traces[5] = counted_twice(traces[5], 1300, 1900)
    found = economics_of(traces)
    assert found.rows[2].measured_range == pytest.approx((0.65, 0.95)) and found.rows[2].error_off_range == 0
    assert "(0.67 against 0.80), inside the measured range of 0.65 to 0.95:" in found.prediction


def test_prediction_within_ten_percent_or_why_not() -> None:
    """At 16, 1,600 tokens/s of 16 requests at 3 tokens are cycles of 30 ms; 2,000 plain ones are steps of 8 ms."""
    assert economics_of(by_hand()).prediction == (
        "The speed-up predicted from recorded steps is within 5 % of the measured one at 1 and 4; at 16 it is 16.7 % "
        "too low (0.67 against 0.80): the measured throughput amounts to a cycle of 30.0 ms where 36.0 ms were "
        "recorded (−17 %) and a plain step of 8.00 ms where 8.00 ms were recorded (0.0 %), prefills and all lengths of "
        "context included. At 1, 4 and 16 throughput was counted once: how far the measured speed-up varies is not "
        "known."
    )


def test_unrecorded_steps_decide_where_there_are_any() -> None:
    timed = {
        "plain/c1": StepTimes(4 * MS, 4 * MS, 4 * MS, 900),
        "draft/c1": StepTimes(5 * MS, 5 * MS, 5 * MS, 900),
        "draft/c4": StepTimes(10 * MS, 9 * MS, 11 * MS, 900),
    }
    found = economics_of(by_hand(), timed)
    assert [row.basis for row in found.rows] == ["unrecorded", "mixed", "recorded"]
    assert [row.break_even for row in found.rows] == pytest.approx([1.25, 2.0, 4.5])
    assert found.rows[1].speculative.unrecorded_ns == 10 * MS
    assert "a cycle costs 4.50 plain steps at 16 and 1.25 at 1" in found.sentences[1]
    assert found.prediction.startswith(
        "The speed-up predicted from cycles timed without a recorder (at 16 only recorded) and plain steps timed "
        "without a recorder (at 4 and 16 only recorded): at 1 it is 20.0 % too high"
    )


def test_a_mixed_basis_is_said_with_the_prediction() -> None:
    timed = {f"draft/c{batch}": StepTimes(ns * MS, 1, 1, 9) for batch, ns in ((1, 6), (4, 12), (16, 36))}
    start = "The speed-up predicted from cycles timed without a recorder and plain steps only recorded is within"
    assert economics_of(by_hand(), timed).prediction.startswith(start)
