"""Analyzers of your own: what a file in the folder ``analyzers/`` of a workspace writes its questions with.

    from profkit.analyzer import Answer, Recordings, analyzer

    @analyzer("Which recording has the shortest step?")
    def shortest(recordings: Recordings) -> Answer | None:
        ...

``profkit analyze`` and ``profkit report`` ask it when they run in the workspace; see docs/analyzers.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from profkit.analyzers import Analysis, Attribution
from profkit.analyzers.comparison_result import Comparison
from profkit.analyzers.custom import (
    Analyzer,
    Answer,
    Bars,
    Cell,
    Column,
    Figure,
    Lines,
    Recordings,
    Series,
    Table,
)
from profkit.analyzers.economics.outcome import outcome, outcomes_in_words
from profkit.analyzers.economics.result import Economics
from profkit.analyzers.economics.result import Row as EconomicsRow
from profkit.analyzers.words import duration, listed
from profkit.traces.throughput import PEAK, ThroughputRun, ThroughputTable

__all__ = [
    "PEAK",
    "Analysis",
    "Analyzer",
    "Answer",
    "Attribution",
    "Bars",
    "Cell",
    "Column",
    "Comparison",
    "Economics",
    "EconomicsRow",
    "Figure",
    "Lines",
    "Recordings",
    "Series",
    "Table",
    "ThroughputRun",
    "ThroughputTable",
    "analyzer",
    "duration",
    "listed",
    "outcome",
    "outcomes_in_words",
]


@overload
def analyzer(title: str) -> Callable[[Callable[[Recordings], Answer | None]], Analyzer]: ...
@overload
def analyzer(
    title: str, takes: type[ThroughputTable]
) -> Callable[[Callable[[ThroughputTable], Answer | None]], Analyzer]: ...
def analyzer(title: str, takes: Any = Recordings) -> Callable[[Callable[[Any], Answer | None]], Analyzer]:
    """Make a pure function an analyzer; ``title`` is the question that stands above its answer.

    The function takes all recordings of a command, or with ``takes=ThroughputTable`` one throughput table. It returns
    an ``Answer``, or ``None`` where it has nothing to say. Raises ``TypeError`` if ``takes`` is something else.
    """
    if takes not in (Recordings, ThroughputTable):
        raise TypeError(f"an analyzer takes Recordings or ThroughputTable, not {takes!r}")
    return lambda ask: Analyzer(title, takes, ask)
