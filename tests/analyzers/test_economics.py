"""Economics over concurrency against figures worked out by hand, and what must hold whatever the figures are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from profkit.analyzers.comparison import compare
from profkit.analyzers.economics.break_even import crossing, spread_of_ratio
from profkit.analyzers.economics.build import economics
from profkit.analyzers.economics.growth import line
from profkit.analyzers.economics.result import Crossing
from profkit.traces import StepTimes
from tests.analyzers.sweeps_by_hand import MS, by_hand, economics_of, even, step

ROWS = """
batch  break-even  headroom  share     predicted  measured  error   us plain  us speculative
1      1.5         1.5       1.0       2.0        2.0       0.0     4000.0    2000.0
4      2.4         0.6       0.25      1.25       1.2       0.0417  1250.0    1000.0
16     4.5         -1.5      -0.3333   0.6667     0.8      -0.1667  500.0     750.0
"""


def test_rows_by_hand() -> None:
    found = economics_of(by_hand())
    assert (found.baseline, found.speculative, found.graphs) == ("plain", "draft", True)
    for row, text in zip(found.rows, ROWS.split("\n")[2:-1], strict=True):
        cells = [
            row.batch_size, row.break_even, row.headroom, row.headroom_share, row.predicted_speedup,
            row.measured_speedup, row.prediction_error, row.plain.us_per_token, row.speculative.us_per_token,
        ]  # fmt: skip
        assert cells == pytest.approx([float(cell) for cell in text.split()], abs=1e-4)
        assert row.basis == "recorded"


def test_crossover_lies_between_in_powers_of_two() -> None:
    """Headroom falls from 0.6 at 4 = 2² to −1.5 at 16 = 2⁴: it is gone 0.6 / 2.1 of the way."""
    found = economics_of(by_hand())
    assert found.crossover.estimate.at == pytest.approx(2 ** (2 + 2 * 0.6 / 2.1))
    assert found.crossover.measured.at == pytest.approx(2 ** (2 + 2 * math.log(1.2) / math.log(1.2 / 0.8)))
    assert found.sentences[0] == (
        "draft wins at concurrency 1 (2.00 ×) and 4 (1.20 ×) and loses at 16 (0.80 ×), by throughput measured without "
        "a recorder; by its steps it pays up to concurrency 5.9 (95 %: 5.9 to 5.9), and the measured throughputs meet "
        "at 7.5."
    )


def test_the_lever_is_what_break_even_needs() -> None:
    """Three tokens pay for 24 of the 36 ms: 12 ms too many, of verify's 34."""
    found = economics_of(by_hand())
    assert found.lever is not None and found.lever.excess_ns == 12 * MS
    assert found.sentences[2] == (
        "To break even at concurrency 16 the accept length would have to be 4.50 (it is 3.00), or the cycle 33 % "
        "shorter (it takes 36.0 ms); verify's kernels, its largest part, would alone have to be 35 % shorter "
        "(34.0 ms now)."
    )


def test_what_makes_the_gain_shrink() -> None:
    assert (
        economics_of(by_hand())
        .sentences[1]
        .startswith(
            "The speed-up shrinks from 2.00 at batch 1 to 0.67 at batch 16, because a cycle costs 4.50 plain steps at "
            "batch 16 and 1.50 at batch 1 (verify's kernels +3.25"
        )
    )


def test_growth_by_hand() -> None:
    """Verify's kernels are 2 ms + 2 ms per request; draft's do not grow."""
    growth = {(one.decoding, one.phase, one.group): one for one in economics_of(by_hand()).growth}
    verify = growth["speculative", "verify", "kernels"]
    assert (verify.base_ns, verify.per_request_ns, verify.r2) == pytest.approx((2 * MS, 2 * MS, 1.0))
    assert verify.text == "verify's kernels: 2.00 ms + 2.00 ms per request (R² 1.00, off by at most 0.0 %)"
    assert growth["speculative", "draft", "host gaps"].per_request_ns == pytest.approx(0, abs=1e-3)
    assert growth["plain", None, None].ns == (4 * MS, 5 * MS, 8 * MS)


def test_too_few_points_are_said() -> None:
    found = economics_of(by_hand()[:4])
    assert found.growth[0].base_ns is None
    assert found.growth[0].text == "the cycle: 6.00 ms at 1 and 12.0 ms at 4: too few points for a line, which takes 3"
    assert found.crossover.estimate == Crossing("above")
    assert "pays at every recorded concurrency: the crossover lies above 4, not recorded" in found.sentences[0]
    assert found.sentences[2].startswith("At concurrency 4, where it is nearest to losing, it pays until the accept ")


def test_no_line_is_drawn_through_what_is_none() -> None:
    traces = by_hand()
    plain = step("plain", 4, even(5 * MS), {("decode", "compute"): 4 * MS, ("decode", "gap_host"): MS})
    growth = economics_of([traces[0], traces[1], plain, *traces[3:]]).growth
    text = next(one.text for one in growth if one.group == "host gaps" and one.phase == "decode")
    assert text.startswith("decode's host gaps: 0 ns at 1, 1.00 ms at 4 and 0 ns at 16: no straight line (R² ")


