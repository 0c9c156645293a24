"""Limits for a pipeline: ``verify>5%``, ``gap_host>10us``, ``verify:compute>1%``, ``total>2%``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from profkit.analyzers.vocabulary import CLASSES, PARTS, PHASES
from profkit.traces import F64, I64, Bools, UsageError

from .grid import Grid, change
from .noise import Noise
from .result import Judgement
from .side import cell_words

LIMIT = re.compile(r"^\s*([a-z_:]+)\s*>\s*(\d+(?:\.\d+)?)\s*(%|ns|us|µs|μs|ms|s)\s*$")
UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
WORDS = (*PHASES, *PARTS, *CLASSES)


@dataclass(frozen=True, slots=True)
class Limit:
    """How much cells may grow: those that have all of ``words`` (phase, part or class; none: the total).

    ``allowed`` is in nanoseconds, or a share of A's time where ``relative``.
    """

    text: str
    words: tuple[str, ...]
    allowed: float
    relative: bool

    def covers(self, code: int) -> bool:
        """Whether the limit is about the cell ``code``."""
        return set(self.words) <= set(cell_words(code))


def parse_limit(text: str) -> Limit:
    """The limit that ``text`` states; raises ``UsageError`` where it states none."""
    found = LIMIT.match(text)
    if not found:
        raise UsageError(f"--fail-on '{text}': no limit; write NAME>NUMBER and %, ns, us or ms, such as 'verify>5%'")
    words = tuple(word for word in found[1].split(":") if word != "total")
    unknown = [word for word in words if word not in WORDS]
    if unknown:
        advice = f"use total, a phase ({', '.join(PHASES)}), a part ({', '.join(PARTS)}) or a class"
        raise UsageError(f"--fail-on '{text}': unknown name '{unknown[0]}'; {advice}")
    relative = found[3] == "%"
    return Limit(text.strip(), words, float(found[2]) * (0.01 if relative else UNITS[found[3]]), relative)


def judge(limits: Sequence[Limit], grids: Sequence[Grid]) -> list[tuple[Judgement, ...]]:
    """The judgements of all ``limits`` for each grid; limits and grids are one family, whose level is shared out."""
    if not limits:
        return [() for _ in grids]
    noises = [grid.noise(_weights(limits, grid.codes)) for grid in grids]
    significant = Noise.join(noises).significant() if noises else np.zeros(0, np.bool_)
    each = len(limits)
    return [
        tuple(_judgements(limits, grid, noise, significant[place * each : (place + 1) * each]))
        for place, (grid, noise) in enumerate(zip(grids, noises, strict=True))
    ]


def _weights(limits: Sequence[Limit], codes: I64) -> F64:
    return np.array([[limit.covers(code) for limit in limits] for code in codes.tolist()], np.float64)


def _judgements(limits: Sequence[Limit], grid: Grid, noise: Noise, significant: Bools) -> list[Judgement]:
    means = [(table @ _weights(limits, grid.codes)).mean(axis=0) for table in grid.slowest]
    found = []
    for place, limit in enumerate(limits):
        a, b = float(means[0][place]), float(means[1][place])
        status = _status(limit, a, b, noise.known, bool(significant[place]))
        percent = 100 * (b - a) / a if a else None
        found.append(Judgement(limit.text, status, change(a, b, noise, place, significant), percent))
    return found


def _status(
    limit: Limit, a: float, b: float, known: bool, significant: bool
) -> Literal["exceeded", "noise", "unknown", "held"]:
    if b - a <= (limit.allowed * a if limit.relative else limit.allowed):
        return "held"
    if not known:
        return "unknown"
    return "exceeded" if significant else "noise"
