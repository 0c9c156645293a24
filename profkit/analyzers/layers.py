"""GPU time of the drafter's and the target's layers: by kind of module, and layer by layer."""

from __future__ import annotations

import numpy as np

from profkit.traces import I64

from .attribution import Attribution
from .module_names import ModuleName
from .result import LayerFigures, LayerKind, LayerTime
from .vocabulary import CLASS, PHASE, PHASES

FORWARDS = ("draft", "verify", "decode")
"""Phases whose ops belong to a model."""


def layer_figures(attribution: Attribution, device: int) -> LayerFigures:
    """Sums of op durations of ``device`` over the whole trace; the kinds of a phase sum to the phase."""
    if attribution.modules.unknown is not None:
        return LayerFigures((), (), attribution.modules.unknown)
    names = [ModuleName.of(text) for text in attribution.modules.names]
    places = sorted({(name.layer is not None, name.kind) for name in names})
    kind = np.array([places.index((name.layer is not None, name.kind)) for name in names] + [-1], np.int64)
    layer = np.array([-1 if name.layer is None else name.layer for name in names] + [-2], np.int64)
    ops = attribution.trace.ops
    kinds: list[LayerKind] = []
    layers: list[LayerTime] = []
    for phase in FORWARDS:
        row = np.flatnonzero((ops.device == device) & (attribution.phase == PHASE[phase]))
        module, duration = attribution.modules.of_op[row], (ops.end - ops.start)[row]
        exchange = np.where(attribution.kernel_class[row] == CLASS["collective"], duration, 0)
        for value, count, total, shared in _summed(kind[module], duration, exchange):
            in_layer, text = places[value] if value >= 0 else (False, None)
            number = len(np.unique(layer[module][kind[module] == value])) if in_layer else 0
            kinds.append(LayerKind(phase, text, number, count, total, shared))
        for value, count, total, shared in _summed(layer[module], duration, exchange):
            if value >= 0:
                layers.append(LayerTime(phase, value, count, total, shared))
    kinds.sort(key=lambda row: (PHASES.index(row.phase), -row.sum_ns))
    return LayerFigures(tuple(kinds), tuple(layers), None, attribution.modules.borrowed)


def _summed(key: I64, *columns: I64) -> list[tuple[int, ...]]:
    """Each distinct key with its number of ops and the sum of each column."""
    distinct, place = np.unique(key, return_inverse=True)
    totals = [np.zeros(len(distinct), np.int64) for _ in columns]
    for total, column in zip(totals, columns, strict=True):
        np.add.at(total, place, column)
    counts = np.bincount(place, minlength=len(distinct))
    return list(zip(distinct.tolist(), counts.tolist(), *(total.tolist() for total in totals), strict=True))
