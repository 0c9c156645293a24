"""What is said of what was asked: ranges as in the table, bounds as bounds, and what was left out."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from profkit.analyzers.whatif import LINKS, Request
from profkit.analyzers.whatif.result import RecordingWhatIf
from profkit.analyzers.whatif.sentence import surest
from profkit.analyzers.words import between, duration
from tests.analyzers.whatif.recordings import answers, plain, speculative

NO_GRAPHS = "no forward of a decode step is launched kernel by kernel"


def said_of(request: Request) -> RecordingWhatIf:
    return answers(request, speculative(1), plain(1), speculative(4))[0]


def test_one_lever_is_said_with_its_range_even_where_it_gains_nothing() -> None:
    found = said_of(Request(block_size=16))
    then, now = found.alone[0].then, found.now
    cost, rate = then.us_per_token, then.speedup
    assert now is not None and now.us_per_token is not None and now.speedup is not None
    assert cost is not None and rate is not None and cost.usual > now.us_per_token.usual
    step = between(duration(then.step_ns.low), duration(then.step_ns.high))
    micros = between(duration(cost.low * 1e3), duration(cost.high * 1e3))
    assert found.text == (
        f"With block size 16 the step takes {duration(then.step_ns.usual)} ({step}) instead of "
        f"{duration(now.step_ns.usual)}, and a token takes {duration(cost.usual * 1e3)} ({micros}) instead of "
        f"{duration(now.us_per_token.usual * 1e3)}: {rate.usual:.2f} ({rate.low:.2f} – {rate.high:.2f}) times plain "
        f"decoding's rate, now {now.speedup.usual:.2f}."
    )


def test_what_cannot_differ_is_said_without_a_range() -> None:
    found = said_of(Request(drafter=1.0))
    step, token = (duration(ns) for ns in (found.now.step_ns.usual, found.now.us_per_token.usual * 1e3))  # type: ignore
    assert found.text.startswith(f"With drafter × 1 the step takes {step} as now, and a token takes {token} as now: ")


@pytest.mark.parametrize("request_", [Request(overlap_draft=True), Request(overlap_draft=True, drafter=2.0)])
def test_a_bound_is_said_as_one(request_: Request) -> None:
    found = said_of(request_)
    shown = found.combined or found.alone[0]
    assert shown.bound and shown.bound_by == ("draft beside verify",)
    assert f"the step takes {duration(shown.then.step_ns.low)} at best, instead of " in found.text
    assert found.text.endswith("; a bound, no prediction.")


def test_predictions_are_no_bounds() -> None:
    found = said_of(Request(drafter=0.5, link=LINKS["nvlink4"]))
    assert found.combined is not None and not found.combined.bound and found.combined.bound_by == ()
    assert "bound" not in found.text


def test_a_combination_says_what_it_does_without_and_why() -> None:
    found = said_of(Request(graphs=True, drafter=0.5, link=LINKS["nvlink4"]))
    assert found.combined is not None and found.combined.levers == ("drafter", "link")
    assert [(one.lever, one.reason) for one in found.left_out] == [("graphs", NO_GRAPHS)]
    assert found.text.endswith(f" Left out: CUDA graphs ({NO_GRAPHS}).")
    encoded = msgspec.json.decode(msgspec.json.encode(found))
    assert encoded["left_out"] == [{"lever": "graphs", "name": "CUDA graphs", "reason": NO_GRAPHS}]


def test_of_two_levers_one_is_left() -> None:
    found = said_of(Request(accept_len=6.0, block_size=4))
    assert found.combined is None and found.text.startswith("With block size 4 (below the rec")
    assert found.text.endswith(" Left out: accept length 6 (a block of 4 gives no more than 4 tokens a step).")


def test_all_are_left_out() -> None:
    found = answers(Request(accept_len=6.0, block_size=4), plain(1))[0]
    assert not found.answers and found.text == "Nothing that was asked can be said of this recording."


def test_what_depends_on_a_lever_that_is_left_out_is_left_out_too() -> None:
    """An accept length of 10 needs the block of 16, which the recording does not carry without its batch size."""
    trace = speculative(1)
    strings = tuple("step:decode" if text.startswith("step:decode") else text for text in trace.strings)
    found = answers(Request(accept_len=10.0, block_size=16, drafter=0.5), replace(trace, strings=strings))[0]
    assert [one.lever for one in found.left_out] == ["block_size", "accept_len"]
    assert found.combined is None and found.text.startswith("With drafter × 0.5 ")


def test_nothing_sure_to_gain_is_said_so() -> None:
    found = said_of(Request(drafter=1.0))
    assert found.now is not None
    nothing = "Nothing that was tried is sure to make a token cheaper by 1 % or more."
    assert surest(found.now, found.alone) == nothing
    bound = said_of(Request(overlap_draft=True)).alone
    assert surest(found.now, [*found.alone, *bound]) == nothing
    assert surest(found.now, bound) == "Nothing that was asked can be said of this recording."
