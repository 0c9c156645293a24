"""Figures of a trace per decode step, as reports show them: budgets, collectives and kernels of each device."""

from __future__ import annotations

from dataclasses import dataclass

from .attribution import Attribution
from .collectives import Exposed, exposed_collectives
from .device_result import CollectiveKind, DeviceFigures, KernelFigures
from .matching import match_collectives
from .result import TraceFigures
from .vocabulary import PARTS, PHASES


def per_step(total_ns: int | None, steps: int) -> float | None:
    """``total_ns`` over ``steps``; ``None`` where either is not known."""
    return None if total_ns is None or steps <= 0 else total_ns / steps


def share(value: float | None, whole: float | None) -> float | None:
    """``value`` over ``whole``; ``None`` where either is not known."""
    return None if value is None or not whole else value / whole


@dataclass(frozen=True, slots=True)
class Split:
    """Nanoseconds per step in which the GPU is busy and in which it waits."""

    busy: float
    waiting: float


@dataclass(frozen=True, slots=True)
class Budget:
    """The window of one device per decode step, in nanoseconds; ``None`` where the recording cannot tell.

    ``parts`` sum to ``wall``; so do ``phases``, whose cells by part are ``cells``. ``skew`` is how much of the part
    ``collective`` is waiting for the last rank, ``unpaired`` how much collectives without a partner.
    """

    trace: str
    device: str
    rank: int
    steps: int
    wall: float | None
    parts: dict[str, float | None]
    phases: dict[str, Split]
    cells: dict[str, dict[str, float | None]]
    skew: float | None
    unpaired: float | None
    inferred: bool

    @property
    def transfer(self) -> float | None:
        """How much of the part ``collective`` is transfer: neither waiting nor without a partner."""
        exposed = self.parts["collective"]
        if exposed is None or self.skew is None or self.unpaired is None:
            return None
        return exposed - self.skew - self.unpaired


def budgets(figures: TraceFigures, attribution: Attribution) -> list[Budget]:
    """The budget of each device of ``figures``, by rank."""
    exposed = exposed_collectives(attribution, match_collectives(attribution))
    rows = [_budget(figures, name, device, exposed.get(int(name))) for name, device in figures.devices.items()]
    return sorted(rows, key=lambda row: row.rank)


def _budget(figures: TraceFigures, name: str, device: DeviceFigures, exposed: Exposed | None) -> Budget:
    steps = device.steps
    split = exposed if device.partition_ns["collective"] is not None else None
    cells = {
        phase: {part: per_step(parts.get(part), steps) for part in PARTS}
        for phase, parts in sorted(device.phase_partition_ns.items(), key=lambda item: PHASES.index(item[0]))
    }
    phases = {}
    for phase, row in cells.items():
        busy = sum(value or 0.0 for part, value in row.items() if not part.startswith("gap_"))
        waiting = sum(value or 0.0 for part, value in row.items() if part.startswith("gap_"))
        if busy or waiting:
            phases[phase] = Split(busy, waiting)
    return Budget(
        trace=figures.name,
        device=name,
        rank=device.rank,
        steps=steps,
        wall=per_step(device.window.wall_ns, steps) if device.window else None,
        parts={part: per_step(device.partition_ns.get(part), steps) for part in PARTS},
        phases=phases,
        cells={phase: row for phase, row in cells.items() if phase in phases},
        skew=per_step(int(split.skew.sum()), steps) if split else None,
        unpaired=per_step(int(split.unpaired.sum()), steps) if split else None,
        inferred=figures.cycle.phases_inferred,
    )


@dataclass(frozen=True, slots=True)
class PhaseCollectives:
    """Collectives of one phase on one device, per step in nanoseconds."""

    rank: int
    phase: str
    count: float
    total: float
    skew: float | None
    transfer: float | None


def collectives_by_phase(device: DeviceFigures) -> list[PhaseCollectives]:
    """Collectives of ``device`` by phase; skew and transfer are ``None`` where a kind's are not known."""
    phases = sorted({kind.phase for kind in device.collectives.kinds}, key=PHASES.index)
    rows = []
    for phase in phases:
        kinds = [kind for kind in device.collectives.kinds if kind.phase == phase]
        rows.append(
            PhaseCollectives(
                rank=device.rank,
                phase=phase,
                count=sum(kind.count for kind in kinds) / max(device.steps, 1),
                total=sum(kind.sum_ns for kind in kinds) / max(device.steps, 1),
                skew=per_step(_sum([kind.skew_ns for kind in kinds]), device.steps),
                transfer=per_step(_sum([kind.transfer_ns for kind in kinds]), device.steps),
            )
        )
    return rows


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


@dataclass(frozen=True, slots=True)
class KindRow:
    """A kind of collective with its time per step, in nanoseconds."""

    rank: int
    kind: CollectiveKind
    count: float
    skew: float | None
    transfer: float | None


def kinds_per_step(device: DeviceFigures) -> list[KindRow]:
    """The kinds of collectives of ``device``, dearest first."""
    return [
        KindRow(
            rank=device.rank,
            kind=kind,
            count=kind.count / max(device.steps, 1),
            skew=per_step(kind.skew_ns, device.steps),
            transfer=per_step(kind.transfer_ns, device.steps),
        )
        for kind in device.collectives.kinds
    ]


@dataclass(frozen=True, slots=True)
class WaitRow:
    """How long a rank waits per step for another one, what that one does meanwhile, and the share of all waiting."""

    waiting_rank: int
    rank: int
    phase: str
    part: str
    ns: float
    share: float


def waits_per_step(figures: TraceFigures) -> list[WaitRow]:
    """Who waits for whom in collectives, dearest first, over all devices."""
    rows = []
    for device in figures.devices.values():
        whole = sum(wait.ns for wait in device.collectives.waits)
        for wait in device.collectives.waits:
            ns = wait.ns / max(device.steps, 1)
            rows.append(WaitRow(device.rank, wait.rank, wait.phase, wait.part, ns, wait.ns / max(whole, 1)))
    return sorted(rows, key=lambda row: -row.ns)


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel with its time and number of launches per step, its mean length, and its share of all GPU time."""

    kernel: KernelFigures
    per_step: float
    count: float
    mean: float
    share: float


def kernels_per_step(device: DeviceFigures) -> list[KernelRow]:
    """The kernels of ``device`` within the window, dearest first."""
    whole = max(sum(figures.sum_ns for figures in device.classes.values()), 1)
    steps = max(device.steps, 1)
    rows = [
        KernelRow(
            kernel=kernel,
            per_step=kernel.sum_ns / steps,
            count=kernel.count / steps,
            mean=kernel.sum_ns / max(kernel.count, 1),
            share=kernel.sum_ns / whole,
        )
        for kernel in device.kernels
    ]
    return sorted(rows, key=lambda row: -row.per_step)