def test_prediction_within_ten_percent_or_why_not() -> None:
    """At 16, 1,600 tokens/s of 16 requests at 3 tokens are cycles of 30 ms; 2,000 plain ones are steps of 8 ms."""
    assert economics_of(by_hand()).prediction == (
        "The predicted speed-up is within 5 % of the measured one at 1 and 4; at 16 it is 17 % too low (0.67 against "
        "0.80): the measured throughput amounts to a cycle of 30.0 ms where 36.0 ms were recorded (−17 %) and a plain "
        "step of 8.00 ms where 8.00 ms were recorded (+0 %), prefills and all lengths of context "
        "included (from recorded steps)."
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
    assert "a cycle costs 4.50 plain steps at batch 16 and 1.25 at batch 1" in found.sentences[1]
    assert found.prediction.endswith(
        "(from steps that the engine's host timed without a recorder, but for plain decoding's at 4 and 16 and the "
        "cycle's at 16, which were recorded)."
    )


def test_without_an_accept_length_little_is_known() -> None:
    traces = by_hand()
    unknown = [
        structs.replace(trace, cycle=structs.replace(trace.cycle, accept_len=None))
        if trace.cycle.kind == "speculative"
        else trace
        for trace in traces
    ]
    found = economics_of(
        [structs.replace(t, provenance=structs.replace(t.provenance, tokens_per_s=None)) for t in unknown]
    )
    assert found.crossover.estimate.state == "unknown" and found.lever is None
    assert found.sentences[0] == (
        "Whether draft pays is unknown without its accept length; a cycle costs 1.50 plain steps at 1, 2.40 plain "
        "steps at 4 and 4.50 plain steps at 16."
    )
    assert found.prediction.startswith("The predicted speed-up cannot be checked")


def test_an_accept_length_of_the_user_is_not_measured() -> None:
    traces = [
        structs.replace(t, cycle=structs.replace(t.cycle, accept_len_source="given on the command line"))
        for t in by_hand()
    ]
    found = economics_of(traces)
    assert found.prediction.endswith("checked: the throughput that was measured is of another accept length.")
    row = found.rows[0]
    assert row.measured_speedup is row.prediction_error is row.speculative.throughput_ns is None


def test_repeated_sweeps_stay_apart() -> None:
    traces = by_hand()
    again = [
        structs.replace(t, name=f"again/{t.name}", path=f"again/{t.name}")
        for t in traces
        if t.cycle.kind == "speculative"
    ]
    found = economics([*traces, *again], compare([*traces, *again]))
    assert [[row.speculative.trace for row in one.rows] for one in found] == [
        ["draft/c1", "draft/c4", "draft/c16"],
        ["again/draft/c1", "again/draft/c4", "again/draft/c16"],
    ]


periods = st.lists(st.integers(1_000_000, 90_000_000), min_size=4, max_size=30)


@given(periods, periods)
def test_the_interval_holds_the_estimate(plain: list[int], speculative: list[int]) -> None:
    factors = spread_of_ratio(plain, speculative)
    assert factors is not None and 0 < factors[0] <= 1 <= factors[1]
    assert factors == spread_of_ratio(plain, speculative)


def test_too_few_steps_have_no_interval() -> None:
    assert spread_of_ratio([5, 5, 5], [7, 7, 7, 7]) is None and spread_of_ratio([], [7]) is None


costs = st.lists(st.floats(0.5, 20), min_size=1, max_size=6)


@given(costs, st.floats(1, 16), st.floats(0, 4))
def test_the_crossover_grows_with_the_accept_length(found: list[float], accept_len: float, more: float) -> None:
    batch_sizes = [2**power for power in range(len(found))]
    low, high = (crossing(batch_sizes, [length - cost for cost in found]) for length in (accept_len, accept_len + more))
    assert _place(low, batch_sizes) <= _place(high, batch_sizes) * (1 + 1e-9)


def _place(found: Crossing, batch_sizes: list[int]) -> float:
    return {"below": 0.0, "above": math.inf}.get(found.state, found.at or 0.0)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_line_is_found(base: float, slope: float) -> None:
    x = [1.0, 8.0, 32.0, 128.0]
    found = line(x, [base + slope * one for one in x])
    assert found[:2] == pytest.approx((base, slope), abs=1e-3)


def test_a_loss_at_the_lowest_concurrency_is_not_the_last_word() -> None:
    """A host-bound cycle loses at 1, and wins at 4."""
    traces = by_hand()
    slow = step("speculative", 1, even(16 * MS), {("draft", "gap_host"): 16 * MS}, 3.0, 200)
    text = "by its steps it pays only at 4 of the recorded concurrencies"
    assert economics_of([traces[0], slow, *traces[2:]]).crossover.text == text


def test_a_block_bounds_the_accept_length() -> None:
    traces = [
        step("plain", 64, even(2 * MS), {("decode", "compute"): 2 * MS}),
        step("speculative", 64, even(18 * MS), {("verify", "compute"): 18 * MS}, 3.0),
    ]
    assert "9.00 (it is 3.00, and with blocks of 8 tokens never more than 8)" in economics_of(traces).sentences[2]


def test_a_sweep_with_fewer_concurrencies_does_not_mix_with_another() -> None:
    """Whatever order they are given in: the one recorded at 1 and 4 only takes nothing of the other's."""
    traces = by_hand()
    short = [
        structs.replace(t, name=f"short/{t.name}", path=f"short/{t.name}")
        for t in traces
        if t.cycle.kind == "speculative" and t.cycle.batch_size != 16
    ]
    for order in ([*traces, *short], [*short, *traces]):
        found = economics(order, compare(order))
        assert sorted([row.speculative.trace for row in one.rows] for one in found) == [
            ["draft/c1", "draft/c4", "draft/c16"],
            ["short/draft/c1", "short/draft/c4"],
        ]
