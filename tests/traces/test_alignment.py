"""Which steps of two recordings are the same."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.traces.alignment import NOT_THERE, step_shift

RANDOM = np.random.default_rng(7)
ENDS = np.cumsum(RANDOM.integers(6_900_000, 7_200_000, 40))
"""When a rank's 40 steps of about 7 ms end."""

LEAVING = RANDOM.integers(-2_000, 2_000, 40)
"""Ranks leave a step within microseconds of each other."""


@pytest.mark.parametrize("late", [0, 1, 3, 4, 17, 39])
def test_recordings_that_began_apart(late: int) -> None:
    other = (ENDS + LEAVING)[late:]
    assert step_shift(ENDS, other) == late
    assert step_shift(other, ENDS) == -late


def test_recordings_that_hardly_meet() -> None:
    assert step_shift(ENDS[:22], (ENDS + LEAVING)[20:]) == 20


@pytest.mark.parametrize("late", [0, 5])
@pytest.mark.parametrize("clock", [3_000_000, -40_000_000, 10**12])
def test_clocks_that_differ(late: int, clock: int) -> None:
    assert step_shift(ENDS, (ENDS + LEAVING + clock)[late:]) == late


def test_steps_without_gpu_work() -> None:
    other = ENDS + LEAVING
    other[[0, 6, 7, 20]] = NOT_THERE
    assert step_shift(ENDS, other[4:]) == 4


def test_nothing_to_tell_from() -> None:
    nowhere = np.full(3, NOT_THERE)
    assert step_shift(ENDS, nowhere) == step_shift(nowhere, ENDS) == step_shift(ENDS[:1], ENDS[:1] + 10**9) == 0
    assert step_shift(ENDS[:0], ENDS) == step_shift(ENDS, ENDS[:0]) == 0
