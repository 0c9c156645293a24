"""Whether a rank's host is slow by chance or throughout, and how far its pace reaches."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.analyzers.replay.pace import LEAST_PACE, paces_of, slower_throughout
from tests.analyzers.engine import Plan, run
from tests.analyzers.replay.steps import predicted, true_step


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("late", [1_000_000, 3_000_000, 6_000_000, 12_000_000])
def test_a_rank_with_python_of_its_own(late: int, ranks: int) -> None:
    rest = [Plan(eager=True, python_per_launch=30_000)] * (ranks - 1)
    found = predicted(run(*rest, Plan(eager=True, python_per_launch=30_000, late_before_target=late)))
    truth = true_step(run(*[Plan()] * (ranks - 1), Plan(late_before_target=late)))
    assert found.unknown is None and found.recorded_ns is not None
    assert found.low_ns is not None and found.step_ns is not None and found.high_ns is not None
    assert found.step_ns == pytest.approx(truth, rel=0.03)
    assert found.low_ns <= truth <= found.high_ns * 1.03 and found.high_ns < 3 * found.low_ns


def test_chance_is_shared() -> None:
    times = np.array([[9.0, 12.0, 9.5, 11.0, 10.0], [10.0, 9.0, 11.0, 10.5, 12.0]])
    assert not slower_throughout(times)
    paces = paces_of(times)
    assert not paces.own
    # Each rank's median becomes that of all, 10.25.
    assert paces.usual.tolist() == pytest.approx([10.25 / 10, 10.25 / 10.5])
    assert np.all(paces.fast <= paces.usual) and np.all(paces.usual <= paces.slow)


def test_no_rank_becomes_slower_than_its_own_steps() -> None:
    # The second one is slower in three steps of five only, so that this is taken for chance.
    times = np.array([[10.0, 10.1, 10.0, 10.1, 10.0], [90.0, 1.0, 90.0, 1.0, 90.0]])
    paces = paces_of(times)
    assert not paces.own and paces.slow[0] <= 1.01


def test_what_holds_throughout_stays() -> None:
    times = np.array([[10.0, 11.0, 10.0, 11.0, 10.0], [60.0, 61.0, 60.0, 61.0, 60.0]])
    paces = paces_of(times)
    assert slower_throughout(times) and paces.own
    assert paces.usual.tolist() == [1, 1]
    # Only for the lower bound it is chance, and by a factor of two at most.
    assert paces.fast[1] == LEAST_PACE and paces.slow[1] < 1.02


def test_threads_without_steps_keep_their_pace() -> None:
    times = np.array([[np.nan] * 4, [10.0, 11.0, 10.0, np.nan]])
    assert paces_of(times).usual.tolist() == [1, 1]
