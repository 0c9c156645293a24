"""Figures in sentences."""

from __future__ import annotations

import pytest

from profkit.analyzers.words import a_duration, between, from_to, off, ranges, share


@pytest.mark.parametrize(
    ("part", "whole", "signed", "said"),
    [
        (81, 100, False, "81 %"),
        (4.24, 100, False, "4.2 %"),
        (9.94, 100, False, "9.9 %"),
        (9.96, 100, False, "10 %"),
        (0, 100, False, "0.0 %"),
        (1, 0, False, "0.0 %"),
        (0.123, 1, True, "+12 %"),
        (-0.003, 1, True, "−0.3 %"),
        (-0.0996, 1, True, "−10 %"),
        (-0.0004, 1, True, "0.0 %"),
        (0.0004, 1, True, "0.0 %"),
        (-0.0006, 1, True, "−0.1 %"),
    ],
)
def test_shares_and_changes(part: float, whole: float, signed: bool, said: str) -> None:
    assert share(part, whole, signed=signed) == said


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (7_420_000, "a 7.42 ms"),
        (8_300_000, "an 8.30 ms"),
        (88_100_000, "an 88.1 ms"),
        (812_000, "an 812 µs"),
        (11_200_000, "an 11.2 ms"),
        (18_000_000, "an 18.0 ms"),
        (110_000_000, "a 110 ms"),
        (1_180_000, "a 1.18 ms"),
    ],
)
def test_articles_follow_the_figure(ns: int, said: str) -> None:
    assert a_duration(ns) == said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        ("18.2 ms", "22.0 ms", "18.2 – 22.0 ms"),
        ("796 µs", "1.45 ms", "796 µs – 1.45 ms"),
        ("0.56", "1.55", "0.56 – 1.55"),
        ("1.55", "1.55", "1.55 – 1.55"),
    ],
)
def test_a_unit_is_written_once(low: str, high: str, said: str) -> None:
    assert between(low, high) == said


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ([(3.5, 3.52), (8.17, 8.33)], ["3.50 … 3.52", "8.17 … 8.33"]),
        ([(1.558, 1.562), (3.5, 3.52), None], ["1.558 … 1.562", "3.500 … 3.520", ""]),
        ([(1.5601, 1.5603), (3.5, 3.52)], ["1.56", "3.50 … 3.52"]),
        ([(4.5, 4.5)], ["4.50"]),
    ],
)
def test_a_column_of_ranges_has_one_digit_more_where_that_tells_ends_apart(
    column: list[tuple[float, float] | None], said: list[str]
) -> None:
    assert ranges(column) == said


def test_a_range_in_a_sentence_has_two_ends() -> None:
    assert (from_to(0.36, 0.43), from_to(0.998, 1.003), from_to(1.0, 1.0)) == ("0.36 to 0.43", "0.998 to 1.003", "1.00")


@pytest.mark.parametrize(("ratio", "said"), [(0.228, "23 %"), (1.0, "100 %"), (360.97, ">100 %")])
def test_far_off_is_not_counted(ratio: float, said: str) -> None:
    assert off(ratio) == said
