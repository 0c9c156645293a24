"""What-ifs in a terminal: bounds as ranges, and marks with what they mean."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from profkit.analyzers.whatif import Request, WhatIf
from profkit.analyzers.whatif.result import SCHEMA, Outcome, RecordingWhatIf
from profkit.analyzers.words import between, duration
from profkit.reports.whatif import render_what_if
from profkit.reports.whatif_rows import notes_on, row_of
from profkit.traces import StepTimes, Trace
from tests.analyzers.whatif.recordings import answers, plain, refusal, speculative


def shown(*found: RecordingWhatIf, width: int = 160) -> str:
    return render_what_if(WhatIf(SCHEMA, ("any",), found), width)


def cells(found: RecordingWhatIf, outcome: Outcome) -> list[str]:
    assert found.now is not None
    return row_of("lever", outcome, found.now)


def test_a_bound_has_no_middle_in_any_column() -> None:
    found = answers(Request(overlap_draft=True, drafter=0.5), speculative(1), plain(1))[0]
    assert found.combined is not None
    then = found.combined.then
    assert then.us_per_token and then.tokens_per_s and then.speedup and then.break_even_accept_len
    row = cells(found, found.combined)
    assert row[0] == "lever *" and row[1] == ""
    assert row[3] == between(duration(then.step_ns.low), duration(then.step_ns.high))
    assert row[4] == between(duration(then.us_per_token.low * 1e3), duration(then.us_per_token.high * 1e3))
    assert row[5] == f"{then.tokens_per_s.low:,.0f} – {then.tokens_per_s.high:,.0f}"
    assert row[6] == f"{then.speedup.low:.2f} – {then.speedup.high:.2f}"
    assert row[7] == f"{then.break_even_accept_len.low:.2f} – {then.break_even_accept_len.high:.2f}"
    assert f"takes {duration(then.step_ns.low)} at best" in found.text


@pytest.mark.parametrize(
    "size, said", [(16, "beyond the recordings: 16 tokens, at most 8"), (4, "below the recordings: 4")]
)
def test_more_tokens_than_recorded_are_named_on_the_row(size: int, said: str) -> None:
    found = answers(Request(block_size=size), speculative(1))[0]
    assert cells(found, found.alone[0])[0] == "lever ‡" and said in found.text
    assert f"‡ block size {size}: {said}" in shown(found)


def test_one_token_is_one() -> None:
    assert "below the recordings: 1 token, at least 8 recorded" in shown(
        answers(Request(block_size=1), speculative(1))[0]
    )


def test_what_only_the_combination_uses_is_explained_too() -> None:
    """9 tokens do not fit into a block of 8, and do into the one of 16 that is asked for as well."""
    out = shown(answers(Request(accept_len=9.0, block_size=16), speculative(1))[0])
    assert "\nall together ‡ ?" in out
    assert "\n? accept length 9: other contexts are met, by which the step differs by an unknown amount; not in" in out
    refused = "! accept length 9 alone: a block of 8 gives no more than 8 tokens a step; “all together” uses it"
    assert f"\n{refused}\n" in out
    assert "\naccept length  accepting more or fewer tokens leaves the step as it is" in out


def test_what_no_combination_uses_is_refused_as_such() -> None:
    for request in (Request(accept_len=9.0), Request(accept_len=9.0, drafter=0.5, overlap_draft=True)):
        lines = shown(answers(request, speculative(1))[0]).splitlines()
        assert "! accept length 9: a block of 8 gives no more than 8 tokens a step" in lines


def test_the_headline_says_where_only_one_of_the_two_ran_with_graphs() -> None:
    request = Request(drafter=0.5)
    assert "× plain decoding (made/1)" in shown(answers(request, speculative(1), plain(1))[0])
    unlike = answers(request, speculative(1, eager=True), plain(1))[0]
    assert "× plain decoding (made/1; only one ran with CUDA graphs)" in shown(unlike)


def test_as_many_tokens_as_recorded_are_not() -> None:
    found = answers(Request(block_size=16), speculative(1), speculative(4))[0]
    assert not found.alone[0].beyond and "‡" not in shown(found)


def test_far_more_tokens_than_recorded_are_refused() -> None:
    assert not answers(Request(block_size=32), speculative(1))[0].refused
    reason = "beyond the recordings: 33 tokens, at most 8 recorded, and beyond 4 times as many nothing can be told"
    assert refusal(Request(block_size=33), speculative(1)) == reason


def test_no_dash_where_something_is_known_to_be_open() -> None:
    found = answers(Request(accept_len=2.0), speculative(1, accept_len=None))[0]
    (outcome,) = found.alone
    assert outcome.then.step_ns.low == outcome.then.step_ns.high and outcome.not_in_bounds
    row = cells(found, outcome)
    assert (row[0], row[3]) == ("lever ?", "not known") and notes_on([outcome])[0].startswith("? accept length 2: ")
    certain = structs.replace(outcome, not_in_bounds="")
    assert (cells(found, certain)[0], cells(found, certain)[3]) == ("lever", "–")


def served(trace: Trace, median: int, rate: float) -> Trace:
    times = StepTimes(median, median // 2, 2 * median, 50)
    return trace.with_run(replace(trace.run, step_times=times, tokens_per_s=rate))


def test_the_headline_says_on_what_it_rests_and_what_is_known_without_a_recorder() -> None:
    found = answers(Request(drafter=0.5), served(speculative(1), 4_000_000, 600.0), served(plain(1), 2_000_000, 400.0))
    without = found[0].unrecorded
    assert found[0].basis == "recorded" and without is not None
    assert (without.step_ns, without.break_even_accept_len) == (4_000_000, 2.0)
    assert without.throughput_break_even == pytest.approx(3 / 1.5)
    said = (
        "without a recorder analyze says: step 4.00 ms, 600 tokens/s with prefills, pays above 2.00 by steps and 2.00"
    )
    assert said in shown(*found)
    alone = answers(Request(drafter=0.5), speculative(1))[0]
    assert alone.unrecorded is None and "\nsteps as recorded\n" in shown(alone)


@pytest.mark.parametrize("width", [80, 100, 110, 140])
def test_columns_go_where_there_is_no_room(width: int) -> None:
    out = shown(answers(Request(overlap_draft=True, block_size=16), speculative(1), plain(1))[0], width=width)
    assert all(len(line) <= width for line in out.splitlines()) and "…" not in out
    assert ("tokens/s  " in out) == (width == 140)
