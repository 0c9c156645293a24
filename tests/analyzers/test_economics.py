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
from profkit.analyzers.economics.outcome import outcome, outcomes_in_words
from profkit.analyzers.economics.result import Crossing
from profkit.analyzers.result import TraceFigures
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
        "draft wins at concurrency 1 (2.00×) and 4 (1.20×) and loses at 16 (0.80×), by throughput measured without a "
        "recorder, which meets plain decoding's at 7.5; predicted from steps, it pays up to concurrency 5.9 "
        "(spread of the 8 recorded steps: 5.9 to 5.9)."
    )


def unmeasured() -> list[TraceFigures]:
    """The sweep by hand, of which no throughput is known."""
    return [structs.replace(t, provenance=structs.replace(t.provenance, tokens_per_s=None)) for t in by_hand()]


def test_the_lever_is_what_break_even_needs() -> None:
    """Three tokens pay for 24 of the 36 ms: 12 ms too many, of verify's 34."""
    found = economics_of(unmeasured())
    assert found.lever is not None and found.lever.excess_ns == 12 * MS
    assert found.sentences[2] == (
        "Predicted from steps, to break even at concurrency 16 the accept length would have to be 4.50 (it is 3.00), "
        "or the cycle 33 % shorter (it takes 36.0 ms); verify's kernels, 94 % of it as recorded, would alone have to "
        "be 35 % shorter."
    )


def test_the_measured_lever_is_what_throughput_needs() -> None:
    """1,600 tokens/s are cycles of 30 ms; at 2,000 they would be 24: 6 ms too many, of verify's 34/36 of them."""
    found = economics_of(by_hand())
    assert found.lever is not None and found.lever.excess_ns == 12 * MS and found.lever.basis == "predicted"
    measured = found.measured_lever
    assert measured is not None and (measured.cycle_ns, measured.basis) == (30 * MS, "measured")
    assert (measured.excess_ns, measured.part_ns) == pytest.approx((6 * MS, 30 * MS * 34 / 36))
    assert found.sentences[2] == (
        "By measured throughput, to break even at concurrency 16 the accept length would have to be 3.75 (it is 3.00), "
        "or the cycle 20 % shorter (it takes 30.0 ms, prefills included; the recorded steps take 36.0 ms and were not "
        "typical of the run); verify's kernels, 94 % of it as recorded, would alone have to be 21 % shorter."
    )


def test_what_makes_the_gain_shrink() -> None:
    """The three sentences compare measured speed-ups where there are any; what a cycle costs is always of its steps."""
    said = "because by its steps a cycle costs 4.50 plain steps at 16 and 1.50 at 1 (verify's kernels +3.25"
    for traces, change in (
        (by_hand(), "measured without a recorder shrinks from 2.00 at concurrency 1 to 0.80 at 16"),
        (unmeasured(), "predicted from steps shrinks from 2.00 at concurrency 1 to 0.67 at 16"),
    ):
        assert economics_of(traces).sentences[1].startswith(f"The speed-up {change}, {said}")


def test_sentences_of_a_prediction_say_so() -> None:
    found = economics_of(unmeasured())
    assert found.decided_by == "predicted" and found.measured_lever is None
    assert found.sentences[0] == (
        "Predicted from steps, draft wins at concurrency 1 (2.00×) and 4 (1.25×) and loses at 16 (0.67×); it pays up "
        "to concurrency 5.9 (spread of the 8 recorded steps: 5.9 to 5.9)."
    )


def test_a_speedup_that_grows_though_cycles_cost_more() -> None:
    """The throughput of 16 requests is 2.5 times the plain one: its steps do not say why."""
    traces = by_hand()
    better = structs.replace(traces[5], provenance=structs.replace(traces[5].provenance, tokens_per_s=5000))
    said = economics_of([*traces[:5], better]).sentences[1]
    assert said.startswith(
        "The speed-up measured without a recorder grows from 2.00 at concurrency 1 to 2.50 at 16, though by its steps "
    )


@pytest.mark.parametrize(
    ("speedup", "interval", "word"),
    [
        (None, None, None),
        (1.019, None, "even"),
        (0.981, None, "even"),
        (1.021, None, "wins"),
        (0.979, None, "loses"),
        (1.03, (0.99, 1.07), "even"),
        (1.03, (1.02, 1.04), "wins"),
        (0.9, (0.85, 1.0), "even"),
        (0.9, (0.85, 0.95), "loses"),
        (1.01, (1.005, 1.015), "even"),
    ],
)
def test_the_word_for_a_speedup(speedup: float | None, interval: tuple[float, float] | None, word: str | None) -> None:
    assert outcome(speedup, interval) == word


def test_outcomes_in_words() -> None:
    found = [(at, speedup, outcome(speedup)) for at, speedup in ((1, 0.9), (2, 1.01), (4, 1.5), (8, 2.0), (16, None))]
    said = "wins at batch 4 (1.50×) and 8 (2.00×), is even at 2 (1.01×) and loses at 1 (0.90×)"
    assert outcomes_in_words(found, "batch") == said
    assert outcomes_in_words([(1, None, None)]) == "cannot be compared"


