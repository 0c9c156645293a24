"""Modules of an eager recording, taken from one of the same configuration with CUDA graphs.

Eager launches carry no module, but the kernels of a forward are the same ones in the same order: where the sequences
of kernels of a step can be aligned, each kernel belongs to the module of its partner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from profkit.traces import I32, I64, UNKNOWN, Trace

from .attribution import Attribution
from .layers import FORWARDS
from .modules import OpModules
from .vocabulary import PHASE


def with_borrowed_modules(attributions: Sequence[Attribution]) -> tuple[Attribution, ...]:
    """The same attributions; those without modules take them from one recorded with graphs, where there is one."""
    return tuple(_borrowing(one, attributions) if one.modules.unknown else one for one in attributions)


def _borrowing(attribution: Attribution, others: Sequence[Attribution]) -> Attribution:
    run = attribution.trace.run
    for other in others:
        known = other.trace.run
        alike = (known.config, known.concurrency) == (run.config, run.concurrency) and bool(run.config)
        if alike and other.modules.unknown is None and set(other.devices) == set(attribution.devices):
            return replace(attribution, modules=_modules_of(attribution, other))
    return attribution


def _modules_of(attribution: Attribution, donor: Attribution) -> OpModules:
    of_op = np.full(len(attribution.trace.ops), UNKNOWN, np.int32)
    for device in attribution.devices:
        for phase in FORWARDS:
            steps = _steps(attribution, device, PHASE[phase])
            models = _steps(donor, device, PHASE[phase])
            if steps and models:
                _copy(of_op, attribution.trace, steps, donor, _usual(models))
    if not np.any(of_op >= 0):
        return attribution.modules
    return OpModules(donor.modules.names, of_op, None, borrowed=True)


def _steps(attribution: Attribution, device: int, phase: int) -> list[I64]:
    """The ops of ``phase`` of each decode step, in order of start."""
    ops = attribution.trace.ops
    row = np.flatnonzero((ops.device == device) & (attribution.phase == phase) & attribution.in_decode)
    row = row[np.lexsort((ops.start[row], attribution.step[row]))]
    return np.split(row, np.flatnonzero(np.diff(attribution.step[row])) + 1) if len(row) else []


def _usual(steps: list[I64]) -> I64:
    """The first step with the most usual number of ops."""
    lengths = [len(step) for step in steps]
    return steps[lengths.index(max(set(lengths), key=lengths.count))]


def _copy(of_op: I32, trace: Trace, steps: list[I64], donor: Attribution, model: I64) -> None:
    """Give the ops of each step the modules of their partners in ``model``."""
    from .diff.names import kernel_key
    from .diff.sequences import align

    key = cache(kernel_key)

    def named(own: Trace, rows: I64) -> tuple[str, ...]:
        return tuple(key(own.strings[name]) for name in own.ops.name[rows].tolist())

    there = named(donor.trace, model)
    module = donor.modules.of_op[model]
    aligned: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
    for rows in steps:
        here = named(trace, rows)
        if here not in aligned:
            pairs = [(i, j) for i, j in align(here, there) if i is not None and j is not None]
            aligned[here] = [i for i, _ in pairs], [j for _, j in pairs]
        own, partner = aligned[here]
        of_op[rows[own]] = module[partner]
