"""How the parts of a cycle grow with concurrency, and what makes the gain change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from profkit.analyzers.economics.growth import line
from profkit.analyzers.economics.result import Crossing
from tests.analyzers.sweeps_by_hand import MS, by_hand, economics_of, even, step, unmeasured


def test_what_makes_the_gain_shrink() -> None:
    """The three sentences compare measured speed-ups where there are any; what a cycle costs is always of its steps."""
    said = "because by its steps a cycle costs 4.50 plain steps at 16 and 1.50 at 1 (verify's kernels +3.25"
    for traces, change in (
        (by_hand(), "measured without a recorder shrinks from 2.00 at concurrency 1 to 0.80 at 16"),
        (unmeasured(), "predicted from steps shrinks from 2.00 at concurrency 1 to 0.67 at 16"),
    ):
        assert economics_of(traces).sentences[1].startswith(f"The speed-up {change}, {said}")


def test_a_speedup_that_grows_though_cycles_cost_more() -> None:
    """The throughput of 16 requests is 2.5 times the plain one: its steps do not say why."""
    traces = by_hand()
    better = structs.replace(traces[5], provenance=structs.replace(traces[5].provenance, tokens_per_s=5000))
    said = economics_of([*traces[:5], better]).sentences[1]
    assert said.startswith(
        "The speed-up measured without a recorder grows from 2.00 at concurrency 1 to 2.50 at 16, though by its steps "
    )


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


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_line_is_found(base: float, slope: float) -> None:
    x = [1.0, 8.0, 32.0, 128.0]
    found = line(x, [base + slope * one for one in x])
    assert found[:2] == pytest.approx((base, slope), abs=1e-3)
