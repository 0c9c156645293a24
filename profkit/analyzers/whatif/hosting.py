"""Levers of the hosts: CUDA graphs, and ranks that launch at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from profkit.traces import F64, I64

from ..arrays import distinct
from ..replay import predict_graphs
from ..replay.forwards import forwards_of
from ..replay.graphing import Graphing
from ..replay.model import Calls, Model
from ..replay.pace import unrecorded_step_ns
from ..replay.transform import scaled_calls
from ..vocabulary import PHASES
from .case import Case
from .changes import Change, RefusedError, Version
from .request import Request


def graphs(case: Case, request: Request, cases: Sequence[Case]) -> Change:
    """The forwards of drafter and target in CUDA graphs; see ``replay.predict_graphs``."""
    found = predict_graphs(case.attribution, case.matched)
    if found.unknown is not None:
        raise RefusedError(found.unknown)
    graphing = Graphing.of(case.model, forwards_of(case.attribution, case.model), unrecorded_step_ns(case.attribution))

    return Change(
        Version(graphing.low, least=graphing.work_alone),
        Version(graphing.usual),
        Version(graphing.high),
        found.assumptions,
        margin=graphing.margin,
        on_gpu=False,
    )


def align_launches(case: Case, request: Request, cases: Sequence[Case]) -> Change:
    """In each phase of each step no rank's host takes longer than the others' do, so that none launches late."""
    threads = len(distinct(case.model.calls.thread))
    if case.ranks < 2:
        raise RefusedError("one rank has no other one to wait for")
    if threads != case.ranks:
        raise RefusedError(f"{threads} threads launch the work of {case.ranks} ranks: whose are alike is not known")
    fastest, median = (partial(_aligned, threads=threads, quantile=at) for at in (0.0, 0.5))
    said = (
        "in each phase of each step no rank's host takes longer than the median rank's, at the lower bound than the "
        "fastest one's; the upper bound is no gain: ranks that only wait for the slowest on the host save nothing",
    )
    return Change(Version(fastest), Version(median), Version(), said, on_gpu=False)


def _aligned(model: Model, threads: int, quantile: float) -> Model:
    """In each cell no host takes longer than the ``quantile`` of all: of ``model``, whatever was changed before."""
    cell = _cells(model)
    own = _host_times(model.calls, cell, threads)
    return scaled_calls(model, _pace(model.calls, cell, own, quantile))


def _cells(model: Model) -> I64:
    """The step and phase of each call as one number, -1 in no step; one that launches nothing counts to the next."""
    calls, work = model.calls, model.work
    phase = np.full(len(calls), -1, np.int64)
    launched = work.call >= 0
    phase[work.call[launched]] = work.phase[launched]
    for place in range(len(calls) - 2, -1, -1):
        if phase[place] < 0 and calls.thread[place] == calls.thread[place + 1]:
            phase[place] = phase[place + 1]
    return np.where((calls.step >= 0) & (phase >= 0), calls.step * len(PHASES) + phase, -1)


def _host_times(calls: Calls, cell: I64, threads: int) -> F64:
    """Host time by cell and thread, in ns; shape (threads, cells)."""
    counted = (cell >= 0) & ~calls.first
    own = np.where(calls.awaited >= 0, calls.before, calls.before + calls.duration)
    cells = int(cell.max(initial=0)) + 1
    place = (calls.thread * cells + cell)[counted]
    times: F64 = np.bincount(place, own[counted].astype(np.float64), threads * cells).astype(np.float64)
    return times.reshape(threads, cells)


def _pace(calls: Calls, cell: I64, own: F64, quantile: float) -> F64:
    """How long each call takes, relative, for no rank to take longer than the ``quantile`` of all in its cell."""
    everywhere = (own > 0).all(axis=0)
    wanted = np.quantile(own, quantile, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.where(everywhere, np.minimum(wanted / own, 1.0), 1.0)
    return np.where(cell >= 0, stretch[calls.thread, np.maximum(cell, 0)], 1.0)
