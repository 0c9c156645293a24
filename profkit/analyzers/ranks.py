"""Ranks of devices, and which steps of different ranks are the same step."""

from __future__ import annotations

import re

import numpy as np

from profkit.traces import I64, Bools, Index, Trace
from profkit.traces.alignment import NOT_THERE, step_shift

from .arrays import distinct, occurring
from .attribution import Attribution
from .owners import pair_keys
from .steps import DECODE, spans_at
from .vocabulary import CLASS

LAUNCH = re.compile(r"Launch(?!Host)")
"""API calls that start work on the GPU, under any of their names."""

WHOLE = 0.95
"""A step at the end of a recording with a smaller share of the usual ops is cut off."""

MIN_STEPS = 3


def rank_of_device(trace: Trace) -> dict[int, int]:
    """The rank of each device with ops: what the recording says, else the device's place among them."""
    devices = distinct(trace.ops.device).tolist()
    said = {process.pid: process.rank for process in trace.processes if process.rank is not None}
    if not said:
        return {device: place for place, device in enumerate(devices)}
    ranks: dict[int, int] = {}
    for place, device in enumerate(devices):
        pids = distinct(trace.ops.pid[trace.ops.device == device]).tolist()
        known = {said[pid] for pid in pids if pid in said}
        ranks[device] = known.pop() if len(known) == 1 else place
    all_differ = len(set(ranks.values())) == len(ranks)
    return ranks if all_differ else {device: place for place, device in enumerate(devices)}


def step_numbers(attribution: Attribution) -> dict[int, I64]:
    """For each device, the number of the decode step of every op (rows of ``trace.ops``), -1 outside.

    The same number means the same step of the engine on all devices: each device counts its own steps, and the counts
    are shifted against each other where the recordings of ranks began at different steps.
    """
    ops = attribution.trace.ops
    rows = {device: np.flatnonzero((ops.device == device) & attribution.in_decode) for device in attribution.devices}
    counts = {device: _places(attribution, device)[attribution.step[mine]] for device, mine in rows.items()}
    ends = {device: _step_ends(counts[device], ops.end[mine]) for device, mine in rows.items()}
    reference = next((end for end in ends.values() if len(end)), np.empty(0, np.int64))
    shifts = {device: step_shift(reference, end) if len(end) else 0 for device, end in ends.items()}
    # A recording that began before the first device's must not count from below zero.
    first = min(shifts.values(), default=0)
    result = {}
    for device, mine in rows.items():
        result[device] = np.full(len(ops), -1, np.int64)
        result[device][mine] = counts[device] + shifts[device] - first
    return result


def own_steps(attribution: Attribution, device: int) -> Index:
    """The decode steps (rows of the plan) of the host threads that serve ``device``, in order.

    A process with several devices may have a thread for each. Steps without an op on the device are among them.
    """
    steps = attribution.plan.steps
    mine = (attribution.trace.ops.device == device) & attribution.in_decode
    (threads,) = pair_keys((steps.pid, steps.tid))
    served = np.isin(threads, threads[occurring(attribution.step[mine])])
    rows = np.flatnonzero(served & (steps.kind == DECODE))
    return rows[np.argsort(steps.start[rows], kind="stable")]


def lost_steps(attribution: Attribution) -> dict[int, Index]:
    """For each device with any: its decode steps that launched work of which the recording has no GPU record.

    They lie between steps with GPU records; at the ends of a recording it is no loss that the GPU was behind.
    """
    recorded = occurring(attribution.step[attribution.step >= 0])
    lost = {}
    for device in attribution.devices:
        own = own_steps(attribution, device)
        there = np.flatnonzero(np.isin(own, recorded))
        between = own[there[0] : there[-1]] if len(there) else own[:0]
        empty = between[~np.isin(between, recorded)]
        empty = empty[_launches_work(attribution, empty)] if len(empty) else empty
        if len(empty):
            lost[device] = empty
    return lost


def missing_ranks(attribution: Attribution) -> str | None:
    """Ranks that took part but whose GPU records are missing."""
    trace = attribution.trace
    world = max((int(text) for text in trace.notes_of("world_size") if text.isdigit()), default=0)
    active = set(distinct(trace.ops.pid).tolist())
    stepping = set(distinct(attribution.plan.steps.pid).tolist())
    silent = sorted(stepping - active)
    if silent and active:
        return f"process {silent[0]} runs steps but has no GPU records"
    devices = len(attribution.devices)
    if world > devices > 0 and np.any(attribution.kernel_class == CLASS["collective"]):
        return f"{devices} of {world} ranks are recorded"
    return None


def edge_ops(attribution: Attribution) -> Index:
    """The first and the last op of each device."""
    ops = attribution.trace.ops
    rows = (np.flatnonzero(ops.device == device) for device in attribution.devices)
    ends = [mine[at] for mine in rows if len(mine) for at in (np.argmin(ops.start[mine]), np.argmax(ops.end[mine]))]
    return np.array(ends, np.intp)


def cut_steps(attribution: Attribution) -> dict[int, dict[str, float]]:
    """For each device with any: ``begins`` or ``ends``, and what share of a decode step's usual ops it has there.

    Only where the first or the last op of the recording belongs to a decode step that has clearly fewer than others of
    its batch size.
    """
    cut: dict[int, dict[str, float]] = {}
    edges = attribution.step[edge_ops(attribution)].reshape(-1, 2)
    for device, ends in zip(attribution.devices, edges.tolist(), strict=True):
        mine = (attribution.trace.ops.device == device) & attribution.in_decode
        steps, counts = np.unique(attribution.step[mine], return_counts=True)
        batch = attribution.plan.steps.batch_size[steps]
        for end, step in zip(("begins", "ends"), ends, strict=True):
            here = np.flatnonzero(steps == step)
            alike = counts[np.isin(batch, batch[here])]
            if len(here) and len(alike) >= MIN_STEPS and counts[here[0]] < WHOLE * np.median(alike):
                cut.setdefault(device, {})[end] = float(counts[here[0]] / np.median(alike))
    return cut


def _launches_work(attribution: Attribution, step: Index) -> Bools:
    """Whether the host launches kernels or graphs in each step (rows of the plan)."""
    launches, steps = attribution.trace.launches, attribution.plan.steps
    named = np.array([LAUNCH.search(text) is not None for text in attribution.trace.strings] or [False])
    calls = np.flatnonzero(named[launches.api])
    at = launches.pid[calls], launches.tid[calls], launches.start[calls]
    return np.isin(step, spans_at(steps.pid, steps.tid, steps.start, steps.end, *at))


def _places(attribution: Attribution, device: int) -> I64:
    """The place of each row of the plan among the steps of ``device``, or -1."""
    own = own_steps(attribution, device)
    place = np.full(len(attribution.plan.steps), -1)
    place[own] = np.arange(len(own))
    return place


def _step_ends(number: I64, end: I64) -> I64:
    ends = np.full(int(number.max()) + 1 if len(number) else 0, NOT_THERE)
    np.maximum.at(ends, number, end)
    return ends
