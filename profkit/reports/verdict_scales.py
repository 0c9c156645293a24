"""Axes of the verdict's figures: from figures to places in a drawing, and which of them are labelled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEFT, RIGHT, TOP, BOTTOM = 50.0, 404.0, 26.0, 212.0
"""The plot within the drawing."""

INSETS = 24.0, 38.0
"""From the plot's sides to the first and last concurrency, so that their labels stay within it."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight or logarithmic axis from ``low`` at ``start`` to ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The place of ``value``."""
        low, high, at = (math.log(v) if self.logarithmic else v for v in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values on the axis: at most six."""
        return _decades(self.low, self.high) if self.logarithmic else _steps(self.low, self.high)


def concurrency_scale(batch_sizes: Sequence[int]) -> Scale:
    """The axis of the figures over concurrency."""
    return Scale(batch_sizes[0], batch_sizes[-1], LEFT + INSETS[0], RIGHT - INSETS[1], logarithmic=True)


def upright(low: float, high: float, *, logarithmic: bool = False) -> Scale:
    """The axis that points upwards."""
    return Scale(low, high, BOTTOM, TOP, logarithmic)


def _decades(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for within in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**power for power in decades for digit in within]
        found = [value for value in found if low <= value <= high]
        if len(found) <= 6:
            return found
    return found[:: math.ceil(len(found) / 6)]


def _steps(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * digit for digit in (1, 2, 5, 10) if unit * digit >= rough)
    return [count * step for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def spaced(places: Sequence[float], least: float) -> list[int]:
    """Which of ascending places get a label: the last one, and those at least so far left of the next labelled."""
    kept: list[int] = []
    for number in reversed(range(len(places))):
        if not kept or places[kept[-1]] - places[number] >= least:
            kept.append(number)
    return kept[::-1]


def path(points: Iterable[tuple[float, float]]) -> str:
    """Points as SVG writes them."""
    return " ".join(f"{x:g},{y:g}" for x, y in points)
