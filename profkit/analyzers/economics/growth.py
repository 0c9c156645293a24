"""How a step and each of its parts grow with the batch: a straight line by least squares, and how well it fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import structs

from ..vocabulary import PHASES
from ..words import MOST_OFF, duration, listed, off, part_name, phase_name
from .result import Decoding, Growth

FEWEST = 3
"""Two points lie on a line whatever they are."""

CLOSE = 0.1
"""A line that lies farther off a value than this share of it is none: the text gives the values themselves."""

Key = tuple[str | None, str | None]


def growth_of(
    kind: Literal["plain", "speculative"], costs: Mapping[int, float], sides: Sequence[Decoding]
) -> tuple[Growth, ...]:
    """The whole step, each phase and each phase's groups by batch size; nothing where parts are not known.

    ``costs`` are the batch sizes, with what the step costs in plain ones.
    """
    if not all(side.parts for side in sides):
        return ()
    wholes = [_total(side, (None, None)) for side in sides]
    found = []
    for key in _keys(sides):
        times = [_total(side, key) for side in sides]
        shares = [cost * ns / whole for cost, ns, whole in zip(costs.values(), times, wholes, strict=True)]
        found.append(structs.replace(_fit(kind, key, list(costs), times), plain_steps=tuple(shares)))
    return tuple(found)


def _keys(sides: Sequence[Decoding]) -> Iterator[Key]:
    yield None, None
    cells = dict.fromkeys((part.phase, part.group) for side in sides for part in side.parts)
    for phase in sorted({phase for phase, _ in cells}, key=PHASES.index):
        yield phase, None
        yield from (cell for cell in cells if cell[0] == phase)


def _total(side: Decoding, key: Key) -> float:
    phase, group = key
    return sum(part.ns for part in side.parts if phase in (None, part.phase) and group in (None, part.group))


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float, float]:
    """Intercept and slope of the least squares line, R², and the largest residual relative to its value.

    Values of 0 have no relative residual; of values that are all alike, R² is 1.
    """
    at, values = np.asarray(x, np.float64), np.asarray(y, np.float64)
    slope, base = np.polyfit(at, values, 1)
    residual = values - base - slope * at
    total = float(np.square(values - values.mean()).sum())
    positive = values > 0
    worst = float(np.max(np.abs(residual[positive]) / values[positive], initial=0.0))
    r2 = 1 - float(np.square(residual).sum()) / total if total else 1.0
    return float(base), float(slope), r2, worst


def is_straight(growth: Growth) -> bool:
    """Whether a line over the batch says what the times are."""
    return growth.largest_residual is not None and growth.largest_residual <= CLOSE


def _fit(kind: Literal["plain", "speculative"], key: Key, batch_sizes: Sequence[int], values: list[float]) -> Growth:
    name, times = _name(kind, *key), tuple(values)
    if len(values) < FEWEST:
        text = f"{name}: {_points(batch_sizes, values)}: too few points for a line, which takes {FEWEST}"
        return Growth(kind, *key, times, None, None, None, None, text)
    base, slope, r2, worst = line(batch_sizes, values)
    if worst > CLOSE:
        text = f"{name}: {_points(batch_sizes, values)}: no straight line (R² {r2:.2f}, off by {_up_to(worst)})"
    else:
        sign = "−" if slope < 0 else "+"
        fits = f"R² {r2:.2f}, off by at most {off(worst)}"
        text = f"{name}: {duration(base)} {sign} {duration(abs(slope))} per request ({fits})"
    return Growth(kind, *key, times, base, slope, r2, worst, text)


def _up_to(worst: float) -> str:
    return f"up to {off(worst)}" if worst <= MOST_OFF else f"more than {off(worst).removeprefix('>')}"


def _points(batch_sizes: Sequence[int], values: Sequence[float]) -> str:
    return listed([f"{duration(ns)} at {size}" for size, ns in zip(batch_sizes, values, strict=True)])


def _name(kind: str, phase: str | None, group: str | None) -> str:
    if phase is None:
        return "the cycle" if kind == "speculative" else "the plain step"
    return part_name(phase, group) if group else phase_name(phase)
