"""What a recorder makes of steps: compared at the same contexts, with an error that holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from profkit.capture.importing import Window
from profkit.capture.recording_cost import left_behind, recording_cost
from profkit.capture.step_clock import GAP

Array = npt.NDArray[np.float64]


def steps(
    context: Array, cost: float = 1.0, noise: float = 0.0, seed: int = 0, drift: float = 0.0
) -> npt.NDArray[np.void]:
    """Steps of 5 ms, and 4 µs for each token of context, ``cost`` times as long."""
    found = np.empty(len(context), GAP)
    shaken = 1 + noise * np.random.default_rng(seed).standard_normal(len(context)) + np.linspace(0, drift, len(context))
    found["ns"], found["context"] = np.rint(cost * (5_000_000 + 4_000 * np.nan_to_num(context)) * shaken), context
    return found


def passes(number: int, length: int = 150, tokens: float = 3.5) -> Array:
    """The contexts of ``number`` requests, one after the other."""
    return np.tile(100 + tokens * np.arange(length), number)


def test_longer_contexts_are_no_cost() -> None:
    """The window's steps take 6.9 ms against a median of 6.4, and recording 2 % of it."""
    window = {7: steps(np.linspace(450, 500, 20), cost=1.02)}
    found = recording_cost(window, {7: steps(passes(3))}, {7: steps(passes(2))})
    assert found is not None and found.steps == 20
    assert found.ratio == pytest.approx(1.02, abs=0.002) and found.error < 0.005


def wander(count: int, seed: int) -> Array:
    """A server whose speed wanders by 1 %, over some 120 steps."""
    shocks, found = np.random.default_rng(seed).standard_normal(count), np.empty(count)
    kept, now = np.exp(-1 / 120), 0.0
    for number in range(count):
        now = kept * now + np.sqrt(1 - kept**2) * 0.01 * shocks[number]
        found[number] = 1 + now
    return found


def modes(count: int, seed: int) -> Array:
    """A GPU in one of two modes 3 % apart, each for some 240 steps."""
    generator = np.random.default_rng(seed)
    switched = np.cumsum(generator.random(count) < 1 / 240) + generator.integers(2)
    return 1 + 0.03 * (switched % 2)


@pytest.mark.parametrize("speed", [wander, modes])
@pytest.mark.parametrize("cost", [0.99, 1.0, 1.03])
def test_the_error_holds_the_truth(cost: float, speed: Callable[[int, int], Array]) -> None:
    """In at least 90 of 100 runs: 600 steps, a window of 34, and 600 steps, at a speed that changes all the time."""
    hits = told = 0
    for seed in range(100):
        context = np.concatenate([passes(4), np.linspace(300, 420, 34), passes(4)])
        run = steps(context, noise=0.01, seed=seed)
        factor = speed(len(run), 1000 + seed)
        factor[600:634] *= cost
        run["ns"] = np.rint(run["ns"] * factor)
        found = recording_cost({7: run[600:634]}, {7: run[:600]}, {7: run[634:]})
        assert found is not None and found.windows == 34
        hits += abs(found.ratio - cost) <= found.error
        told += found.ratio - found.error > 1
    assert hits >= 90 and (cost > 1 or told <= 5)


def test_the_slowest_recorded_process_counts() -> None:
    window = {1: steps(np.full(20, 200.0), cost=1.5), 2: steps(np.full(20, 200.0), cost=1.1)}
    found = recording_cost(window, {1: steps(passes(2)), 2: steps(passes(2))})
    assert found is not None and found.ratio == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize(
    ("window", "without"),
    [
        ({}, {7: steps(passes(2))}),
        ({7: steps(np.full(20, 200.0))}, {}),
        ({7: steps(np.full(20, 200.0))}, {8: steps(passes(2))}),
        ({7: steps(np.full(11, 200.0))}, {7: steps(passes(2))}),
        ({7: steps(np.full(20, np.nan))}, {7: steps(passes(2))}),
        ({7: steps(np.full(20, 200.0))}, {7: steps(np.full(300, np.nan))}),
        ({7: steps(np.full(20, 5_000.0))}, {7: steps(passes(2))}),  # contexts that no other step had
        ({7: steps(np.full(20, 200.0))}, {7: steps(np.full(11, 200.0))}),
    ],
)
def test_unknown_where_there_is_too_little(
    window: dict[int, npt.NDArray[np.void]], without: dict[int, npt.NDArray[np.void]]
) -> None:
    assert recording_cost(window, without) is None


@pytest.mark.parametrize(("cost", "told"), [(1.0, False), (1.02, False), (1.1, True), (0.9, False)])
def test_what_is_left_behind_by_a_recorder(cost: float, told: bool) -> None:
    before, after = {7: steps(passes(2), noise=0.01)}, {7: steps(passes(2), cost=cost, noise=0.01, seed=1)}
    found = left_behind(before, after)
    assert (found is not None) == told
    if found is not None:
        assert found.ratio == pytest.approx(cost, abs=0.01)
    assert left_behind({}, after) is None and left_behind(before, {}) is None


@pytest.mark.parametrize("cost", [1.0, 1.1])
def test_what_was_measured_before_stands_alone_where_a_recorder_left_something_behind(cost: float) -> None:
    """Steps are asked for before there are any after the recording, too: to know when to record."""
    window = Window(1, True, "c1", rate_before=200.0, gaps_before={7: steps(passes(2), noise=0.01)})
    assert window.left_behind is None and window.step_times is not None and window.step_times.steps == 300
    window.measured_again(180.0, {7: steps(passes(2), cost=cost, noise=0.01, seed=1)})
    left = cost > 1.05
    assert (window.left_behind is not None) == left
    assert window.tokens_per_s == (200.0 if left else 190.0)
    assert window.step_times.steps == (300 if left else 600)
