"""From a speed-up to the word for it: the one place that says what counts as winning, losing and even."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .. import words
from ..words import listed
from .result import Decided, Outcome, Range, Row

EVEN = 0.02
"""Speed-ups this close to 1 count as even: the rates of one server differ by as much in a few seconds, or by more."""

VERBS: dict[Outcome, str] = {"wins": "wins", "even": "is even", "loses": "loses"}


def outcome(speedup: float | None, interval: Range | None = None) -> Outcome | None:
    """Whether speculation ``wins``, ``loses`` or is ``even``; ``None`` where the speed-up is not known.

    It is even within 2 % of 1, and wherever the interval or range of the speed-up, if one is known, holds 1.
    """
    if speedup is None:
        return None
    if abs(speedup - 1) < EVEN or (interval and interval[0] <= 1 <= interval[1]):
        return "even"
    return "wins" if speedup > 1 else "loses"


def outcomes_in_words(
    found: Iterable[tuple[object, float | None, Outcome | None]],
    noun: str = "",
    ranges: Mapping[object, Range] | None = None,
) -> str:
    """Where it wins, is even and loses: ``wins at 1 (1.32×) and loses at 128 (0.78×)``.

    ``found`` is place, speed-up and outcome; ``noun`` says before the first place what they are, and ``ranges`` where
    the speed-up at a place lies between: ``wins at 1 (1.32×, 1.30 to 1.35)``.
    """
    places: dict[Outcome, list[str]] = {word: [] for word in VERBS}
    for at, speedup, word in found:
        if speedup is not None and word is not None:
            known_range = (ranges or {}).get(at)
            spread = f", {from_to(known_range)}" if known_range else ""
            places[word].append(f"{at} ({speedup:.2f}×{spread})")
    known = [(VERBS[word], listed(own)) for word, own in places.items() if own]
    if not known:
        return "cannot be compared"
    first = f"{known[0][0]} at {f'{noun} ' if noun else ''}{known[0][1]}"
    return listed([first, *(f"{verb} at {own}" for verb, own in known[1:])])


def from_to(ends: Range) -> str:
    """A range of speed-ups or accept lengths: ``0.36 to 0.43``, ``0.998 to 1.003``."""
    return words.from_to(*ends)


def decided_by(rows: Sequence[Row]) -> Decided | None:
    """What the verdict on all rows rests on: the measured throughput where it is known of each, else the steps."""
    if all(row.measured_speedup is not None for row in rows):
        return "measured"
    return "predicted" if all(row.predicted_speedup is not None for row in rows) else None


def speedup_of(row: Row, basis: Decided) -> float | None:
    """The speed-up of ``row`` on one basis."""
    return row.measured_speedup if basis == "measured" else row.predicted_speedup


def outcome_of(row: Row, basis: Decided) -> Outcome | None:
    """The word for ``row`` on one basis, weighed with what is known of how far its speed-up may lie off."""
    return outcome(speedup_of(row, basis), row.predicted_ci95 if basis == "predicted" else row.measured_range)
