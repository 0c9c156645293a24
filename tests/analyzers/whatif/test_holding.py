"""Levers of the GPU where the host holds the step back, and with which host their low bound is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.analyzers import attribute
from profkit.analyzers.analysis import Recording
from profkit.analyzers.whatif import LINKS, Request
from profkit.analyzers.whatif.case import Case, case_of
from profkit.analyzers.whatif.holding import HELD, fastest_host
from profkit.traces import RecordingCost, StepTimes, Trace
from tests.analyzers.engine import Plan, run
from tests.analyzers.whatif.recordings import alone, answers, linked, speculative

BY_GPU = Request(drafter=0.3), Request(link=LINKS["nvlink4"]), Request(overlap_draft=True)


def host_bound() -> Trace:
    """Python of 60 us before each launch: GPUs wait for their hosts."""
    slow = Plan(eager=True, python_per_launch=60_000)
    trace = linked(run(slow, slow))
    return trace.with_run(replace(trace.run, accept_len=3.0, block_size=8))


def timed(trace: Trace, ratio: float, error: float = 0.0) -> Trace:
    """With a step that is ``ratio`` times as long as without a recorder."""
    times, cost = StepTimes(10_000_000, 9_000_000, 12_000_000, 50), RecordingCost(ratio, error, 50, 9)
    return trace.with_run(replace(trace.run, step_times=times, recording_cost=cost))


def case(trace: Trace) -> Case:
    found = case_of(Recording("any", "any", trace), attribute(trace), ())
    assert isinstance(found, Case)
    return found


@pytest.mark.parametrize("request_", BY_GPU, ids=lambda one: one.name)
def test_what_the_host_hides_has_a_low_bound_beside_a_free_host(request_: Request) -> None:
    found = answers(request_, host_bound())[0]
    assert found.now is not None
    (outcome,), now = found.alone, found.now.step_ns.usual
    assert outcome.then.step_ns.low < 0.7 * now and outcome.then.step_ns.high == now
    assert outcome.held_back.startswith(HELD) and "takes no time" in outcome.held_back
    assert found.text.endswith(f"; {HELD}.")


def test_a_small_gain_is_hidden_by_a_very_slow_host_too() -> None:
    slow = Plan(eager=True, python_per_launch=5_000_000)
    outcome = alone(Request(link=LINKS["nvlink4"]), linked(run(slow, slow)))
    assert outcome.held_back and outcome.then.step_ns.low < 0.1 * outcome.then.step_ns.usual


def test_no_more_than_recording_cost_is_taken_off_the_host() -> None:
    """A step recorded 1.2 to 1.25 times as long: the host is sped up until it is 1.25 times as short, not more."""
    trace = timed(host_bound(), 1.2, 0.05)
    outcome = alone(Request(link=LINKS["nvlink4"]), trace)
    now = outcome.then.step_ns.usual + outcome.saved_ns.usual
    assert outcome.then.step_ns.low == pytest.approx(now / 1.25, rel=0.02)
    assert "recording made a step at most 1.25 times as long" in outcome.held_back
    assert 0.7 < fastest_host(case(trace)).pace < 0.9


def test_where_recording_cost_nothing_the_host_is_as_recorded() -> None:
    outcome = alone(Request(link=LINKS["nvlink4"]), timed(host_bound(), 0.9, 0.05))
    assert outcome.held_back and outcome.then.step_ns.low == outcome.then.step_ns.high


def test_a_step_that_the_gpu_makes_is_not_held_back() -> None:
    for request in BY_GPU[:2]:
        outcome = alone(request, speculative(1), speculative(4))
        assert not outcome.held_back and outcome.saved_ns.usual > 0


def test_levers_of_the_host_are_not_held_back_by_it() -> None:
    assert not alone(Request(graphs=True), host_bound()).held_back
    assert not alone(Request(align_launches=True), host_bound()).held_back


def test_with_graphs_the_host_no_longer_hides_a_drafter() -> None:
    found = answers(Request(graphs=True, drafter=0.0), host_bound())[0]
    drafter = next(one for one in found.alone if one.levers == ("drafter",))
    assert found.combined is not None and drafter.held_back and not found.combined.held_back
