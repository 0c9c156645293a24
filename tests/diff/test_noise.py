"""The statistics: Student's distribution, false alarms over a thousand pairs, coverage, and power."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.analyzers.diff.grid import confirmed
from profkit.analyzers.diff.noise import LEVEL, MIN_STEPS, Noise, agree, change_of_means, holm
from profkit.analyzers.diff.student import FREEDOM, REACH_95, reach_95, two_sided
from profkit.analyzers.words import interval
from profkit.traces import F64

PAIRS = 1_000
Steps = Callable[[np.random.Generator, int, int], F64]


def independent(source: np.random.Generator, steps: int, cells: int) -> F64:
    return source.standard_normal((steps, cells))


def alike_neighbours(source: np.random.Generator, steps: int, cells: int) -> F64:
    """Autocorrelation 0.3 from step to step."""
    values = source.standard_normal((steps, cells))
    for row in range(1, steps):
        values[row] = 0.3 * values[row - 1] + np.sqrt(1 - 0.09) * values[row]
    return values


def slow_first_step(source: np.random.Generator, steps: int, cells: int) -> F64:
    values = source.standard_normal((steps, cells))
    values[0] += 10 * abs(source.standard_normal())
    return values


def shared_pace(source: np.random.Generator, steps: int, cells: int) -> F64:
    return source.standard_normal((steps, 1)) + source.standard_normal((steps, cells))


def skewed(source: np.random.Generator, steps: int, cells: int) -> F64:
    return np.exp(source.standard_normal((steps, cells)))


def drawn(kind: Steps, source: np.random.Generator, steps: int, scale: F64) -> F64:
    """Steps of cells of very different sizes, and their total."""
    cells = scale * (20 + kind(source, steps, len(scale)))
    return np.hstack([cells, cells.sum(axis=1, keepdims=True)])


@pytest.mark.parametrize("kind", [independent, alike_neighbours, slow_first_step, shared_pace, skewed])
@pytest.mark.parametrize("steps", [8, 20])
def test_false_alarms(kind: Steps, steps: int) -> None:
    """At most 5 % of pairs without a change have any significant cell (two standard errors of 200 pairs: 3 %)."""
    source = np.random.default_rng(steps)
    pairs = PAIRS // 5
    scale = 10 ** source.uniform(0, 4, 20)
    found = [
        change_of_means(drawn(kind, source, steps, scale), drawn(kind, source, steps, scale)).significant().any()
        for _ in range(pairs)
    ]
    assert np.mean(found) <= LEVEL + 2 * np.sqrt(LEVEL * (1 - LEVEL) / pairs)


def test_false_alarms_of_a_thousand_pairs() -> None:
    source = np.random.default_rng(12)
    scale = 10 ** source.uniform(0, 4, 12)
    found = [
        change_of_means(drawn(alike_neighbours, source, 12, scale), drawn(alike_neighbours, source, 12, scale))
        .significant()
        .any()
        for _ in range(PAIRS)
    ]
    assert np.mean(found) <= LEVEL


def test_intervals_hold_the_true_change() -> None:
    source = np.random.default_rng(3)
    inside = []
    for _ in range(100):
        a, b = 100 * independent(source, 10, 10), 100 * independent(source, 10, 10) + 50
        noise = change_of_means(a, b)
        inside.append((noise.low <= 50) & (noise.high >= 50))
    assert 0.95 <= np.mean(inside) <= 0.995


def test_a_change_well_above_the_noise_is_found() -> None:
    """7 % of a kernel that varies by 2 %, one of 40 cells, in 10 steps: in at least nine of ten pairs."""
    source = np.random.default_rng(4)
    scale = np.full(40, 10_000.0)
    grown = scale * np.where(np.arange(40) == 7, 1.07, 1.0)
    found, others = [], []
    for _ in range(60):
        a, b = (size * (1 + 0.02 * independent(source, 10, 40)) for size in (scale, grown))
        significant = change_of_means(a, b).significant()
        found.append(significant[7])
        others.append(np.delete(significant, 7).any())
    assert np.mean(found) >= 0.9 and np.mean(others) <= 0.1


@settings(max_examples=200, deadline=None)
@given(st.floats(1, 600), st.floats(1, 600), st.integers(8, 40), st.integers(0, 10**8), st.integers(0, 10**8))
def test_a_constant_time_per_token_is_certain(first: float, second: float, steps: int, a: int, b: int) -> None:
    """Whatever the accept length: rounding fractions is no noise."""
    tokens = first, second
    noise = change_of_means(np.full((steps, 1), float(a)), np.full((steps, 1), float(b)), tokens)
    assert noise.high[0] - noise.low[0] <= 4
    assert noise.low[0] <= b / second - a / first <= noise.high[0]
    if abs(b / second - a / first) > 4:
        assert noise.significant()[0]


@pytest.mark.parametrize("tokens", [2.1, 3.46, 3.51, 7.0, 110.4])
@pytest.mark.parametrize("steps", [8, 12, 19, 20])
def test_a_time_that_is_constant_but_for_rounding(tokens: float, steps: int) -> None:
    """Fractions whose mean is none of them to the last bit."""
    for value in (500.0, 1_000.0, 3_000.0, 4_321.0, 23_000.0):
        noise = change_of_means(np.full((steps, 1), value), np.full((steps, 1), value * 1.5 / tokens))
        assert noise.high[0] - noise.low[0] <= 4 and noise.significant()[0]


def test_noise_per_token_is_that_of_steps_over_tokens() -> None:
    source = np.random.default_rng(8)
    a, b = (1e5 + 1e3 * independent(source, 12, 3) for _ in range(2))
    step, token = change_of_means(a, b), change_of_means(a, b, (4.0, 4.0))
    assert np.allclose(step.low / 4, token.low) and np.allclose(step.high / 4, token.high)
    assert np.allclose(step.p, token.p)


@pytest.mark.parametrize(
    ("hair", "jitter", "expected"), [(0, 0, True), (40, 500, True), (4_000, 500, False), (2_000, 0, False)]
)
def test_ranks_that_are_equally_slow(hair: int, jitter: int, expected: bool) -> None:
    """Their own steps are compared one by one: what makes a step of both longer is no noise between them."""
    source = np.random.default_rng(9)
    shared = source.integers(400_000, 900_000, 12)
    other = shared + hair + source.integers(-jitter, jitter + 1, 12)
    assert agree(shared, other) is expected
    assert not agree(shared[:2], other[:2])


def test_nothing_is_known_of_a_few_steps() -> None:
    few, many = np.ones((MIN_STEPS - 1, 2)), np.full((9, 2), 5.0)
    noise = change_of_means(few, many)
    assert not noise.known and not noise.significant().any() and noise.delta.tolist() == [4, 4]


def test_steps_without_noise() -> None:
    noise = change_of_means(np.full((8, 3), 100.0), np.array([[100.0, 101.0, 110.0]] * 8))
    assert noise.significant().tolist() == [False, True, True]
    assert noise.low[2] <= 10 <= noise.high[2]


def test_the_same_steps_give_the_same_intervals() -> None:
    source = np.random.default_rng(5)
    a, b = independent(source, 300, 4), independent(source, 9, 4)
    first, second = change_of_means(a, b), change_of_means(a, b)
    assert first.low.tolist() == second.low.tolist() and first.p.tolist() == second.p.tolist()


def test_holm() -> None:
    p = np.array([0.012, 0.03, 0.001, 0.9])
    assert holm(p, np.ones(4)).tolist() == [True, False, True, False]
    assert holm(p, np.array([1.0, 100.0, 1.0, 1.0])).tolist() == [True, True, True, False]
    assert holm(np.zeros(2), np.ones(2)).all() and not len(holm(np.empty(0), np.empty(0)))


def test_families_join() -> None:
    one = change_of_means(np.zeros((8, 1)), np.ones((8, 1)))
    both = Noise.join([one, one])
    assert both.delta.tolist() == [1, 1] and both.known


def test_student() -> None:
    """Two-sided 5 % points of the usual tables; interpolated ones are never too small."""
    finite = np.isfinite(FREEDOM)
    assert np.allclose(two_sided(REACH_95[finite], FREEDOM[finite]), 0.05, atol=2e-5)
    assert two_sided(np.array([0.0, 63.657, 1e9]), np.array([3.0, 1.0, 9.0])) == pytest.approx([1, 0.01, 0], abs=1e-5)
    between = np.linspace(1, 200, 400)
    assert (two_sided(reach_95(between), between) <= 0.05002).all()


def test_a_change_between_two_ranks_must_show_on_one_of_them() -> None:
    """Ranks differ by 50 in one cell, and which of them is slowest is chance: no change. The other cell did change."""
    source = np.random.default_rng(6)
    ranks = [np.array([100.0, 200.0]), np.array([150.0, 200.0])]
    before = [level + independent(source, 10, 2) for level in ranks]
    after = [level + np.array([0, 30]) + independent(source, 10, 2) for level in ranks]
    across = change_of_means(before[0], after[1])
    assert across.significant().tolist() == [True, True]
    own = [change_of_means(a, b) for a, b in zip(before, after, strict=True)]
    assert confirmed(across, own).significant().tolist() == [False, True]


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-1_140_000, -599_000, "−1.14 ms … −0.60 ms"),
        (-16_500, 57, "−16.5 µs … +0.1 µs"),
        (-224_000_000, -193_000_000, "−224 ms … −193 ms"),
        (-4_000, 2_560_000_000, "−0.00 s … +2.56 s"),
        (-16, 57, "−16 ns … +57 ns"),
        (0, 1_200, "0.00 µs … +1.20 µs"),
        (0, 0, "0 ns … 0 ns"),
    ],
)
def test_both_ends_of_an_interval_are_written_alike(low: int, high: int, text: str) -> None:
    assert interval(low, high) == text