def test_an_even_row_is_no_loss() -> None:
    """At 4, a measured 1.01 is even: neither a win nor the first loss."""
    traces = by_hand()
    even_one = structs.replace(traces[3], provenance=structs.replace(traces[3].provenance, tokens_per_s=808))
    found = economics_of([*traces[:3], even_one, *traces[4:]])
    assert [row.outcome for row in found.rows] == ["wins", "even", "loses"]
    assert "wins at concurrency 1 (2.00×), is even at 4 (1.01×) and loses at 16 (0.80×)" in found.sentences[0]
    below = structs.replace(traces[3], provenance=structs.replace(traces[3].provenance, tokens_per_s=792))
    assert "at concurrency 16 the accept" in economics_of([*traces[:3], below, *traces[4:]]).sentences[2]


def test_what_intervals_do_not_hold() -> None:
    """At 1 throughput implies the same 1.5; at 4, 3 / 1.2 = 2.5 where 2.4 has no spread; at 16 3.75 for 4.5."""
    found = economics_of(by_hand())
    assert [row.measured_break_even for row in found.rows] == pytest.approx([1.5, 2.5, 3.75])
    assert found.intervals == (
        "The intervals are the spread of the 8 recorded steps of each recording alone: another recording of the same "
        "configuration can lie outside, and so does the break-even that measured throughput implies, at 4 (2.50) and "
        "16 (3.75)."
    )
    assert economics_of(unmeasured()).intervals.endswith("can lie outside.")
    assert economics_of(by_hand()[:2]).intervals.endswith("implies lies inside.")
    short = [structs.replace(t, cycle=structs.replace(t.cycle, period_ns=t.cycle.period_ns[:3])) for t in by_hand()]
    assert economics_of(short).intervals == ""


def counted_twice(trace: TraceFigures, before: float, after: float) -> TraceFigures:
    """``trace``, whose throughput was counted before and after the recording."""
    mean = (before + after) / 2
    twice = structs.replace(trace.provenance, tokens_per_s=mean, tokens_per_s_before=before, tokens_per_s_after=after)
    return structs.replace(trace, provenance=twice)


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


def test_a_measured_range_that_holds_one_is_even() -> None:
    """At 16 it is 0.8 on average, and 1.02 with the higher of both rates: neither a loss nor what needs a lever."""
    traces = by_hand()
    traces[5] = counted_twice(traces[5], 2040, 1160)
    found = economics_of(traces)
    assert [row.outcome for row in found.rows] == ["wins", "wins", "even"]
    assert "at concurrency 16, where it is even, exactly even" in found.sentences[2]


def test_even_has_its_own_words_for_what_would_change_it() -> None:
    """At 4, 808 tokens/s are 1.01 times the plain ones: no verdict says that it is even and that it pays until."""
    traces = by_hand()[:4]
    for rate, change in (
        (808, "2.97 (it is 3.00) or a cycle 1.0 % longer"),
        (792, "3.03 (it is 3.00) or a cycle 1.0 % shorter"),
    ):
        traces[3] = structs.replace(traces[3], provenance=structs.replace(traces[3].provenance, tokens_per_s=rate))
        found = economics_of(traces)
        assert found.measured_lever is not None and found.measured_lever.outcome == "even"
        assert f"4, where it is even, exactly even would be an accept length of {change}" in found.sentences[2]
        assert found.sentences[2].endswith("; the largest part is verify's kernels, 83 % of it as recorded.")
        assert "pays until" not in found.sentences[2]


def test_steps_that_say_another_word_are_said_first() -> None:
    """At 16 steps say 0.67, at 4 1.25; the measured throughput has it the other way round."""
    traces = by_hand()
    for place, rate in ((3, 600), (5, 3000)):
        traces[place] = structs.replace(
            traces[place], provenance=structs.replace(traces[place].provenance, tokens_per_s=rate)
        )
    said = economics_of(traces).sentences[0]
    assert (
        "though at 4 its steps alone say that it wins by 25 % and at 16 its steps alone say that it loses by 33 %;"
        in said
    )
    assert "steps alone" not in economics_of(by_hand()).sentences[0]


def test_intervals_say_how_many_steps_break_even_rests_on() -> None:
    traces = by_hand()
    known = [
        structs.replace(t, provenance=structs.replace(t.provenance, timed_steps=n))
        for t, n in zip(traces, (1873, 900), strict=False)
    ]
    timed = {name: StepTimes(ns * MS, 1, 1, 9) for name, ns in (("plain/c1", 4), ("draft/c1", 6))}
    found = economics_of([*known, *traces[2:]], timed)
    assert [found.rows[0].plain.unrecorded_steps, found.rows[1].plain.unrecorded_steps] == [1873, None]
    assert "while break-even rests on 900 to 1,873 that were timed without a recorder: another" in found.intervals
    assert "95 %" not in "".join((*found.sentences, found.intervals))


