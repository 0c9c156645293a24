"""The forwards of a model that CUDA graphs can hold: of drafter and target, in each decode step of each rank."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Bools, Index

from ..attribution import Attribution
from ..owners import range_at
from ..steps import spans_at
from ..vocabulary import CLASS, PHASE
from .model import NONE, Calls, Model

FORWARD_PHASES = ("draft", "verify", "decode")
LAYERS = ("gemm", "moe", "norm", "activation", "rope", "collective")
EMBEDDING = re.compile("embedding", re.IGNORECASE)
PREPARE = "prepare"
LEAST_NODES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Forwards:
    """Forwards whose kernels are launched one by one.

    ``number`` is that of the forward of each op (row of ``Model.work``), ``NONE`` outside. Per forward: its ``first``
    launch call (row of ``Model.calls``), the ``last`` one, and ``entry``, the host time in ns from the begin of its
    range, or from the last call in it, to the first.
    """

    number: I64
    first: I64
    last: I64
    entry: I64

    def __len__(self) -> int:
        return len(self.first)

    @property
    def nodes(self) -> I64:
        """How many ops each has."""
        return np.bincount(self.number[self.number >= 0], minlength=len(self)).astype(np.int64)


def forwards_of(attribution: Attribution, model: Model) -> Forwards:
    """The forwards of all decode steps.

    A forward reaches, in order of launch, from the first layer's (or embedding's) kernel of a phase to the last op of
    that phase; what is launched before it prepares its input. Ops that a graph launches already are left out.
    """
    work = model.work
    layer = _in_layers(attribution, model)
    number = np.full(len(work), NONE, np.int64)
    ends: list[tuple[int, int]] = []
    for group in _phases(attribution, model):
        begins = np.flatnonzero(layer[group])
        if len(begins) and len(group) - begins[0] >= LEAST_NODES:
            number[group[begins[0] :]] = len(ends)
            ends.append((int(work.call[group[begins[0]]]), int(work.call[group[-1]])))
    first, last = np.array(ends, np.int64).reshape(-1, 2).T
    return Forwards(number, first, last, _entries(attribution, model.calls, first))


def _phases(attribution: Attribution, model: Model) -> list[Index]:
    """Rows of ``model.work`` of each phase that holds a forward, of each step and device, in order of launch."""
    work = model.work
    mine = np.flatnonzero(
        np.isin(work.phase, [PHASE[name] for name in FORWARD_PHASES])
        & (work.step >= 0)
        & (work.call >= 0)
        & (attribution.trace.ops.graph_launch[work.row] < 0)
        & ~_prepares(attribution, model)
    )
    steps = int(work.step.max(initial=0)) + 1
    key = (work.device[mine] * steps + work.step[mine]) * len(PHASE) + work.phase[mine]
    order = np.lexsort((work.call[mine], key))
    return np.split(mine[order], np.flatnonzero(np.diff(key[order])) + 1)


def _entries(attribution: Attribution, calls: Calls, first: I64) -> I64:
    labels, launches = attribution.plan.labels, attribution.trace.launches
    row = calls.row[first]
    label = spans_at(
        labels.pid, labels.tid, labels.start, labels.end, launches.pid[row], launches.tid[row], launches.start[row]
    )
    entered = np.where(label >= 0, launches.start[row] - labels.start[label], 0)
    return np.clip(np.minimum(entered, np.where(calls.first[first], 0, calls.before[first])), 0, None)


def _prepares(attribution: Attribution, model: Model) -> Bools:
    """Which ops are launched while a block is prepared, ahead of the drafter's forward."""
    ranges, launches, strings = attribution.trace.ranges, attribution.trace.launches, attribution.trace.strings
    named = np.array([text == PREPARE for text in strings] or [False])
    row = attribution.launch[model.work.row]
    prepares = np.zeros(len(row), np.bool_)
    if len(ranges) and len(launches):
        at = launches.pid[row], launches.tid[row], launches.start[row]
        prepares = (range_at(ranges, named[ranges.text], *at) >= 0) & (row >= 0)
    return prepares


def _in_layers(attribution: Attribution, model: Model) -> Bools:
    """Which ops only a model's layers launch."""
    ops, strings = attribution.trace.ops, attribution.trace.strings
    embeds = np.array([EMBEDDING.search(text) is not None for text in strings] or [False])
    named = np.isin(model.work.kernel_class, [CLASS[name] for name in LAYERS])
    inside: Bools = named | embeds[ops.name[model.work.row]]
    return inside
