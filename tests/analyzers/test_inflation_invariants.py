"""What must hold of the cost of recording, whatever the recording."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.analyzers.inflation_parts import apportioned, without_excess
from profkit.traces import Run, StepTimes, Trace
from tests.analyzers.random_traces import traces
from tests.analyzers.test_inflation import figures_of

weights = st.lists(st.integers(0, 10**9), min_size=1, max_size=30)


@given(weights, st.integers(0, 10**10))
def test_shares_sum_to_what_is_shared(own: list[int], total: int) -> None:
    found = apportioned(total, own)
    assert sum(found) == (total if any(own) else 0) and min(found) >= 0
    if total <= sum(own):
        assert all(part <= weight for part, weight in zip(found, own, strict=True))


@given(st.lists(st.tuples(st.integers(0, 10**8), st.floats(0, 1)), min_size=1, max_size=30), st.data())
def test_estimates_of_any_step(cells: list[tuple[int, float]], data: st.DataObject) -> None:
    recorded, host = [own for own, _ in cells], [int(own * part) for own, part in cells]
    target = data.draw(st.integers(0, sum(recorded) + 100))
    most = [data.draw(st.integers(late, own)) for own, late in zip(recorded, host, strict=True)]
    found = without_excess(recorded, host, target, most)
    assert sum(found) == min(target, sum(recorded))
    assert all(0 <= one <= own for one, own in zip(found, recorded, strict=True))
    if sum(recorded) - target <= sum(most):
        assert all(own - one <= can for one, own, can in zip(found, recorded, most, strict=True))


@settings(max_examples=60, deadline=None)
@given(traces(), st.integers(1, 80), st.integers(0, 20))
def test_parts_of_any_recording_sum_to_the_step(trace: Trace, median: int, spread: int) -> None:
    times = StepTimes(median, max(median - spread, 0), median + spread, 9)
    found = figures_of(trace.with_run(Run(step_times=times))).inflation
    if found is None or not found.parts:
        return
    assert sum(row.recorded_ns for row in found.parts) == found.recorded_ns
    assert sum(row.unrecorded_ns or 0 for row in found.parts) == found.unrecorded_ns
    for row in found.parts:
        assert row.low_ns is not None and row.unrecorded_ns is not None and row.high_ns is not None
        assert 0 <= row.low_ns <= row.unrecorded_ns <= min(row.high_ns, row.recorded_ns)
        assert 0 <= row.lengthened_ns <= row.recorded_ns
