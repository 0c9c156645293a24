"""Where speculation wins, is even and loses, and in which words."""

from __future__ import annotations

import pytest
from msgspec import structs

from profkit.analyzers.economics.outcome import outcome, outcomes_in_words
from tests.analyzers.sweeps_by_hand import by_hand, counted_twice, economics_of, unmeasured


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


def test_sentences_of_a_prediction_say_so() -> None:
    found = economics_of(unmeasured())
    assert found.decided_by == "predicted" and found.measured_lever is None
    assert found.sentences[0] == (
        "Predicted from steps, draft wins at concurrency 1 (2.00×) and 4 (1.25×) and loses at 16 (0.67×); it pays up "
        "to concurrency 5.9 (spread of the 8 recorded steps: 5.9 to 5.9)."
    )


def test_an_even_row_is_no_loss() -> None:
    """At 4, a measured 1.01 is even: neither a win nor the first loss."""
    traces = by_hand()
    even_one = structs.replace(traces[3], provenance=structs.replace(traces[3].provenance, tokens_per_s=808))
    found = economics_of([*traces[:3], even_one, *traces[4:]])
    assert [row.outcome for row in found.rows] == ["wins", "even", "loses"]
    assert "wins at concurrency 1 (2.00×), is even at 4 (1.01×) and loses at 16 (0.80×)" in found.sentences[0]
    below = structs.replace(traces[3], provenance=structs.replace(traces[3].provenance, tokens_per_s=792))
    assert "at concurrency 16 the accept" in economics_of([*traces[:3], below, *traces[4:]]).sentences[2]


def test_a_measured_range_that_holds_one_is_even() -> None:
    """At 16 it is 0.8 on average, and 1.02 with the higher of both rates: neither a loss nor what needs a lever."""
    traces = by_hand()
    traces[5] = counted_twice(traces[5], 2040, 1160)
    found = economics_of(traces)
    assert [row.outcome for row in found.rows] == ["wins", "wins", "even"]
    assert "at concurrency 16, where it is even, exactly even" in found.sentences[2]


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
