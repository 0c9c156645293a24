"""A few steps that are far longer than the others: the mean's cause is theirs, and that is said."""

from __future__ import annotations

from dataclasses import replace

from profkit import Recording, analyze
from profkit.analyzers.result import TraceFigures
from profkit.traces import Trace
from tests.analyzers.engine import run
from tests.analyzers.test_verdict import CALM

SLOW_ONCE = replace(CALM, late_before_target=60_000_000, late_steps=(100, 7))


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("planted", "planted", trace)])[0].traces[0]


def outliers_in(figures: TraceFigures) -> list[str]:
    return [check.detail for check in figures.health.checks if check.id == "outliers" and check.status == "warn"]


def test_one_long_step_of_one_rank() -> None:
    figures = figures_of(run(CALM, SLOW_ONCE, steps=20))
    assert (figures.verdict[0].cause, figures.verdict[0].rank) == ("straggler_host", 1)
    (told,) = outliers_in(figures)
    assert told.startswith("1 of 20 steps takes 6") and "(step 7, counted from 0)" in told
    assert " But 1 of 20 steps takes 6" in figures.summary
    assert figures.summary.endswith("look at what happened in that step, as the average hides it.")


def test_long_steps_that_are_no_exception() -> None:
    """Every third step is long: that is how the engine runs, and its spread is told."""
    figures = figures_of(run(CALM, replace(SLOW_ONCE, late_steps=(3, 1)), steps=20))
    assert outliers_in(figures) == [] and "But" not in figures.summary


def test_a_steady_recording_has_none() -> None:
    figures = figures_of(run(CALM, replace(CALM, late_before_target=4_000_000), steps=20))
    assert outliers_in(figures) == [] and "But" not in figures.summary


def test_another_cause_is_not_put_down_to_the_long_step() -> None:
    """A slow GPU costs 24 layers times 200 us in each of 20 steps, the one long step far less in the mean."""
    slow = replace(CALM, speed=3.0)
    figures = figures_of(run(CALM, replace(slow, late_before_target=40_000_000, late_steps=(100, 7)), steps=20))
    assert (figures.verdict[0].cause, figures.verdict[0].rank) == ("straggler_compute", 1)
    assert "But" not in figures.summary and len(outliers_in(figures)) == 1
