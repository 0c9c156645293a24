"""The verdict of a sweep as the page shows it: figures, sentences, and the table behind them."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from profkit.analyzers.comparison_result import Comparison, Gain
from profkit.analyzers.economics.outcome import EVEN, outcome
from profkit.analyzers.economics.result import Economics, Growth, Outcome
from profkit.analyzers.result import Analysis
from profkit.analyzers.words import ranges

from .verdict_budget import BudgetFigure, budget_figure
from .verdict_figures import break_even_figure, cycle_figure, throughput_figure

MINOR = 0.02
"""Parts that take less of the step than this at every concurrency have no line in the table of growth."""


@dataclass(frozen=True, slots=True)
class VerdictView:
    """One pair of configurations over several concurrencies; ``spreads`` and ``measured`` are ranges, by row."""

    found: Economics
    title: str
    throughput: Markup | None
    cycle: Markup | None
    break_even: Markup
    budget: BudgetFigure | None
    growth: tuple[Growth, ...]
    spreads: tuple[str, ...]
    measured: tuple[str, ...]
    even: float = EVEN


def sweeps_of(analysis: Analysis) -> list[Economics]:
    """Those over several concurrencies."""
    return [found for found in analysis.economics if len(found.rows) > 1]


def untold_comparisons(analysis: Analysis) -> list[Comparison]:
    """Those of no verdict: alone, or unlike in CUDA graphs."""
    told = {(row.plain.trace, row.speculative.trace) for found in sweeps_of(analysis) for row in found.rows}
    return [one for one in analysis.comparisons if (one.baseline, one.speculative) not in told]


def outcome_of(analysis: Analysis, one: Comparison) -> Outcome | None:
    """The word for a pair: that of its economics, where it has some."""
    rows = [row for found in analysis.economics for row in found.rows]
    told = (row.outcome for row in rows if (row.plain.trace, row.speculative.trace) == (one.baseline, one.speculative))
    measured = one.measured_speedup is not None
    speedup = one.measured_speedup if measured else one.predicted_speedup
    return next(told, outcome(speedup, one.measured_range if measured else None))


def untold_gains(analysis: Analysis) -> list[Gain]:
    """Those of no verdict."""
    told = {(found.baseline, found.speculative) for found in sweeps_of(analysis)}
    return [gain for gain in analysis.gains if (gain.baseline, gain.speculative) not in told]


def title_of(found: Economics) -> str:
    """The pair by name."""
    return f"{found.baseline} → {found.speculative}{'' if found.graphs else ', without CUDA graphs'}"


def verdict_views(analysis: Analysis) -> list[VerdictView]:
    """What the page shows of each pair."""
    return [_view(found) for found in sweeps_of(analysis)]


def _view(found: Economics) -> VerdictView:
    return VerdictView(
        found=found,
        title=title_of(found),
        throughput=throughput_figure(found),
        cycle=cycle_figure(found),
        break_even=break_even_figure(found),
        budget=budget_figure(found),
        growth=major_growth(found),
        spreads=tuple(ranges([row.break_even_ci95 for row in found.rows])),
        measured=tuple(ranges([row.measured_range for row in found.rows])),
    )


def major_growth(found: Economics) -> tuple[Growth, ...]:
    """The growth of whole steps and of what takes a share of them worth telling, in the order of the analysis."""
    whole = {one.decoding: one.ns for one in found.growth if one.phase is None}
    return tuple(
        one
        for one in found.growth
        if any(ns >= MINOR * step for ns, step in zip(one.ns, whole[one.decoding], strict=True))
    )
