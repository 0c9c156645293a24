"""Changes of the cells sum to the total's to the nanosecond, whatever the recordings are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.analyzers.diff.grid import apportioned
from profkit.analyzers.diff.side import cells_of
from profkit.traces import Trace
from tests.analyzers.random_traces import traces

from .pairs import at_concurrency, compared, side_of


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
    from .pairs import Served, trace_of

    trace = at_concurrency(trace_of(Served(seed=9), 8), 1, 2.5)
    pair = compared(trace, trace, "step" if per == "step" else "token")
    assert pair.comparable.identical and "A and B are the same recording" in pair.comparable.reasons
    assert pair.total is not None and pair.total.delta_ns == 0
    assert not any(row.delta_ns or row.significant for row in (*pair.parts, *pair.kernels))
    assert pair.summary == "A and B are the same recording, so nothing changed."