def test_growth_by_hand() -> None:
    """Verify's kernels are 2 ms + 2 ms per request; draft's do not grow."""
    growth = {(one.decoding, one.phase, one.group): one for one in economics_of(by_hand()).growth}
    verify = growth["speculative", "verify", "kernels"]
    assert (verify.base_ns, verify.per_request_ns, verify.r2) == pytest.approx((2 * MS, 2 * MS, 1.0))
    assert verify.text == "verify's kernels: 2.00 ms + 2.00 ms per request (R² 1.00, off by at most 0.0 %)"
    assert growth["speculative", "draft", "host gaps"].per_request_ns == pytest.approx(0, abs=1e-3)
    assert growth["plain", None, None].ns == (4 * MS, 5 * MS, 8 * MS)
    assert growth["speculative", None, None].plain_steps == (1.5, 2.4, 4.5)
    assert verify.plain_steps == pytest.approx((1, 2, 34 / 8))
    assert growth["plain", "decode", "kernels"].plain_steps == (1, 1, 1)


def test_phases_have_names() -> None:
    parts = {("step_other", "gap_host"): 2 * MS, ("kv_append", "compute"): 2 * MS, ("verify", "compute"): 2 * MS}
    traces = [
        step("plain", 1, even(2 * MS), {("decode", "compute"): 2 * MS}),
        step("speculative", 1, even(6 * MS), parts),
    ]
    texts = [one.text.split(":")[0] for one in economics_of(traces).growth]
    assert {"rest of the step", "host gaps in the rest of the step", "KV append", "KV append's kernels"} < set(texts)


def test_too_few_points_are_said() -> None:
    found = economics_of(by_hand()[:4])
    assert found.growth[0].base_ns is None
    assert found.growth[0].text == "the cycle: 6.00 ms at 1 and 12.0 ms at 4: too few points for a line, which takes 3"
    assert found.crossover.estimate == Crossing("above")
    assert "predicted from steps, the concurrency up to which it pays lies above 4, the highest" in found.sentences[0]
    assert found.sentences[2] == (
        "By measured throughput, at concurrency 4, where it is nearest to losing, it pays until the accept length "
        "falls to 2.50 (it is 3.00) or the cycle gets 20 % longer (it takes 12.5 ms, prefills included); verify's "
        "kernels, 83 % of it as recorded, could alone be 24 % longer."
    )


def test_no_line_is_drawn_through_what_is_none() -> None:
    traces = by_hand()
    plain = step("plain", 4, even(5 * MS), {("decode", "compute"): 4 * MS, ("decode", "gap_host"): MS})
    growth = economics_of([traces[0], traces[1], plain, *traces[3:]]).growth
    text = next(one.text for one in growth if one.group == "host gaps" and one.phase == "decode")
    assert text.startswith("decode's host gaps: 0 ns at 1, 1.00 ms at 4 and 0 ns at 16: no straight line (R² ")


def test_a_line_far_off_a_value_is_off_by_more_than_that_value() -> None:
    """0.1, 0.1 and 4 ms of host gaps at 1, 4 and 16: off by up to 200 % and more, which nobody needs to know."""
    traces = by_hand()
    for place, batch, gap in ((0, 1, MS // 10), (2, 4, MS // 10), (4, 16, 4 * MS)):
        cells = {("decode", "compute"): 4 * MS, ("decode", "gap_host"): gap}
        traces[place] = step("plain", batch, even(4 * MS + gap), cells)
    text = next(one.text for one in economics_of(traces).growth if one.group == "host gaps" and one.phase == "decode")
    assert text.endswith(", off by more than 100 %)")


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
        "Whether draft pays is unknown without its accept length; predicted from steps, a cycle costs 1.50 plain steps "
        "at 1, 2.40 plain steps at 4 and 4.50 plain steps at 16."
    )
    assert found.sentences[1].startswith("By its steps, a cycle costs 4.50 plain steps at 16")
    assert found.prediction.startswith("The speed-up predicted from recorded steps cannot be checked")
    assert found.decided_by is None and {row.outcome for row in found.rows} == {None}


def test_rates_decide_without_an_accept_length_too() -> None:
    """They say where it wins, but neither what it would take nor a break-even."""
    traces = [
        structs.replace(t, cycle=structs.replace(t.cycle, accept_len=None)) if t.cycle.kind == "speculative" else t
        for t in by_hand()
    ]
    found = economics_of(traces)
    assert [row.outcome for row in found.rows] == ["wins", "wins", "loses"] and found.decided_by == "measured"
    assert found.lever is found.measured_lever is found.rows[0].measured_break_even is None
    assert (
        found.sentences[2]
        == "What would move the line is unknown without the accept length: give one with --accept-len."
    )
    assert found.intervals.endswith("can lie outside.")
    assert found.prediction.endswith("cannot be checked: the accept length is not known.")


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
    text = "predicted from steps, it pays only at 4 of the recorded concurrencies"
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
