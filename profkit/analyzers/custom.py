"""What an analyzer of a workspace is given, and the small frozen rows that it answers with.

A fault in an answer raises ``ValueError`` or ``TypeError`` where the answer is made, so that its author sees it there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Real
from typing import Any

from profkit.traces import printable
from profkit.traces.throughput import ThroughputTable

from .attribution import Attribution
from .result import Analysis

Cell = str | float | None
"""A word, a number, or ``None`` for what is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Recordings:
    """The recordings of a command: their figures, and in the same order the attributions they rest on."""

    analysis: Analysis
    attributions: tuple[Attribution, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its name, the unit of its numbers, and how many digits stand behind their point."""

    name: str
    unit: str = ""
    digits: int = 2

    def __post_init__(self) -> None:
        _settle(self, name=_text(self.name), unit=_text(self.unit))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of as many cells as there are columns."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        rows = tuple(tuple(map(_cell, row)) for row in self.rows)
        _settle(self, title=_text(self.title), columns=_all(Column, self.columns), rows=rows)
        for number, row in enumerate(rows, 1):
            if len(row) != len(self.columns):
                raise ValueError(f"row {number} of '{self.title}' has {len(row)} cells for {len(self.columns)} columns")


@dataclass(frozen=True, slots=True)
class Series:
    """One value for each place on the axis, ``None`` where it is unknown. A ``reference`` is drawn dashed."""

    name: str
    values: Sequence[float | None]
    reference: bool = False

    def __post_init__(self) -> None:
        _settle(self, name=_text(self.name), values=tuple(map(_number, self.values)))


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure over places on one axis: ``x`` are their labels, the titles say what the axes hold."""

    title: str
    x: Sequence[str | float]
    series: Sequence[Series]
    x_title: str
    y_title: str
    kind: str = field(init=False, default="")

    def __post_init__(self) -> None:
        _settle(self, x=tuple(_text(str(label)) for label in self.x), series=_all(Series, self.series))
        _settle(self, **{name: _text(getattr(self, name)) for name in ("title", "x_title", "y_title")})
        for one in self.series:
            if len(one.values) != len(self.x):
                raise ValueError(f"series '{one.name}' has {len(one.values)} values for {len(self.x)} places")
        if not self.x or not self.series:
            raise ValueError(f"figure '{self.title}' has no point")

    @property
    def labels(self) -> tuple[str, ...]:
        """``x`` in words."""
        return tuple(map(str, self.x))


@dataclass(frozen=True, slots=True)
class Lines(_Figure):
    """A line for each series; it breaks where a value is unknown.

    With ``log2`` the places are ascending numbers above 0, and each doubling is as long as any other.
    """

    kind: str = field(init=False, default="lines")
    log2: bool = False

    def __post_init__(self) -> None:
        _Figure.__post_init__(self)
        if self.log2:
            places = [_place(self.title, label) for label in self.labels]
            if any(later <= earlier for earlier, later in pairwise(places)):
                raise ValueError(f"figure '{self.title}' has places that do not ascend")

    @property
    def places(self) -> tuple[float, ...]:
        """Where the values stand: the numbers of ``x`` with ``log2``, else one place after the other."""
        return tuple(map(float, self.x)) if self.log2 else tuple(range(len(self.x)))


@dataclass(frozen=True, slots=True)
class Bars(_Figure):
    """A group of bars at each place, one for each series."""

    kind: str = field(init=False, default="bars")


Figure = Lines | Bars


@dataclass(frozen=True, slots=True)
class Answer:
    """What an analyzer found: sentences a person can act on, tables and figures."""

    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()

    def __post_init__(self) -> None:
        if isinstance(self.sentences, str):
            raise TypeError("sentences is one string where a list of them is needed")
        sentences = tuple(_text(sentence) for sentence in self.sentences)
        _settle(self, sentences=sentences, tables=_all(Table, self.tables), figures=_all(_Figure, self.figures))


Question = Callable[[Any], Answer | None]


@dataclass(frozen=True, slots=True)
class Analyzer:
    """A question that profkit asks: ``ask`` is a pure function from ``takes`` to an answer, or ``None`` if it has none.

    ``takes`` is ``Recordings``, or ``ThroughputTable`` for a function that is asked once for each such table.
    """

    title: str
    takes: type[Recordings] | type[ThroughputTable]
    ask: Question

    def __call__(self, given: Any) -> Answer | None:
        """The answer to what is ``given``; raises ``TypeError`` if the function gives something else."""
        answer = self.ask(given)
        if answer is not None and not isinstance(answer, Answer):
            raise TypeError(f"'{self.title}' gave {type(answer).__name__} where Answer or None is needed")
        return answer


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer with the file of its analyzer and the question.

    Of a throughput table, ``of`` is its title, ``source`` says where its figures come from, and ``note`` what else it
    and its runs say of themselves.
    """

    file: str
    title: str
    answer: Answer
    of: str | None = None
    source: str | None = None
    note: str | None = None


def _place(title: str, label: str) -> float:
    try:
        number = float(label)
    except ValueError:
        number = 0.0
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"figure '{title}' has a place '{label}' on an axis of numbers above 0")
    return number


def _settle(row: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(row, name, value)


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is {type(text).__name__} where text is needed")
    return printable(text)


def _all(kind: type[Any], rows: Iterable[Any]) -> tuple[Any, ...]:
    found = tuple(rows)
    for row in found:
        if not isinstance(row, kind):
            raise TypeError(f"{row!r} is {type(row).__name__} where {kind.__name__.lstrip('_')} is needed")
    return found


def _cell(value: object) -> Cell:
    return _text(value) if isinstance(value, str) else _number(value)


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{value!r} is {type(value).__name__} where a number or None is needed")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no figure; None says that it is unknown")
    return number
