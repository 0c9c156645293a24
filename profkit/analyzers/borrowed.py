"""Modules of an eager recording, taken from one of the same configuration with CUDA graphs.

Eager launches carry no module, but the kernels of a forward are the same ones in the same order: where the sequences
of kernels of a step can be aligned, each kernel belongs to the module of its partner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from profkit.traces import I32, I64, UNKNOWN, Trace

from .attribution import Attribution
from .kernel_keys import kernel_key
from .layers import FORWARDS
from .modules import OpModules
from .result import one_name
from .sequences import align
from .vocabulary import PHASE

ALIKE = 0.9
"""Share of the kernels of a forward that must have a partner on the other side."""


def with_borrowed_modules(attributions: Sequence[Attribution]) -> tuple[Attribution, ...]:
    """The same attributions; those without modules take them from one recorded with graphs, where there is one."""
    return tuple(_borrowing(one, attributions) if one.modules.unknown else one for one in attributions)


def _borrowing(attribution: Attribution, others: Sequence[Attribution]) -> Attribution:
    run = attribution.trace.run
    for other in sorted(others, key=lambda one: one.trace.run.model != run.model):
        known = other.trace.run
        alike = (known.config, known.concurrency) == (run.config, run.concurrency) and one_name(known.model, run.model)
        if alike and run.config and other.modules.unknown is None and set(other.devices) == set(attribution.devices):
            return _with(attribution, _modules_of(attribution, other))
    return attribution


def _with(attribution: Attribution, modules: OpModules) -> Attribution:
    return replace(attribution, find_modules=lambda: modules)


def _modules_of(attribution: Attribution, donor: Attribution) -> OpModules:
    of_op = np.full(len(attribution.trace.ops), UNKNOWN, np.int32)
    key = cache(kernel_key)
    for device in attribution.devices:
        for phase in FORWARDS:
            steps = _steps(attribution, device, PHASE[phase])
            models = _steps(donor, device, PHASE[phase])
            if steps and models:
                model = _usual(models)
                there = _named(donor.trace, model, key)
                _copy(of_op, attribution.trace, steps, there, donor.modules.of_op[model], key)
    if not np.any(of_op >= 0):
        reason = "its kernels are not those of the recording with CUDA graphs beside it, whose modules are known"
        return replace(attribution.modules, unknown=reason)
    return OpModules(donor.modules.names, of_op, None, borrowed=True)


def _named(trace: Trace, rows: I64, key: Callable[[str], str]) -> tuple[str, ...]:
    return tuple(key(trace.strings[name]) for name in trace.ops.name[rows].tolist())


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


def _copy(
    of_op: I32, trace: Trace, steps: list[I64], there: tuple[str, ...], module: I32, key: Callable[[str], str]
) -> None:
    """Give the ops of each step that is like ``there`` the modules of their partners in it."""
    aligned: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
    for rows in steps:
        here = _named(trace, rows, key)
        if here not in aligned:
            pairs = [(i, j) for i, j in align(here, there) if i is not None and j is not None]
            alike = len(pairs) >= ALIKE * max(len(here), len(there))
            aligned[here] = ([i for i, _ in pairs], [j for _, j in pairs]) if alike else ([], [])
        own, partner = aligned[here]
        of_op[rows[own]] = module[partner]
