"""One side of a comparison: a recording cut into steps on one device, and what is known of its run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from profkit.analyzers.attribution import Attribution
from profkit.analyzers.cycle import cycle_of, device_steps
from profkit.analyzers.graphs import graph_nodes_missing
from profkit.analyzers.matching import MatchedCollectives, match_collectives
from profkit.analyzers.partition import COLLECTIVE, COMPUTE, COPY
from profkit.analyzers.ranks import rank_of_device
from profkit.analyzers.result import Cycle
from profkit.analyzers.vocabulary import CLASSES, PARTS
from profkit.traces import F64, I64, Index, Run

from .phases import APART, NAMES

NO_CLASS = len(CLASSES)
"""Stands for the class of a gap."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a sweep's record says beyond the trace. ``slowdown`` is how many times slower the recorder made the run.

    A setting that is missing was not set if the record is ``complete``, else it is not known.
    """

    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    slowdown: float | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A recording, attributed; ``tokens`` is how many a step of the whole batch yields, ``None`` where not known."""

    name: str
    path: str
    attribution: Attribution
    matched: MatchedCollectives
    cycle: Cycle
    context: Context
    ranks: dict[int, int]
    cells: dict[tuple[int, bytes], Cells] = field(default_factory=dict, init=False, repr=False)
    """What ``cells_of`` found, which several tables ask for."""

    @classmethod
    def of(
        cls, name: str, path: str, attribution: Attribution, context: Context, accept_len: float | None = None
    ) -> Side:
        """The side of ``attribution``; ``accept_len`` overrides what its run says."""
        run = attribution.trace.run
        given = accept_len if accept_len is not None else run.accept_len
        source = run.accept_len_source if accept_len is None else "given on the command line"
        return cls(
            name=name,
            path=path,
            attribution=attribution,
            matched=match_collectives(attribution),
            cycle=cycle_of(attribution, given, source),
            context=context,
            ranks=rank_of_device(attribution.trace),
        )

    @property
    def run(self) -> Run:
        """What is known of the served run."""
        return self.attribution.trace.run

    @property
    def steps(self) -> int:
        """The number of decode steps."""
        return self.cycle.steps

    @property
    def tokens(self) -> float | None:
        """How many tokens a step of the whole batch yields."""
        if self.cycle.accept_len is None or self.cycle.batch_size is None:
            return None
        return self.cycle.accept_len * self.cycle.batch_size

    @property
    def graphs(self) -> bool | None:
        """Whether decode steps launch CUDA graphs; ``None`` without steps."""
        inside = self.attribution.in_decode
        return bool(np.any(self.attribution.trace.ops.graph_launch[inside] >= 0)) if inside.any() else None

    @property
    def without_nodes(self) -> str | None:
        """Why the kernels of graphs are not recorded, or ``None`` if they are."""
        return graph_nodes_missing(self.attribution.trace, self.attribution.launch)

    def devices(self) -> list[int]:
        """The devices that run steps, or all where none does, by rank."""
        stepping = [device for device, line in self.attribution.devices.items() if line.window_start is not None]
        return sorted(stepping or self.attribution.devices, key=self.ranks.__getitem__)

    def slowest(self) -> int:
        """The device with the longest window per step; without steps, with the longest recording."""
        return max(self.devices(), key=lambda device: (self.wall(device), -self.ranks[device]))

    def wall(self, device: int) -> float:
        """Nanoseconds of a step on ``device``, the mean."""
        bounds = self.bounds(device)
        return float(bounds[-1] - bounds[0]) / (len(bounds) - 1)

    def bounds(self, device: int) -> I64:
        """Where the steps of ``device`` begin, and where the last one ends; the whole recording without steps."""
        line = self.attribution.devices[device]
        if line.window_end is None:
            ops = self.attribution.trace.ops
            mine = ops.device == device
            return np.array([ops.start[mine].min(), ops.end[mine].max()])
        return np.append(device_steps(self.attribution, device).first_op, line.window_end)

    def step_of_ops(self, device: int) -> tuple[Index, I64]:
        """Rows of the ops of ``device`` that belong to a step, in order of start, and the place of that step."""
        ops = self.attribution.trace.ops
        mine = ops.device == device
        if self.attribution.devices[device].window_end is not None:
            mine &= self.attribution.in_decode
        rows = np.flatnonzero(mine)
        rows = rows[np.lexsort((ops.stream[rows], ops.start[rows]))]
        return rows, self.places(device, rows)

    def places(self, device: int, rows: Index) -> I64:
        """The place of the step of each op in ``rows``, counted from 0."""
        if not self.steps:
            return np.zeros(len(rows), np.int64)
        order = device_steps(self.attribution, device).row
        place = np.argsort(order)
        return place[np.searchsorted(order[place], self.attribution.step[rows])]

    def waiting_of_ops(self, device: int) -> I64:
        """How long each op of the trace waited on ``device`` for the last rank; 0 for what is no matched collective."""
        own = self.matched.instances[device]
        waiting = np.zeros(len(self.attribution.trace.ops), np.int64)
        waiting[own.row] = np.maximum(own.skew, 0)
        return waiting

    def typical(self, device: int) -> int:
        """The place of the step whose time is nearest to the median."""
        periods = np.diff(self.bounds(device))
        return int(np.argmin(np.abs(periods - np.median(periods))))


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Nanoseconds of each step by cell: ``table`` has a row for each step, ``codes`` says what each column is."""

    codes: I64
    table: I64

    def spread(self, codes: I64) -> F64:
        """The table with a column for each of ``codes``, 0 where this side has none."""
        found: F64 = np.zeros((len(self.table), len(codes)))
        found[:, np.searchsorted(codes, self.codes)] = self.table
        return found


def cells_of(side: Side, device: int, phases: I64 = APART) -> Cells:
    """Each step of ``device`` by phase, part and class; a row sums to the step's wall time.

    A step reaches from its first op to the next step's; the last one to the end of the window. ``phases`` says which
    phase stands for each, by code.
    """
    key = device, phases.tobytes()
    if key not in side.cells:
        side.cells[key] = _cells(side, device, phases)
    return side.cells[key]


def _cells(side: Side, device: int, phases: I64) -> Cells:
    line, bounds = side.attribution.devices[device], side.bounds(device)
    inside = (line.start >= bounds[0]) & (line.end <= bounds[-1])
    step = np.searchsorted(bounds, line.start[inside], "right") - 1
    part = line.part[inside].astype(np.int64)
    busy = np.isin(part, (COMPUTE, COLLECTIVE, COPY))
    kernel_class = np.where(busy, side.attribution.kernel_class[line.op[inside]], NO_CLASS)
    code = cell_code(phases[line.phase[inside]], part, kernel_class.astype(np.int64))
    codes, column = np.unique(code, return_inverse=True)
    count = len(bounds) - 1
    # Sums of int64 stay exact in float64 below 2**53 ns, which is 104 days.
    length = line.end[inside] - line.start[inside]
    total = np.bincount(step * len(codes) + column, weights=length, minlength=count * len(codes))
    return Cells(codes, total.astype(np.int64).reshape(count, len(codes)))


def cell_code(phase: I64, part: I64, kernel_class: I64) -> I64:
    """One number for phase, part and class."""
    return (phase * len(PARTS) + part) * (NO_CLASS + 1) + kernel_class


def cell_words(code: int) -> tuple[str, str, str | None]:
    """Phase, part and class of ``code``; no class for a gap."""
    rest, kernel_class = divmod(code, NO_CLASS + 1)
    phase, part = divmod(rest, len(PARTS))
    return NAMES[phase], PARTS[part], CLASSES[kernel_class] if kernel_class < NO_CLASS else None


def part_of(codes: I64) -> I64:
    """The code of the part of each cell."""
    return codes // (NO_CLASS + 1) % len(PARTS)


def phase_of(codes: I64) -> I64:
    """The code of the phase of each cell, in ``phases.NAMES``."""
    return codes // (NO_CLASS + 1) // len(PARTS)
