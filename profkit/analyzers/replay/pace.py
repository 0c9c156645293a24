"""How fast the hosts of ranks are. They run the same program, and their cores are shared: one is slow by chance."""

from __future__ import annotations

import numpy as np

from profkit.traces import F64

from ..attribution import Attribution
from ..cycle import cycle_of
from ..vocabulary import CLASS
from .model import Calls, Model
from .simulate import simulate
from .steps import periods, step_ns
from .transform import scaled_hosts

LEAST_PACE = 0.5
TRIES = 3
CLOSE = 0.01
"""A recorder that slows the host down by more than 2 is not believed; a replay within 1 % is close enough."""


def host_times(calls: Calls) -> F64:
    """Host time per thread and step, in ns, without waiting; NaN where a thread has no call in a step."""
    counted = (calls.step >= 0) & ~calls.first
    own = np.where(calls.awaited >= 0, calls.before, calls.before + calls.duration)
    steps = int(calls.step.max(initial=-1)) + 1
    shape = int(calls.thread.max(initial=-1)) + 1, steps
    cell = (calls.thread * steps + calls.step)[counted]
    table: F64 = np.bincount(cell, own[counted].astype(np.float64), shape[0] * steps).reshape(shape).astype(np.float64)
    table[table == 0] = np.nan
    # The last step of a recording is cut off, and so may be the first.
    return table[:, 1:-1] if steps > 3 else table


def pace_factors(times: F64, quantile: float) -> F64:
    """By how much to stretch each thread's host time so that its median step is the given quantile of all."""
    whole = times[~np.isnan(times)]
    factor = np.ones(len(times))
    for thread, row in enumerate(times):
        own = row[~np.isnan(row)]
        if len(own):
            factor[thread] = np.quantile(whole, quantile) / np.median(own)
    return factor


def launch_call_ns(model: Model) -> float:
    """What a launch call of a single kernel takes on this host, in ns; copies take longer."""
    work = model.work
    single = np.bincount(work.call[work.call >= 0], minlength=len(model.calls)) == 1
    single[work.call[(work.kernel_class == CLASS["copy"]) & (work.call >= 0)]] = False
    return float(np.median(model.calls.duration[single])) if single.any() else 0.0


def unrecorded_step_ns(attribution: Attribution) -> float | None:
    """The step of the same server without a recorder, in ns: the tokens of a step over the measured throughput."""
    cycle = cycle_of(attribution, attribution.trace.run.accept_len, "")
    throughput = attribution.trace.run.tokens_per_s
    if not throughput or not cycle.accept_len or not cycle.batch_size:
        return None
    return cycle.accept_len * cycle.batch_size / throughput * 1e9


def host_pace(model: Model, unrecorded: float | None) -> float:
    """How long the host takes without a recorder, relative to the recording; 1 where that cannot be told.

    It is the pace at which the replayed step is as long as the step ``unrecorded``, which it can be where the host
    holds the step back. Recorders do not make hosts faster.
    """
    recorded = step_ns(periods(model.work, model.work.origin))
    if unrecorded is None or not LEAST_PACE * recorded < unrecorded < recorded:
        return 1.0
    pace = unrecorded / recorded
    for _ in range(TRIES):
        played = step_ns(periods(model.work, simulate(scaled_hosts(model, np.full(_threads(model), pace))).start))
        if abs(played / unrecorded - 1) < CLOSE:
            return pace
        slope = (recorded - played) / (1 - pace)
        if slope <= 0:
            return 1.0
        pace -= (played - unrecorded) / slope
        if not LEAST_PACE < pace < 1:
            return 1.0
    return 1.0


def _threads(model: Model) -> int:
    return int(model.calls.thread.max(initial=-1)) + 1
