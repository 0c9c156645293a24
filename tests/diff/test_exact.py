"""Changes of the cells sum to the total's to the nanosecond, whatever the recordings are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.analyzers.diff import diff, parse_limit
from profkit.analyzers.diff.flame import diff_flame
from profkit.analyzers.diff.grid import apportioned
from profkit.analyzers.diff.side import cells_of
from profkit.traces import Trace
from tests.analyzers.random_traces import traces

from .pairs import Served, at_concurrency, compared, side_of, trace_of


@settings(max_examples=150, deadline=None)
@given(traces(), traces(), st.sampled_from(["step", "token"]))
def test_parts_sum_to_the_total(a: Trace, b: Trace, per: str) -> None:
    a, b = at_concurrency(a, 1, 3.3), at_concurrency(b, 1, 1.7)
    pair = compared(a, b, "step" if per == "step" else "token")
    if pair.total is None:
        assert pair.comparable.status == "no" and pair.comparable.reasons and not pair.parts
        return
    for name in ("a_ns", "b_ns", "delta_ns"):
        assert sum(getattr(row, name) for row in pair.parts) == getattr(pair.total, name)
    for row in (*pair.parts, pair.total):
        assert row.delta_ns == row.b_ns - row.a_ns and min(row.a_ns, row.b_ns) >= 0


@settings(max_examples=100, deadline=None)
@given(traces(), traces())
def test_limits_and_flames_of_anything(a: Trace, b: Trace) -> None:
    """Also of recordings in which nothing takes any time."""
    sides = side_of(a), side_of(b)
    limits = [parse_limit(text) for text in ("total>0%", "target>1%", "verify>1%", "prefill:gemm>2us", "gap_host>1ns")]
    (pair,) = diff(sides[:1], sides[1:], limits=limits).pairs
    if pair.total is not None:
        assert all((judged.status == "unknown") <= (judged.note is not None) for judged in pair.limits)
        diff_flame(*sides, (1.0, 1.0)).check()


@settings(max_examples=150, deadline=None)
@given(traces())
def test_cells_tile_each_step(trace: Trace) -> None:
    side = side_of(trace)
    for device in side.devices():
        bounds = side.bounds(device)
        assert cells_of(side, device).table.sum(axis=1).tolist() == np.diff(bounds).tolist()
        line = side.attribution.devices[device]
        if line.window_start is not None and line.window_end is not None:
            assert (bounds[0], bounds[-1]) == (line.window_start, line.window_end)
            assert round(side.wall(device) * (len(bounds) - 1)) == line.window_end - line.window_start


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40))
def test_apportioned(values: list[float]) -> None:
    shares = np.array(values)
    whole = apportioned(shares, round(shares.sum()))
    assert whole.sum() == round(shares.sum())
    assert np.all(np.abs(whole - shares) < 1 + 1e-6)


def test_apportioned_gives_the_rest_to_the_largest_remainders() -> None:
    assert apportioned(np.array([0.0, 1.4, 1.7, 1.9]), 5).tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize("per", ["step", "token"])
def test_the_same_recording_twice(per: str) -> None:
    trace = at_concurrency(trace_of(Served(seed=9), 8), 1, 2.5)
    pair = compared(trace, trace, "step" if per == "step" else "token")
    assert pair.comparable.identical and pair.comparable.status == "same"
    assert pair.comparable.reasons == ("A and B are the same recording",)
    assert pair.total is not None and pair.total.delta_ns == 0
    assert pair.parts and not any(row.delta_ns or row.significant for row in pair.parts)
    assert {row.ci95_ns for row in (*pair.parts, pair.total)} == {(0, 0)}
    assert (pair.kernels, pair.stories, pair.ranks) == ((), (), ())
    assert pair.summary == "A and B are the same recording, so nothing changed."


@pytest.mark.parametrize("length", [2.1, 3.0, 3.46, 3.51])
def test_intervals_per_token_are_those_of_steps(length: float) -> None:
    """Also of what is constant over steps, such as gaps between the kernels of a graph."""
    a, b = (at_concurrency(trace_of(Served(seed=n, layers=5 + n)), 1, length) for n in (1, 2))
    step, token = compared(a, b), compared(a, b, "token")
    of_step = {(row.phase, row.part, row.kernel_class): row for row in step.parts}
    for row in token.parts:
        same = of_step[row.phase, row.part, row.kernel_class]
        assert row.ci95_ns is not None and same.ci95_ns is not None
        assert row.ci95_ns == pytest.approx([end / length for end in same.ci95_ns], abs=2)
        assert row.significant == same.significant or abs(row.delta_ns) < 10


def test_one_recording_with_two_accept_lengths_is_not_the_same_twice() -> None:
    trace = trace_of(Served(seed=9), 8)
    pair = compared(at_concurrency(trace, 1, 2.5), at_concurrency(trace, 1, 5.0), "token")
    assert not pair.comparable.identical and "accept length: 2.5 in A, 5 in B" in pair.comparable.reasons
    assert pair.total is not None and pair.total.a_ns == pytest.approx(2 * pair.total.b_ns, abs=1)


@pytest.mark.parametrize("per", ["step", "token"])
@pytest.mark.parametrize("drafts", [False, True])
def test_the_target_is_one_phase_where_one_side_drafts(drafts: bool, per: str) -> None:
    """Its cells are those of plain decoding and of verifying, and all sum to the total to the nanosecond."""
    a, b = (at_concurrency(trace_of(Served(seed=n, drafts=drafts is (n == 1)), 8), 1, 2.5) for n in (1, 2))
    pair = compared(a, b, "step" if per == "step" else "token")
    phases = {row.phase for row in pair.parts}
    assert "target" in phases and not phases & {"decode", "verify"}
    assert pair.total is not None
    for name in ("a_ns", "b_ns", "delta_ns"):
        assert sum(getattr(row, name) for row in pair.parts) == getattr(pair.total, name)
    assert all(row.a_ns and row.b_ns for row in pair.parts if (row.phase, row.part) == ("target", "compute"))
    assert {row.phase for row in pair.kernels} == {"target", "draft", "accept"}
    assert {story.phase for story in pair.stories if story.about == "compute"} == {"target", "draft", "accept"}


def test_phases_keep_their_names_where_both_draft() -> None:
    pair = compared(trace_of(Served(seed=1), 8), trace_of(Served(seed=2), 8))
    assert "verify" in {row.phase for row in pair.parts} and "target" not in {row.phase for row in pair.parts}
