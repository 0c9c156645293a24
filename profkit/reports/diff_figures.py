"""The waterfall of a comparison: bars from A's time through the largest changes to B's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profkit.analyzers.diff.result import PairDiff, PartChange
from profkit.analyzers.diff.sentence import signed
from profkit.analyzers.words import counted, duration

from .diff_cells import change, direction, part_and_class
from .legend import PARTS

MOST = 10


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: from ``begin_ns`` to ``end_ns``, both at least 0; ``pale`` where it may be noise.

    ``kind`` is ``whole`` (A's or B's time), ``longer`` or ``shorter``.
    """

    label: str
    begin_ns: int
    end_ns: int
    amount: str
    kind: str
    pale: bool = False

    def place(self, whole_ns: int) -> str:
        """Where the bar lies and how long it is, in per cent of ``whole_ns``, as CSS."""
        left, length = min(self.begin_ns, self.end_ns), abs(self.end_ns - self.begin_ns)
        return f"left:{100 * left / whole_ns:.3f}%;width:{100 * length / whole_ns:.3f}%"


def waterfall(pair: PairDiff) -> tuple[Bar, ...]:
    """From A's time through the largest changes, and the rest in one, to B's; empty without a total."""
    if pair.total is None:
        return ()
    changed = [row for row in pair.parts if row.delta_ns]
    shown, rest = changed[:MOST], changed[MOST:]
    changes = [(_label(row), row.delta_ns, change(row), _pale([row])) for row in shown]
    if rest:
        delta = sum(row.delta_ns for row in rest)
        changes.append((counted(len(rest), "smaller change"), delta, signed(delta), _pale(rest)))
    at = pair.total.a_ns
    bars = [Bar("A", 0, at, duration(at), "whole")]
    for label, delta, amount, pale in changes:
        bars.append(Bar(label, at, at + delta, amount, direction(delta), pale))
        at += delta
    return (*bars, Bar("B", 0, at, duration(at), "whole"))


def longest(bars: tuple[Bar, ...]) -> int:
    """Where the bar that reaches furthest ends, in nanoseconds; at least 1."""
    return max([1, *(max(bar.begin_ns, bar.end_ns) for bar in bars)])


def _label(row: PartChange) -> str:
    return f"{row.phase} · {part_and_class(PARTS[row.part].title, row.kernel_class)}"


def _pale(rows: Sequence[PartChange]) -> bool:
    """Whether all of ``rows`` were tested and none is more than noise."""
    return all(row.ci95_ns is not None and not row.significant for row in rows)
