"""What became of each kernel: the sequences of a typical step of each side, aligned by phase.

What belongs together is found in one typical step of each side; how long it takes, and whether a change is noise, in
all of them: the k-th kernel of a name in a phase of any step counts where the k-th one of the typical step does.
Recordings without steps hold different amounts of the same work: there, kernels are put together by name alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from profkit.analyzers.kernel_keys import kernel_key
from profkit.analyzers.sequences import Pair, align
from profkit.analyzers.shortnames import short_name
from profkit.analyzers.vocabulary import CLASSES
from profkit.traces import F64, I64

from .devices import one_rank
from .grid import interval
from .kernel_figures import KernelFigures
from .phases import NAMES, joining
from .result import KernelChange, State
from .side import Side

Named = tuple[int, str]
"""A phase and the key of a kernel's name."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Kernels that belong together: phase, class, short names in A and B, and how they were paired."""

    phase: int
    kernel_class: int
    a_name: str | None
    b_name: str | None
    paired: State


@dataclass(frozen=True, slots=True, eq=False)
class _Ops:
    """The ops of a device's steps, in order: step, phase, key and short name (ids of ``texts``), class, duration.

    ``wait`` is what of the duration is waiting for the last rank; 0 where that is not known.
    """

    step: I64
    phase: I64
    key: I64
    short: I64
    kernel_class: I64
    duration: I64
    wait: I64
    texts: tuple[str, ...]
    steps: int
    typical: int

    def of_typical(self, phase: int) -> I64:
        """The rows of ``phase`` in the typical step."""
        return np.flatnonzero((self.step == self.typical) & (self.phase == phase))

    def key_of(self, row: int | None) -> str:
        return self.texts[self.key[row]]

    def named(self, row: int) -> Named:
        return int(self.phase[row]), self.key_of(row)


@dataclass(slots=True)
class _Groups:
    """Groups by number, and for each side and name the groups of its occurrences in a typical step."""

    numbers: dict[_Group, int] = field(default_factory=dict)
    occurrences: tuple[dict[Named, list[int]], dict[Named, list[int]]] = field(default_factory=lambda: ({}, {}))

    def number(self, group: _Group) -> int:
        return self.numbers.setdefault(group, len(self.numbers))

    def add(self, group: _Group, a: Named | None, b: Named | None) -> None:
        number = self.number(group)
        for names, name in zip(self.occurrences, (a, b), strict=True):
            if name is not None:
                names.setdefault(name, []).append(number)


def kernel_changes(a: Side, b: Side, tokens: tuple[float, float]) -> tuple[KernelChange, ...]:
    """The kernels of the steps of the rank that is compared in B, largest change first."""
    phases = joining(a.cycle, b.cycle)
    first, second = one_rank(a, b)
    known = a.matched.known and b.matched.known
    ops = _ops_of(a, first, phases, known), _ops_of(b, second, phases, known)
    groups = _Groups()
    for phase in np.union1d(ops[0].phase, ops[1].phase).tolist() if a.steps else []:
        _pair_up(groups, ops, phase)
    numbers = [_numbers(groups, ops, place) for place in (0, 1)]
    both = list(zip(ops, numbers, strict=True))
    times = [_per_step(side, number, len(groups.numbers), side.duration) for side, number in both]
    counts = [_per_step(side, number, len(groups.numbers), np.ones(len(number))) for side, number in both]
    waits = [_per_step(side, number, len(groups.numbers), side.wait) for side, number in both]
    figures = KernelFigures.of((times[0], times[1]), (counts[0], counts[1]), tokens, (waits[0], waits[1]))
    rows = [_row(group, place, figures, known) for group, place in groups.numbers.items()]
    rows.sort(key=lambda row: (-abs(row.delta_ns), row.phase, row.a_name or "", row.b_name or ""))
    return tuple(rows)


def _ops_of(side: Side, device: int, phases: I64, known: bool) -> _Ops:
    """The ops of ``device``; ``phases`` says which phase stands for each, ``known`` whether waiting is."""
    rows, step = side.step_of_ops(device)
    trace = side.attribution.trace
    names, place = np.unique(trace.ops.name[rows], return_inverse=True)
    full = [trace.strings[number] if number >= 0 else "(no name)" for number in names.tolist()]
    texts: dict[str, int] = {}
    short = [texts.setdefault(text, len(texts)) for text in map(short_name, full)]
    key = [texts.setdefault(text, len(texts)) for text in map(kernel_key, full)]
    return _Ops(
        step=step,
        phase=phases[side.attribution.phase[rows]],
        key=np.array(key, np.int64)[place],
        short=np.array(short, np.int64)[place],
        kernel_class=side.attribution.kernel_class[rows].astype(np.int64),
        duration=trace.ops.end[rows] - trace.ops.start[rows],
        wait=side.waiting_of_ops(device)[rows] if known else np.zeros(len(rows), np.int64),
        texts=tuple(texts),
        steps=len(side.bounds(device)) - 1,
        typical=side.typical(device),
    )


def _pair_up(groups: _Groups, ops: tuple[_Ops, _Ops], phase: int) -> None:
    rows = [one.of_typical(phase).tolist() for one in ops]
    keys = [[one.texts[one.key[row]] for row in mine] for one, mine in zip(ops, rows, strict=True)]
    classes = [_classes(one, mine) for one, mine in zip(ops, rows, strict=True)]
    pairs = [
        (None if i is None else rows[0][i], None if j is None else rows[1][j], paired)
        for i, j, paired in _paired(align(keys[0], keys[1]), classes[0], classes[1])
    ]
    found = [_group(ops, phase, *pair) for pair in pairs]
    same = {ops[0].key_of(i): group for (i, _, paired), group in zip(pairs, found, strict=True) if paired == "same"}
    for (i, j, paired), group in zip(pairs, found, strict=True):
        # One more of what both have elsewhere is that: nothing new.
        kept = group if paired not in ("new", "gone") else same.get(_key(ops, i, j), group)
        groups.add(kept, None if i is None else ops[0].named(i), None if j is None else ops[1].named(j))


