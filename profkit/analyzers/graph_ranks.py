"""Ranks that differ: forward phases that run in graphs on one rank and without any on another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64

from .arrays import distinct
from .attribution import Attribution
from .graph_fallbacks import FORWARDS
from .graph_launches import graph_launch_rows, in_graph
from .vocabulary import PHASE, PHASES


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Forward phases, in order, that run in graphs on the devices ``graphed`` and never do on ``eager``."""

    phases: tuple[str, ...]
    graphed: tuple[int, ...]
    eager: tuple[int, ...]


def disagreements(attribution: Attribution) -> tuple[Disagreement, ...]:
    """Where devices disagree; phases on which the same devices do are one entry.

    A device some of whose graph launches have no recorded op is left out: what it ran in graphs is not known.
    """
    lost = _with_lost_graphs(attribution)
    devices = np.array([device for device in sorted(attribution.devices) if device not in lost], np.int64)
    inside, outside = _ops_of_phases(attribution, devices)
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for phase in FORWARDS:
        graphs = inside[:, PHASE[phase]] > 0
        eager = ~graphs & (outside[:, PHASE[phase]] > 0)
        if graphs.any() and eager.any():
            where = tuple(devices[graphs].tolist()), tuple(devices[eager].tolist())
            found.setdefault(where, []).append(phase)
    return tuple(Disagreement(tuple(phases), *where) for where, phases in found.items())


def _ops_of_phases(attribution: Attribution, devices: I64) -> tuple[I64, I64]:
    """Ops of the decode steps inside and outside of graphs: two arrays of shape (devices, phases)."""
    ops = attribution.trace.ops
    rows = np.flatnonzero(attribution.in_decode & np.isin(ops.device, devices))
    cell = np.searchsorted(devices, ops.device[rows]) * len(PHASES) + attribution.phase[rows]
    inside = in_graph(attribution, rows)
    shape = (len(devices), len(PHASES))
    table = [np.bincount(cell[these], minlength=len(devices) * len(PHASES)) for these in (inside, ~inside)]
    return table[0].reshape(shape), table[1].reshape(shape)


def _with_lost_graphs(attribution: Attribution) -> set[int]:
    """Devices of processes with graph launches that no op is known of."""
    trace = attribution.trace
    launched = graph_launch_rows(trace)
    pids = trace.launches.pid[launched[~np.isin(launched, attribution.launch)]]
    return set(distinct(trace.ops.device[np.isin(trace.ops.pid, pids)]).tolist())
