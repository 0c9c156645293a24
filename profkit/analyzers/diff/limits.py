"""Limits for a pipeline: ``verify>5%``, ``gap_host>10us``, ``verify:compute>1%``, ``total>2%``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from msgspec.structs import replace as replace_fields

from profkit.analyzers.vocabulary import CLASSES, PARTS, PHASES
from profkit.analyzers.words import listed
from profkit.traces import F64, I64, Bools, UsageError

from .grid import Grid, change
from .noise import Noise
from .phases import JOINED, NAMES
from .result import Judgement
from .side import cell_words

LIMIT = re.compile(r"^\s*([a-z_:]+)\s*>\s*(\d+(?:\.\d+)?)\s*(%|ns|us|µs|μs|ms|s)\s*$")
UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
TOGETHER = {"target": "plain decoding and verifying", "rest": listed(list(JOINED["rest"]))}
WORDS = (*NAMES, *PARTS, *CLASSES)

Status = Literal["exceeded", "noise", "unknown", "held"]
WORST: tuple[Status, ...] = ("exceeded", "unknown", "noise", "held")


@dataclass(frozen=True, slots=True)
class Limit:
    """How much cells may grow: those that have all of ``words`` (phase, part or class; none: the total).

    ``target`` is plain decoding and verifying together, ``rest`` what follows the forwards; where a comparison has them
    as one phase, so are their names.
    ``allowed`` is in nanoseconds, or a share of A's time where ``relative``.
    """

    text: str
    words: tuple[str, ...]
    allowed: float
    relative: bool

    def covers(self, code: int) -> bool:
        """Whether the limit is about the cell ``code``."""
        return self.covers_cell(*cell_words(code))

    def covers_cell(self, phase: str, part: str, kernel_class: str | None) -> bool:
        """Whether the limit is about the cell of these names."""
        names = {phase, part, kernel_class}
        for whole, parts in JOINED.items():
            if whole in names:
                names |= set(parts)
            elif not names.isdisjoint(parts):
                names.add(whole)
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
    named = found[1].split(":")
    unknown = [word for word in named if word not in ("total", *WORDS)]
    if unknown:
        advice = f"use total, a phase ({', '.join(NAMES)}), a part ({', '.join(PARTS)}) or a class"
        raise UsageError(f"--fail-on '{text}': unknown name '{unknown[0]}'; {advice}")
    words = () if named == ["total"] else tuple(named)
    relative = found[3] == "%"
    allowed = float(found[2]) * (0.01 if relative else UNITS[found[3]])
    limit = Limit(text.strip(), words, allowed, relative)
    if not any(limit.covers_cell(*cell) for cell in _cells()):
        advice = "give total, or one phase, one part (gaps have no class) and one class at most"
        raise UsageError(f"--fail-on '{text}': no time can be of {listed(list(words))} at once; {advice}")
    return limit


def _cells() -> Iterator[tuple[str, str, str | None]]:
    """Every phase, part and class that go together."""
    busy: dict[str, list[str | None]] = {
        "compute": [name for name in CLASSES if name != "collective"],
        "collective": ["collective"],
        "copy": ["copy"],
    }
    for phase, part in itertools.product(PHASES, PARTS):
        yield from ((phase, part, kernel_class) for kernel_class in busy.get(part, [None]))


def judge(limits: Sequence[Limit], pairs: Sequence[Sequence[Grid]]) -> list[tuple[Judgement, ...]]:
    """The judgements of all ``limits`` for each pair; limits and grids are one family, whose level is shared out.

    Each pair is given as the grids of the ranks that are equally slow, the one compared first: that none of them may
    exceed a limit.
    """
    if not limits:
        return [() for _ in pairs]
    noises = [[grid.noise(_weights(limits, grid.codes)) for grid in grids] for grids in pairs]
    every = [noise for each in noises for noise in each]
    significant = iter(np.split(Noise.join(every).significant(), len(every)) if every else [])
    found = []
    for grids, each in zip(pairs, noises, strict=True):
        rows = [_judgements(limits, grid, one, next(significant)) for grid, one in zip(grids, each, strict=True)]
        judged = zip(*rows, strict=True)
        found.append(tuple(_worst(limit, grids, each) for limit, each in zip(limits, judged, strict=True)))
    return found


def _worst(limit: Limit, grids: Sequence[Grid], judged: Sequence[Judgement]) -> Judgement:
    """The judgement of the rank that keeps the limit least, the one compared if several do; of ranks that have such
    a phase, part or class at all, if any has.
    """
    places = [place for place, grid in enumerate(grids) if _is_about(limit, grid)] or [0]
    worst = min(places, key=lambda place: (WORST.index(judged[place].status), place))
    if not worst:
        return judged[0]
    ranks = [grid.ranks[1] for grid in grids]
    note = f"on rank {ranks[worst]}, which is as slow as rank {ranks[0]}"
    told = judged[worst].note
    return replace_fields(judged[worst], note=f"{note}; {told}" if told else note)


def _weights(limits: Sequence[Limit], codes: I64) -> F64:
    covered = [[limit.covers(code) for limit in limits] for code in codes.tolist()]
    return np.array(covered, np.float64).reshape(len(codes), len(limits))


def _judgements(limits: Sequence[Limit], grid: Grid, noise: Noise, significant: Bools) -> list[Judgement]:
    weights = _weights(limits, grid.codes)
    means = grid.means(weights)
    found = []
    for place, limit in enumerate(limits):
        a, b = float(means[0][place]), float(means[1][place])
        about = _is_about(limit, grid)
        status = _status(limit, a, b, noise.known, bool(significant[place])) if about else "unknown"
        percent = 100 * (b - a) / a if a else None
        note = _note(limit, grid, status, about)
        found.append(Judgement(limit.text, status, change(a, b, noise, place, significant), percent, note))
    return found


def _is_about(limit: Limit, grid: Grid) -> bool:
    """Whether either side of ``grid`` has what ``limit`` names."""
    kept = limit.beside_gaps
    return not kept.words or any(kept.covers(code) for code in grid.codes.tolist())


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
    name = next((word for word in limit.words if _stands_for(grid, word) != word), None)
    if name is None:
        return None
    whole = _stands_for(grid, name)
    why = "only one of the two speculates" if whole == "target" else "phases of only one of the two are inferred"
    return f"{why}, so '{name}' is '{whole}' here: {TOGETHER[whole]} together"


def _stands_for(grid: Grid, word: str) -> str:
    """The phase of ``grid`` that holds the phase ``word``; itself where that is none."""
    return NAMES[grid.phases[NAMES.index(word)]] if word in NAMES else word
