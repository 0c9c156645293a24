"""Two flame graphs as one: every frame with its time in A and in B."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from profkit.analyzers.flame import KERNEL, PHASE_LEVEL, RANGE, Flame, gpu_flame
from profkit.analyzers.kernel_keys import kernel_key, range_key
from profkit.traces import F64, I8, I64

from .devices import one_rank
from .phases import APART, NAMES, joining
from .side import Side

ONLY = ("both", "a", "b")


@dataclass(frozen=True, slots=True, eq=False)
class DiffFlame:
    """A call tree as columns, as ``Flame`` has it; times and counts of A and B are per step (or token).

    Frames of both are one where their paths are equal: kernels by what builds of them have in common, ranges without
    the numbers that PyTorch and counters put into their names, and phases that only one side tells apart are one.
    ``only`` indexes ``ONLY``: which side alone has a frame.
    """

    parent: I64
    label: I64
    name: I64
    level: I8
    a_ns: F64
    b_ns: F64
    a_count: F64
    b_count: F64
    only: I8
    strings: tuple[str, ...]

    def check(self) -> None:
        """Raise ``ValueError`` where children take longer than their parent, or one side has what it has not."""
        for side, other in (("a", self.b_count), ("b", self.a_count)):
            if np.any(other[self.only == ONLY.index(side)]):
                raise ValueError("a frame of one side has ops of the other")
        for total in (self.a_ns, self.b_ns):
            children = np.zeros(len(total))
            np.add.at(children, self.parent[1:], total[1:])
            if np.any(children > total * (1 + 1e-9) + 1e-6):
                raise ValueError("frames take longer than the frame around them")


@dataclass(frozen=True, slots=True)
class _Frame:
    parent: int
    level: int
    key: str


@dataclass(slots=True)
class _Merged:
    """Frames by number, parents first, and the label and name of each as ids of ``texts``."""

    frames: dict[_Frame, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    label: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)

    def place(self, flame: Flame, phases: dict[str, str]) -> I64:
        """The number of each frame of ``flame``, new ones added; ``phases`` names those that stand for others."""
        row = np.zeros(len(flame.parent), np.int64)
        columns = (flame.parent, flame.level, flame.label, flame.name)
        for at, (parent, level, label, name) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            short, full = _shown(level, flame.strings[label], flame.strings[name], phases)
            key = kernel_key(full) if level == KERNEL else short
            row[at] = self._number(_Frame(int(row[parent]) if parent >= 0 else -1, level, key), short, full)
        return row

    def _number(self, frame: _Frame, short: str, full: str) -> int:
        number = self.frames.setdefault(frame, len(self.frames))
        label, name = (self.texts.setdefault(text, len(self.texts)) for text in (short, full))
        if number == len(self.label):
            self.label.append(label)
            self.name.append(name)
        else:
            # B comes second: its names are shown where both have the frame.
            self.label[number], self.name[number] = label, name
        return number


def diff_flame(a: Side, b: Side, tokens: tuple[float, float]) -> DiffFlame:
    """GPU time in steps of the rank that is compared in B, or in the whole recordings without steps."""
    # Modules that only one side knows would set apart what is the same.
    modules = all(side.attribution.modules.unknown is None for side in (a, b))
    flames = [
        gpu_flame(side.attribution, device, window=bool(side.steps), modules=modules)
        for side, device in zip((a, b), one_rank(a, b), strict=True)
    ]
    merged = _Merged()
    stands = joining(a.cycle, b.cycle)
    phases = {NAMES[code]: NAMES[stands[code]] for code in np.flatnonzero(stands != APART).tolist()}
    rows = [merged.place(flame, phases) for flame in flames]
    size = len(merged.frames)
    times: list[F64] = []
    counts: list[F64] = []
    for flame, row, each in zip(flames, rows, tokens, strict=True):
        for values, columns in ((flame.total_ns, times), (flame.count, counts)):
            columns.append(np.bincount(row, weights=values, minlength=size) / max(flame.steps, 1) / each)
    return DiffFlame(
        parent=np.array([frame.parent for frame in merged.frames], np.int64),
        label=np.array(merged.label, np.int64),
        name=np.array(merged.name, np.int64),
        level=np.array([frame.level for frame in merged.frames], np.int8),
        a_ns=times[0],
        b_ns=times[1],
        a_count=counts[0],
        b_count=counts[1],
        only=_only(rows, size),
        strings=tuple(merged.texts),
    )


def _only(rows: list[I64], size: int) -> I8:
    """Which side alone has each frame, as places in ``ONLY``."""
    only = np.zeros(size, np.int8)
    for place, row in ((ONLY.index("b"), rows[0]), (ONLY.index("a"), rows[1])):
        only[np.setdiff1d(np.arange(size), row)] = place
    return only


def _shown(level: int, short: str, full: str, phases: dict[str, str]) -> tuple[str, str]:
    """The label and the name of a frame."""
    if level == RANGE:
        return range_key(short), range_key(full)
    if level == PHASE_LEVEL and short in phases:
        return phases[short], phases[short]
    return short, full