def _key(ops: tuple[_Ops, _Ops], i: int | None, j: int | None) -> str:
    return ops[0].key_of(i) if i is not None else ops[1].key_of(j)


def _group(ops: tuple[_Ops, _Ops], phase: int, i: int | None, j: int | None, paired: State) -> _Group:
    a, b = ops
    return _Group(
        phase=phase,
        kernel_class=int(a.kernel_class[i] if i is not None else b.kernel_class[j]),
        a_name=None if i is None else a.texts[a.short[i]],
        b_name=None if j is None else b.texts[b.short[j]],
        paired=paired,
    )


def _classes(ops: _Ops, rows: Sequence[int]) -> list[int]:
    found: list[int] = ops.kernel_class[rows].tolist() if len(rows) else []
    return found


def _paired(pairs: list[Pair], a: list[int], b: list[int]) -> Iterator[tuple[int | None, int | None, State]]:
    """The pairs; between two matches, what is gone and what is new of the same class is taken as replaced."""
    gone: list[int] = []
    new: list[int] = []
    for first, second in [*pairs, (-1, -1)]:
        if first is not None and second is not None:
            yield from _replaced(gone, new, a, b)
            gone, new = [], []
            if first >= 0:
                yield first, second, "same"
        elif first is not None:
            gone.append(first)
        elif second is not None:
            new.append(second)


def _replaced(
    gone: list[int], new: list[int], a: list[int], b: list[int]
) -> Iterator[tuple[int | None, int | None, State]]:
    """What stands in the other's place: by class first; as many as are left over of both, whatever their class."""
    rest: tuple[list[int], list[int]] = ([], [])
    for kernel_class in sorted({a[i] for i in gone} | {b[j] for j in new}):
        mine = [i for i in gone if a[i] == kernel_class]
        theirs = [j for j in new if b[j] == kernel_class]
        yield from ((i, j, "replaced") for i, j in zip(mine, theirs, strict=False))
        rest[0].extend(mine[len(theirs) :])
        rest[1].extend(theirs[len(mine) :])
    if len(rest[0]) == len(rest[1]):
        yield from ((i, j, "replaced") for i, j in zip(*rest, strict=True))
    else:
        yield from ((i, None, "gone") for i in rest[0])
        yield from ((None, j, "new") for j in rest[1])


def _numbers(groups: _Groups, ops: tuple[_Ops, _Ops], place: int) -> I64:
    """The group of each op of one side."""
    mine, other = ops[place], ops[1 - place]
    number = np.zeros(len(mine.step), np.int64)
    code = mine.phase * len(mine.texts) + mine.key
    order = np.lexsort((np.arange(len(code)), code))
    for rows in np.split(order, np.flatnonzero(np.diff(code[order])) + 1) if len(order) else []:
        name = mine.named(int(rows[0]))
        known = groups.occurrences[place].get(name) or [_by_name(groups, mine, other, int(rows[0]), place)]
        step = mine.step[rows]
        by_step = np.argsort(step, kind="stable")
        ordered = step[by_step]
        occurrence = np.arange(len(rows)) - np.searchsorted(ordered, ordered, "left")
        number[rows[by_step]] = np.array(known)[np.minimum(occurrence, len(known) - 1)]
    return number


def _by_name(groups: _Groups, mine: _Ops, other: _Ops, row: int, place: int) -> int:
    """The group of a kernel that the typical step does not have, or of a recording without steps."""
    name, phase = mine.texts[mine.short[row]], int(mine.phase[row])
    there = name in other.texts and np.any((other.short == other.texts.index(name)) & (other.phase == phase))
    a_name = name if place == 0 or there else None
    b_name = name if place == 1 or there else None
    paired: State = "same" if there else "new" if place else "gone"
    return groups.number(_Group(phase, int(mine.kernel_class[row]), a_name, b_name, paired))


def _per_step(ops: _Ops, number: I64, groups: int, weights: I64 | F64) -> F64:
    total = np.bincount(ops.step * groups + number, weights=weights, minlength=ops.steps * groups)
    return total.astype(np.float64).reshape(ops.steps, groups)


def _row(group: _Group, place: int, figures: KernelFigures, known: bool) -> KernelChange:
    a_ns, b_ns = (float(side[place]) for side in figures.time)
    a_count, b_count = (round(float(side[place]), 6) for side in figures.count)
    a_call, b_call = (round(float(side[place])) for side in figures.call)
    waits = known and CLASSES[group.kernel_class] == "collective"
    return KernelChange(
        state=figures.state(place) if group.paired == "same" else group.paired,
        phase=NAMES[group.phase],
        kernel_class=CLASSES[group.kernel_class],
        a_name=group.a_name,
        b_name=group.b_name,
        a_count=a_count,
        b_count=b_count,
        a_ns=round(a_ns),
        b_ns=round(b_ns),
        delta_ns=round(b_ns) - round(a_ns),
        ci95_ns=interval(figures.noise, place),
        significant=bool(figures.significant[place]),
        a_call_ns=a_call if a_count else None,
        b_call_ns=b_call if b_count else None,
        a_wait_ns=round(float(figures.wait[0][place])) if waits and a_count else None,
        b_wait_ns=round(float(figures.wait[1][place])) if waits and b_count else None,
    )
