"""Up to which concurrency speculation pays, and how far that is known: by hand, and whatever the figures are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from profkit.analyzers.economics.break_even import crossing, spread_of_ratio
from profkit.analyzers.economics.result import Crossing
from profkit.traces import StepTimes
from tests.analyzers.sweeps_by_hand import MS, by_hand, economics_of, even, step, unmeasured


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


def test_a_loss_at_the_lowest_concurrency_is_not_the_last_word() -> None:
    """A host-bound cycle loses at 1, and wins at 4."""
    traces = by_hand()
    slow = step("speculative", 1, even(16 * MS), {("draft", "gap_host"): 16 * MS}, 3.0, 200)
    text = "predicted from steps, it pays only at 4 of the recorded concurrencies"
    assert economics_of([traces[0], slow, *traces[2:]]).crossover.text == text


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
