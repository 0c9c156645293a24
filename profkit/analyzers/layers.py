"""GPU time of the drafter's and the target's layers: by kind of module, and layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from profkit.traces import I64

from .attribution import Attribution
from .device_result import LayerFigures, LayerKind, LayerTime
from .module_names import ModuleName
from .vocabulary import CLASS, PHASE

FORWARDS = ("draft", "verify", "decode")
"""Phases whose ops belong to a model."""


def layer_figures(attribution: Attribution, device: int) -> LayerFigures:
    """Sums of op durations of ``device`` over the whole trace; kinds sum to their phase, and so do layers."""
    if attribution.modules.unknown is not None:
        return LayerFigures((), (), attribution.modules.unknown)
    tables = [_table(attribution, device, phase) for phase in FORWARDS]
    return LayerFigures(
        kinds=tuple(row for table in tables for row in table.kind_rows()),
        layers=tuple(row for table in tables for row in table.layer_rows()),
        unknown=None,
        borrowed=attribution.modules.borrowed,
    )


@dataclass(slots=True)
class _Sums:
    """Ops, the sum of their durations, that of collectives among them, and the layers that they are in."""

    ops: int = 0
    sum_ns: int = 0
    collective_ns: int = 0
    layers: set[tuple[str, int]] = field(default_factory=set)

    def add(self, ops: int, sum_ns: int, collective_ns: int) -> None:
        self.ops += ops
        self.sum_ns += sum_ns
        self.collective_ns += collective_ns


@dataclass(slots=True)
class _Table:
    """Sums of one phase by kind (with whether it is one of layers) and by stack and layer."""

    phase: str
    kinds: dict[tuple[str | None, bool], _Sums] = field(default_factory=dict)
    layers: dict[tuple[str, int | None], _Sums] = field(default_factory=dict)

    def add(self, name: ModuleName | None, several: bool, totals: tuple[int, int, int]) -> None:
        """Count what one module ran; kinds and layers are told apart by stack where a model has several."""
        if name is None or name.layer is None:
            self.kinds.setdefault((name.kind if name else None, False), _Sums()).add(*totals)
            self.layers.setdefault(("", None), _Sums()).add(*totals)
            return
        stack = name.stack if several else ""
        kind = f"{stack}.*.{name.kind}".removesuffix(".") if several else name.kind
        sums = self.kinds.setdefault((kind, True), _Sums())
        sums.add(*totals)
        sums.layers.add((name.stack, name.layer))
        self.layers.setdefault((stack, name.layer), _Sums()).add(*totals)

    def kind_rows(self) -> list[LayerKind]:
        """The kinds, dearest first."""
        rows = [
            LayerKind(self.phase, kind, len(sums.layers), sums.ops, sums.sum_ns, sums.collective_ns)
            for (kind, _), sums in self.kinds.items()
        ]
        return sorted(rows, key=lambda row: -row.sum_ns)

    def layer_rows(self) -> list[LayerTime]:
        """The layers in order, and what lies outside of them last."""
        rows = [
            LayerTime(self.phase, stack, layer, sums.ops, sums.sum_ns, sums.collective_ns)
            for (stack, layer), sums in self.layers.items()
        ]
        return sorted(rows, key=lambda row: (row.layer is None, row.stack, row.layer or 0))


def _table(attribution: Attribution, device: int, phase: str) -> _Table:
    ops, modules = attribution.trace.ops, attribution.modules
    row = np.flatnonzero((ops.device == device) & (attribution.phase == PHASE[phase]))
    module: I64 = modules.of_op[row].astype(np.int64)
    duration = (ops.end - ops.start)[row]
    exchange = np.where(attribution.kernel_class[row] == CLASS["collective"], duration, 0)
    distinct, place = np.unique(module, return_inverse=True)
    names = [ModuleName.of(modules.names[number]) if number >= 0 else None for number in distinct.tolist()]
    several = len({name.stack for name in names if name is not None and name.layer is not None}) > 1
    columns = [_summed(place, column, len(distinct)) for column in (np.ones(len(row), np.int64), duration, exchange)]
    table = _Table(phase)
    for name, ops_, sum_ns, collective_ns in zip(names, *columns, strict=True):
        table.add(name, several, (ops_, sum_ns, collective_ns))
    return table


def _summed(place: I64, column: I64, length: int) -> list[int]:
    total = np.zeros(length, np.int64)
    np.add.at(total, place, column)
    found: list[int] = total.tolist()
    return found
