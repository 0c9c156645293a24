"""How fast the hosts of ranks are. They run the same program, and their cores are shared: one is slow by chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profkit.traces import F64

from ..attribution import Attribution
from ..cycle import cycle_of
from ..vocabulary import CLASS
from ..words import duration
from .model import Calls, Model
from .simulate import Player, simulate
from .steps import periods, step_ns
from .transform import scaled_hosts

FAST, TYPICAL, SLOW = 0.1, 0.5, 0.9
NEARLY_ALL = 0.9

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


@dataclass(frozen=True, slots=True, eq=False)
class Paces:
    """By how much to stretch each thread's host time: for the low bound, as usual, and for the high bound.

    ``own`` says that some rank's host is slower throughout, which is then no chance: each rank usually keeps its pace.
    """

    fast: F64
    usual: F64
    slow: F64
    own: bool


def paces_of(times: F64) -> Paces:
    """The paces that host ``times`` (threads, steps) allow.

    Where ranks differ by chance, the median step of each becomes that of all, and for the bounds the fastest and the
    slowest tenth of all. No rank becomes slower by more than its own steps differ: its slow tenth over its fast one.
    """
    quick, typical, late = (np.minimum(_stretch(times, times, q), _spread(times)) for q in (FAST, TYPICAL, SLOW))
    if not slower_throughout(times):
        return Paces(quick, typical, late, own=False)
    fast, slow = (np.array([_stretch(row[None], row[None], q)[0] for row in times]) for q in (FAST, SLOW))
    # A core by chance slower throughout is believed as far as a recorder's slowing down is.
    fast = np.minimum(fast, np.maximum(quick, LEAST_PACE))
    return Paces(fast, np.ones(len(times)), np.maximum(slow, late), own=True)


def slower_throughout(times: F64) -> bool:
    """Whether some rank's host takes longer than the others' in nearly every step, by more than any rank's steps vary.

    Variation is from the fastest to the slowest tenth of steps.
    """
    used = times[~np.isnan(times).all(axis=1)]
    used = used[:, ~np.isnan(used).any(axis=0)]
    if len(used) < 2 or not used.size:
        return False
    varies = np.ptp(np.quantile(used, (FAST, SLOW), axis=1), axis=0).max()
    for thread, row in enumerate(used):
        ahead = row - np.median(np.delete(used, thread, axis=0), axis=0)
        if np.mean(ahead > 0) >= NEARLY_ALL and np.median(ahead) > varies:
            return True
    return False


def _stretch(times: F64, pool: F64, quantile: float) -> F64:
    """Per thread, the quantile of ``pool`` over the median of its own steps; 1 for a thread without any."""
    return _per_thread(times, lambda own: float(np.quantile(pool[~np.isnan(pool)], quantile) / np.median(own)))


def _spread(times: F64) -> F64:
    return _per_thread(times, lambda own: float(np.quantile(own, SLOW) / np.quantile(own, FAST)))


def _per_thread(times: F64, figure: Callable[[F64], float]) -> F64:
    own = [row[~np.isnan(row)] for row in times]
    return np.array([figure(row) if len(row) else 1.0 for row in own])


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


@dataclass(frozen=True, slots=True)
class HostPace:
    """How long the host takes without a recorder, relative to the recording, and how that is known, in words."""

    factor: float
    said: str


def host_pace(model: Model, unrecorded: float | None, player: Player | None = None) -> HostPace:
    """How long the host takes without a recorder, relative to the recording; 1 where that cannot be told.

    It is the pace at which the replayed step is as long as the step ``unrecorded``, which it can be where the host
    holds the step back. Recorders do not make hosts faster.
    """
    recorded = step_ns(periods(model.work, model.work.origin))
    if unrecorded is None:
        return _as_recorded("no throughput without a recorder says how fast it is otherwise")
    without = f"the throughput without a recorder means a step of {duration(unrecorded)}"
    if unrecorded >= recorded:
        return _as_recorded(f"{without}, and the recorded one of {duration(recorded)} is no longer than that")
    if unrecorded <= LEAST_PACE * recorded:
        return _as_recorded(
            f"{without}, under half of the recorded {duration(recorded)}: no recorder slows down by that"
        )
    pace = pace_at(model, unrecorded, recorded, player or Player())
    if pace is None:
        return _as_recorded(f"{without}, which the recorded one of {duration(recorded)} has at no pace of the host")
    return HostPace(
        pace,
        f"the host takes {pace:.2f} times as long as in the recording: at that pace the eager step is as long as the "
        "throughput without a recorder says; the upper bound is at the recorded pace",
    )


def _as_recorded(why: str) -> HostPace:
    return HostPace(1.0, f"the host is as fast as in the recording: {why}")


def pace_at(model: Model, unrecorded: float, recorded: int, player: Player) -> float | None:
    """The pace of the host at which the replayed step is as long as ``unrecorded``; ``None`` where none is."""
    pace = unrecorded / recorded
    for _ in range(TRIES):
        scaled = scaled_hosts(model, np.full(_threads(model), pace))
        played = step_ns(periods(model.work, simulate(scaled, player).start))
        if abs(played / unrecorded - 1) < CLOSE:
            return pace
        slope = (recorded - played) / (1 - pace)
        if slope <= 0:
            return None
        pace -= (played - unrecorded) / slope
        if not LEAST_PACE < pace < 1:
            return None
    return None


def _threads(model: Model) -> int:
    return int(model.calls.thread.max(initial=-1)) + 1
