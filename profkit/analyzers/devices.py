"""The figures of one device."""

from __future__ import annotations

import re

import numpy as np

from profkit.traces import I64, UNKNOWN, Bools, Index

from .activity import phase_activity
from .arrays import distinct
from .attribution import Attribution
from .collectives import collective_figures
from .counters import counter_sampling
from .cycle import device_steps
from .device_result import ClassFigures, DeviceFigures, KernelFigures, Parts, PhaseFigures, Window
from .intervals import union_length
from .layers import layer_figures
from .link_use import link_use
from .matching import MatchedCollectives
from .rules import Rules
from .vocabulary import CLASS, CLASSES, PARTS, PHASES

BUSY_PARTS = ("compute", "collective", "copy")
TOP_KERNELS = 40


def device_figures(
    attribution: Attribution, matched: MatchedCollectives, device: int, rank: int, idle_known: bool
) -> DeviceFigures:
    """All figures of ``device``; without ``idle_known`` (records are missing) the partition is unknown."""
    trace, timeline = attribution.trace, attribution.devices[device]
    mine = trace.ops.device == device
    totals = timeline.window_totals() if idle_known else None
    start, end = timeline.window_start, timeline.window_end
    window = Window(start, end, end - start) if start is not None and end is not None else None
    parts: Parts = {name: None if totals is None else int(totals[code].sum()) for code, name in enumerate(PARTS)}
    busy = None if totals is None else sum(parts[name] or 0 for name in BUSY_PARTS)
    collectives = collective_figures(attribution, matched, device, parts["collective"])
    return DeviceFigures(
        rank=rank,
        ops=int(mine.sum()),
        ops_without_launch=int((mine & (attribution.launch == UNKNOWN)).sum()),
        steps=len(device_steps(attribution, device).row),
        window=window,
        busy_union_ns=busy,
        idle_ns=window.wall_ns - busy if window and busy is not None else None,
        partition_ns=parts,
        phase_partition_ns=_by_phase(totals),
        collectives=collectives,
        phases=_phases(attribution, mine),
        classes=_classes(attribution, device, mine),
        kernels=_kernels(attribution, device, mine),
        gpu=next((d.name for d in trace.devices if d.device == device), ""),
        layers=layer_figures(attribution, device),
        link_use=link_use(attribution, matched, device, collectives.kinds),
        activity=phase_activity(attribution, device),
        sampling=counter_sampling(attribution, device),
        link_bandwidth=next((d.link_bandwidth for d in trace.devices if d.device == device), None),
    )


def _by_phase(totals: np.ndarray | None) -> dict[str, Parts]:
    if totals is None:
        return {}
    present = np.flatnonzero(totals.sum(axis=0)).tolist()
    return {PHASES[p]: {name: int(totals[code, p]) for code, name in enumerate(PARTS)} for p in present}


def _phases(attribution: Attribution, mine: Bools) -> dict[str, PhaseFigures]:
    ops, plan = attribution.trace.ops, attribution.plan
    figures = {}
    for code in distinct(attribution.phase[mine]).tolist():
        rows = np.flatnonzero(mine & (attribution.phase == code))
        start, end = ops.start[rows], ops.end[rows]
        collective = attribution.kernel_class[rows] == CLASS["collective"]
        figures[PHASES[code]] = PhaseFigures(
            ops=len(rows),
            sum_ns=int((end - start).sum()),
            union_ns=union_length(start, end),
            span_ns=int(end.max() - start.min()),
            collective_union_ns=union_length(start[collective], end[collective]),
            graph_ops=int((ops.graph_launch[rows] >= 0).sum()),
            inferred=plan.inferred and PHASES[code] not in ("outside", "prefill"),
        )
    return figures


def _in_window(attribution: Attribution, device: int, mine: Bools) -> tuple[Index, I64, I64]:
    """The device's ops in the window (all of them where there is none) with their start and end clipped to it."""
    ops, timeline = attribution.trace.ops, attribution.devices[device]
    if timeline.window_start is None or timeline.window_end is None:
        rows = np.flatnonzero(mine)
        return rows, ops.start[rows], ops.end[rows]
    rows = np.flatnonzero(mine & (ops.start < timeline.window_end) & (ops.end > timeline.window_start))
    return rows, np.maximum(ops.start[rows], timeline.window_start), np.minimum(ops.end[rows], timeline.window_end)


def _classes(attribution: Attribution, device: int, mine: Bools) -> dict[str, ClassFigures]:
    rows, start, end = _in_window(attribution, device, mine)
    figures = {}
    for code in distinct(attribution.kernel_class[rows]).tolist():
        own = attribution.kernel_class[rows] == code
        total = int((end - start)[own].sum())
        figures[CLASSES[code]] = ClassFigures(int(own.sum()), total, union_length(start[own], end[own]))
    return figures


def _kernels(attribution: Attribution, device: int, mine: Bools) -> tuple[KernelFigures, ...]:
    """The kernels that take most time, and the largest that no rule named."""
    ops, strings = attribution.trace.ops, attribution.trace.strings
    rows, start, end = _in_window(attribution, device, mine)
    key = (ops.name[rows] + 1).astype(np.int64) * len(PHASES) + attribution.phase[rows]
    count = np.bincount(key)
    total = np.bincount(key, weights=end - start).astype(np.int64)
    kind = np.zeros(len(count), np.int64)
    kind[key] = attribution.kernel_class[rows]
    found = np.flatnonzero(count)
    figures: list[KernelFigures] = []
    unnamed = 0
    for place in found[np.argsort(-total[found], kind="stable")].tolist():
        name = strings[place // len(PHASES) - 1]
        ruled = int(kind[place]) != CLASS["other"] or Rules.match(attribution.rules.classes, name) is not None
        unnamed += not ruled
        if len(figures) < TOP_KERNELS or (not ruled and unnamed <= TOP_KERNELS // 4):
            figures.append(
                KernelFigures(
                    re.sub(r"\s+", " ", name),
                    CLASSES[int(kind[place])],
                    PHASES[place % len(PHASES)],
                    int(count[place]),
                    int(total[place]),
                    ruled,
                )
            )
    return tuple(figures)
