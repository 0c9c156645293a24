"""Limits for a pipeline: ``verify>5%``, ``gap_host>10us``, ``verify:compute>1%``, ``total>2%``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from profkit.analyzers.vocabulary import CLASSES, PARTS
from profkit.traces import F64, I64, Bools, UsageError

from .grid import Grid, change
from .noise import Noise
from .phases import FORWARDS, NAMES
from .result import Judgement
from .side import cell_words

LIMIT = re.compile(r"^\s*([a-z_:]+)\s*>\s*(\d+(?:\.\d+)?)\s*(%|ns|us|µs|μs|ms|s)\s*$")
UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
WORDS = (*NAMES, *PARTS, *CLASSES)

Status = Literal["exceeded", "noise", "unknown", "held"]


@dataclass(frozen=True, slots=True)
class Limit:
    """How much cells may grow: those that have all of ``words`` (phase, part or class; none: the total).

    ``target`` is plain decoding and verifying together; where a comparison has them as one phase, so are their names.
    ``allowed`` is in nanoseconds, or a share of A's time where ``relative``.
    """

    text: str
    words: tuple[str, ...]
    allowed: float
    relative: bool

    def covers(self, code: int) -> bool:
        """Whether the limit is about the cell ``code``."""
        names = set(cell_words(code))
        if "target" in names:
            names |= set(FORWARDS)
        elif not names.isdisjoint(FORWARDS):
            names.add("target")
        return names.issuperset(self.words)

    @property
    def beside_gaps(self) -> Limit:
        """The limit without parts that are gaps: of these, a recording that has none has 0 ns, and that is known."""
        return replace(self, words=tuple(word for word in self.words if not word.startswith("gap_")))


def parse_limit(text: str) -> Limit:
    """The limit that ``text`` states; raises ``UsageError`` where it states none."""
    found = LIMIT.match(text)
    if not found:
        raise UsageError(f"--fail-on '{text}': no limit; write NAME>NUMBER and %, ns, us, ms or s, such as 'verify>5%'")
    words = tuple(word for word in found[1].split(":") if word != "total")
    unknown = [word for word in words if word not in WORDS]
    if unknown:
        advice = f"use total, a phase ({', '.join(NAMES)}), a part ({', '.join(PARTS)}) or a class"
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
    covered = [[limit.covers(code) for limit in limits] for code in codes.tolist()]
    return np.array(covered, np.float64).reshape(len(codes), len(limits))


def _judgements(limits: Sequence[Limit], grid: Grid, noise: Noise, significant: Bools) -> list[Judgement]:
    weights = _weights(limits, grid.codes)
    means = [(table @ weights).mean(axis=0) for table in grid.slowest]
    found = []
    for place, limit in enumerate(limits):
        a, b = float(means[0][place]), float(means[1][place])
        kept = limit.beside_gaps
        about = not kept.words or any(kept.covers(code) for code in grid.codes.tolist())
        status = _status(limit, a, b, noise.known, bool(significant[place])) if about else "unknown"
        percent = 100 * (b - a) / a if a else None
        note = _note(limit, grid, status, about)
        found.append(Judgement(limit.text, status, change(a, b, noise, place, significant), percent, note))
    return found


def _status(limit: Limit, a: float, b: float, known: bool, significant: bool) -> Status:
    if b - a <= (limit.allowed * a if limit.relative else limit.allowed):
        return "held"
    if not known:
        return "unknown"
    return "exceeded" if significant else "noise"


def _note(limit: Limit, grid: Grid, status: Status, about: bool) -> str | None:
    """Why the judgement is unknown, or what the name stands for where it is not what it says."""
    if not about:
        return f"neither A nor B has any time of '{':'.join(limit.words)}'"
    if status == "unknown":
        return "beyond the limit, but too few steps tell what is noise"
    name = next((word for word in limit.words if word in FORWARDS), None)
    if grid.one_target and name is not None:
        return f"only one of the two speculates, so '{name}' is 'target' here: plain decoding and verifying together"
    return None
