"""From changes to figures: the step that they give, and what it gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.traces import I64

from ..replay.steps import periods, step_ns
from .case import Case
from .changes import Change, Version, no_floor, unchanged
from .holding import fastest_host, held_back
from .result import Economics, Figure, Span, Unrecorded


def step_with(case: Case, changes: Sequence[Change]) -> Span:
    """The step with all ``changes``, one after the other, re-played.

    Where the host holds one of them back, the low bound is with as fast a host as may be.
    """
    if not changes:
        now = step_ns(periods(case.model.work, case.start))
        return Span(now, now, now)
    usually, beneath = _played(case, [change.usual for change in changes])
    hosts = fastest_host(case).sped_up if held_back(case, changes) else unchanged
    fast, floor = _played(case, [*(change.low for change in changes), Version(hosts)])
    slow, _ = _played(case, [change.high for change in changes])
    usual = max(_step(case, usually), beneath)
    margin = max((change.margin(periods(case.model.work, usually)) for change in changes), default=0)
    shortest, longest = min(one.spread[0] for one in changes), max(one.spread[1] for one in changes)
    low = max(round(min(_step(case, fast), usual) * shortest) - margin, round(floor * shortest))
    return Span(min(low, usual), usual, round(max(_step(case, slow), usual) * longest) + margin)


def _played(case: Case, versions: Sequence[Version]) -> tuple[I64, int]:
    """When ops start then, and the step below which that cannot be believed."""
    model, floor = case.model, 0
    for version in versions:
        if version.floor is not no_floor:
            # What a change takes away cannot make the step longer than it was without it.
            floor = max(floor, min(version.floor(model), _step(case, case.played(model))))
        model = version.change(model)
    return case.played(model), max(floor, _least(case, versions))


def _least(case: Case, versions: Sequence[Version]) -> int:
    """The step of the combination with nothing but work, where a version says what that is."""
    if not any(version.least for version in versions):
        return 0
    model = case.model
    for version in versions:
        model = (version.least or version.change)(model)
    return step_ns(periods(model.work, case.played(model)))


def _step(case: Case, start: I64) -> int:
    """The median step; where nothing happens later than now, it is no longer than now, and the other way round.

    Steps differ from each other, so that their median can move against all of them.
    """
    then, now = (step_ns(periods(case.model.work, times)) for times in (start, case.start))
    if bool(np.all(start <= case.start)):
        return min(then, now)
    return max(then, now) if bool(np.all(start >= case.start)) else then


def economics(case: Case, step: Span, accept_len: Figure | None, plain: Span | None) -> Economics:
    """What a ``step`` gives, beside the ``plain`` one of the same batch size."""
    batch = case.cycle.batch_size
    break_even = None
    if plain:
        break_even = Figure(step.low / plain.high, step.usual / plain.usual, step.high / plain.low)
    if not accept_len or not batch:
        return Economics(step, accept_len, None, None, break_even)
    tokens = [count * batch for count in (accept_len.low, accept_len.usual, accept_len.high)]
    cost = Figure(step.low / tokens[2] / 1e3, step.usual / tokens[1] / 1e3, step.high / tokens[0] / 1e3)
    rate = Figure(1e6 / cost.high, 1e6 / cost.usual, 1e6 / cost.low)
    if not plain:
        return Economics(step, accept_len, cost, rate)
    low, usual, high = (ns / batch / 1e9 for ns in (plain.low, plain.usual, plain.high))
    speedup = Figure(rate.low * low, rate.usual * usual, rate.high * high)
    return Economics(step, accept_len, cost, rate, break_even, speedup)


def unrecorded(case: Case, plain: Case | None) -> Unrecorded | None:
    """What is known of the run without a recorder, beside that of plain decoding."""
    run = case.attribution.trace.run
    step = run.step_times.median_ns if run.step_times else None
    if not step and not run.tokens_per_s:
        return None
    beside = plain.attribution.trace.run if plain else None
    by_steps = by_rate = None
    if beside and beside.step_times and beside.step_times.median_ns and step:
        by_steps = step / beside.step_times.median_ns
    if beside and beside.tokens_per_s and run.tokens_per_s and case.cycle.accept_len:
        by_rate = case.cycle.accept_len / (run.tokens_per_s / beside.tokens_per_s)
    return Unrecorded(step or None, run.tokens_per_s, by_steps, by_rate)


def accepted(case: Case, changes: Sequence[Change]) -> Figure | None:
    """The accept length then: what a change says, else the recording's."""
    said = [change.tokens for change in changes if change.tokens]
    now = case.cycle.accept_len
    if said:
        return said[0]
    return Figure(now, now, now) if now else None
