"""What it would take to break even: another accept length, a shorter cycle, or a shorter part of it."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.analyzers.sweeps_by_hand import MS, by_hand, economics_of, even, step, unmeasured


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


def test_a_block_bounds_the_accept_length() -> None:
    traces = [
        step("plain", 64, even(2 * MS), {("decode", "compute"): 2 * MS}),
        step("speculative", 64, even(18 * MS), {("verify", "compute"): 18 * MS}, 3.0),
    ]
    assert "9.00 (it is 3.00, and with blocks of 8 tokens never more than 8)" in economics_of(traces).sentences[2]
