"""Changes to a model, one question each; a what-if is a few of them, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from profkit.traces import F64, I64, Bools

from .forwards import Forwards
from .model import NONE, Model, Waits, Work


def scaled_work(model: Model, which: Bools, factor: float) -> Model:
    """The ops ``which`` take ``factor`` times as long; for collectives this is the transfer."""
    work = model.work
    duration = np.where(which, np.round(work.duration * factor), work.duration).astype(np.int64)
    return replace(model, work=replace(work, duration=duration))


def scaled_ops(model: Model, factor: F64) -> Model:
    """Each op takes ``factor`` times as long, one factor per op; for collectives this is the transfer."""
    duration = np.round(model.work.duration * factor).astype(np.int64)
    return replace(model, work=replace(model.work, duration=duration))


def scaled_pauses(model: Model, which: Bools, factor: float) -> Model:
    """The idle time ahead of the ops ``which``, and the delays that nothing explains, are ``factor`` times as long."""
    work = model.work
    # Where ops overlap, their gap is negative: that is no pause.
    scaled = [
        np.where(which & (old > 0), np.round(old * factor), old).astype(np.int64) for old in (work.gap, work.delay)
    ]
    return replace(model, work=replace(work, gap=scaled[0], delay=scaled[1]))


def without_delays(model: Model) -> Model:
    """Nothing starts later than what it is known to wait for: what the dependencies alone explain."""
    return replace(model, work=replace(model.work, delay=np.zeros(len(model.work), np.int64)))


def scaled_hosts(model: Model, factor: F64) -> Model:
    """The host of thread t takes ``factor[t]`` times as long for all it does, but for what it waits for."""
    return scaled_calls(model, factor[model.calls.thread])


def scaled_calls(model: Model, pace: F64) -> Model:
    """Each call, and the host's time before it, take ``pace`` times as long, one factor per call; waiting does not."""
    calls = model.calls
    blocks = calls.awaited >= 0
    before = np.round(calls.before * pace).astype(np.int64)
    duration = np.where(blocks, calls.duration, np.round(calls.duration * pace)).astype(np.int64)
    return replace(model, calls=replace(calls, before=before, duration=duration))


@dataclass(frozen=True, slots=True, eq=False)
class Launching:
    """How graphs are launched, in ns. Per graph: ``call``, how long its launch call takes, and ``saved``, by how much
    sooner that call begins than the first launch that it stands for. ``first_op``: from the start of the call to its
    first op. ``node_gap``: from the end of an op to the start of the next."""

    call: I64
    saved: I64
    first_op: int
    node_gap: int


def graph_launched(model: Model, forwards: Forwards, launching: Launching) -> Model:
    """Each forward is launched by one call, in place of its first; its ops follow each other closely.

    The host's time from there to the end of its last launch call is gone; no blocking call lies in it.
    """
    calls, work = model.calls, model.work
    removed = np.zeros(len(calls) + 1, np.int64)
    np.add.at(removed, forwards.first + 1, 1)
    np.add.at(removed, forwards.last + 1, -1)
    kept = np.cumsum(removed)[: len(calls)] == 0
    before, duration = calls.before.copy(), calls.duration.copy()
    before[forwards.first] -= launching.saved
    duration[forwards.first] = launching.call
    inside = forwards.number >= 0
    opens = inside.copy()
    opens[inside] = work.call[inside] == forwards.first[forwards.number[inside]]
    # The place of a removed call is that of the graph's.
    place = np.append(np.cumsum(kept) - 1, NONE)
    moved = replace(_queued(work, inside, opens, launching), call=place[work.call])
    called = replace(calls, before=before, duration=duration).take(kept)
    return replace(model, calls=called, work=moved, waits=_joined(model.waits, forwards.number, launching))


def _queued(work: Work, inside: Bools, opens: Bools, launching: Launching) -> Work:
    """Inside a graph no op waits for a call of its own; what overlapped the op before it still does."""
    follows = inside & ~opens & (work.gap >= 0)
    return replace(
        work,
        lag=np.where(inside, launching.first_op, work.lag),
        gap=np.where(follows, launching.node_gap, work.gap),
        delay=np.where(inside, 0, work.delay),
    )


def _joined(waits: Waits, number: I64, launching: Launching) -> Waits:
    """Inside a graph, what waits for another stream follows it as closely as anything else."""
    together = (number[waits.op] >= 0) & (number[waits.op] == number[waits.on])
    return replace(waits, gap=np.where(together, np.minimum(waits.gap, launching.node_gap), waits.gap))
