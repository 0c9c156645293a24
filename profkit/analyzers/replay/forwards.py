"""The forwards of a model that CUDA graphs can hold: of drafter and target, in each decode step of each rank."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Bools, Index

from ..arrays import distinct
from ..attribution import Attribution
from ..owners import pair_keys, range_at
from ..partition import blocking_calls
from ..steps import spans_at
from ..vocabulary import CLASS, PHASE, PHASES
from ..words import counted
from .model import NONE, Calls, Model

FORWARD_PHASES = ("draft", "verify", "decode")
LAYERS = ("gemm", "moe", "norm", "activation", "rope", "collective")
EMBEDDING = re.compile("embedding", re.IGNORECASE)
PREPARE = "prepare"
LEAST_NODES = 8
MOST_NAMES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Forwards:
    """Forwards whose kernels are launched one by one.

    ``number`` is that of the forward of each op (row of ``Model.work``), ``NONE`` outside. Per forward: its ``first``
    launch call (row of ``Model.calls``), the ``last`` one, ``entry``, the host time in ns from the begin of its range,
    or from the last call in it, to the first, and its ``phase``. ``cuts`` are the blocking calls between launches of a
    phase's forward, at which it is cut, and ``cut_phase`` that phase.
    """

    number: I64
    first: I64
    last: I64
    entry: I64
    phase: I64
    cuts: I64
    cut_phase: I64

    def __len__(self) -> int:
        return len(self.first)

    @property
    def nodes(self) -> I64:
        """How many ops each has."""
        return np.bincount(self.number[self.number >= 0], minlength=len(self)).astype(np.int64)


def forwards_of(attribution: Attribution, model: Model) -> Forwards:
    """The forwards of all decode steps.

    A forward reaches, in order of launch, from the first layer's (or embedding's) kernel of a phase to the last op of
    that phase; what is launched before it prepares its input. A graph cannot hold a blocking call, so each piece
    between two of them is a forward by itself, if it has layers and ``LEAST_NODES`` ops. Ops that a graph launches
    already are left out.
    """
    work = model.work
    layer = _in_layers(attribution, model)
    blocking = np.flatnonzero(blocking_calls(attribution.trace, attribution.rules)[model.calls.row])
    number = np.full(len(work), NONE, np.int64)
    found: list[tuple[int, int, int, bool]] = []
    cuts: list[Index] = []
    phases: list[int] = []
    for group in _phases(attribution, model, blocking):
        layers = np.flatnonzero(layer[group])
        forward = group[layers[0] :] if len(layers) else group[:0]
        if len(forward) < LEAST_NODES:
            continue
        within = np.searchsorted(blocking, work.call[forward])
        cuts.append(blocking[within[0] : within[-1]])
        phases += [int(work.phase[forward[0]])] * len(cuts[-1])
        for place, piece in enumerate(np.split(forward, np.flatnonzero(np.diff(within)) + 1)):
            if len(piece) >= LEAST_NODES and layer[piece].any():
                number[piece] = len(found)
                ends = int(work.call[piece[0]]), int(work.call[piece[-1]])
                found.append((*ends, int(work.phase[piece[0]]), not place))
    first, last, phase, enters = np.array(found, np.int64).reshape(-1, 4).T
    entry = np.where(enters, _entries(attribution, model.calls, first), 0)
    cut = np.concatenate([np.empty(0, np.int64), *cuts])
    return Forwards(number, first, last, entry, phase, cut, np.array(phases, np.int64))


def synchronised(attribution: Attribution, calls: Calls, forwards: Forwards) -> tuple[str, ...]:
    """For each phase whose forward has blocking calls between its launches: how many a step, in which range, which."""
    trace = attribution.trace
    row = calls.row[forwards.cuts]
    at = trace.launches.pid[row], trace.launches.tid[row], trace.launches.start[row]
    owner = range_at(trace.ranges, np.ones(len(trace.ranges), np.bool_), *at)
    said = []
    for phase in distinct(forwards.cut_phase).tolist():
        mine = np.flatnonzero(forwards.cut_phase == phase)
        (step,) = pair_keys((calls.thread[forwards.cuts[mine]], calls.step[forwards.cuts[mine]]))
        places = round(len(mine) / len(distinct(step)))
        texts = sorted({trace.strings[trace.ranges.text[of]] for of in owner[mine].tolist() if of >= 0})
        names = sorted({trace.strings[api] for api in trace.launches.api[row[mine]].tolist()})
        where = ", ".join((*texts[:MOST_NAMES], *names[:MOST_NAMES]))
        said.append(f"the forward of {PHASES[phase]} synchronises in {counted(places, 'place')} ({where})")
    return tuple(said)


def unordered_streams(model: Model, forwards: Forwards) -> str | None:
    """Why it cannot be told which stream of a forward waits for which, or ``None`` if it can.

    Each stream must have been told to wait for another one of the same forward, or that one for it.
    """
    lane, waits, number = model.work.lane, model.waits, forwards.number
    inside = waits.told & (number[waits.op] == number[waits.on]) & (number[waits.op] >= 0)
    for forward in range(len(forwards)):
        lanes = distinct(lane[number == forward])
        if len(lanes) < 2:
            continue
        joins = inside & (number[waits.op] == forward)
        if not np.isin(lanes, lane[np.concatenate([waits.op[joins], waits.on[joins]])]).all():
            phase = PHASES[forwards.phase[forward]]
            return (
                f"the forward of {phase} runs on {len(lanes)} streams, and no call says which of them waits for which"
            )
    return None


def _phases(attribution: Attribution, model: Model, blocking: Index) -> list[Index]:
    """Rows of ``model.work`` of each phase with a forward, by step, device and thread, in order of launch.

    What a ``blocking`` call launches by itself is left out.
    """
    work = model.work
    mine = np.flatnonzero(
        np.isin(work.phase, [PHASE[name] for name in FORWARD_PHASES])
        & (work.step >= 0)
        & (work.call >= 0)
        & (attribution.trace.ops.graph_launch[work.row] < 0)
        & ~_prepares(attribution, model)
        & ~np.isin(work.call, blocking)
    )
    (place,) = pair_keys((model.calls.thread[work.call[mine]], work.step[mine]))
    key = np.searchsorted(distinct(place), place) * (len(PHASE) * (int(work.device.max(initial=0)) + 1))
    key += work.device[mine] * len(PHASE) + work.phase[mine]
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
