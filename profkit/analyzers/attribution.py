"""Every op with its launch, range, step, phase and class: what all further questions are asked of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from profkit.traces import I8, I32, I64, UNKNOWN, Bools, OpKind, Trace

from .arrays import distinct
from .modules import OpModules, op_modules
from .owners import launch_of_op, range_at
from .partition import DeviceTimeline, build_timeline
from .rules import Rule, Rules, load_rules
from .steps import DECODE, StepPlan, plan_steps, spans_at
from .vocabulary import CLASS, PARTS, PHASE


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """A trace with, per op: row of its launch, row of the innermost range, step, phase and class codes.

    ``UNKNOWN`` stands where there is none. ``in_decode`` tells which ops were launched in a decode step, ``modules``
    which module each belongs to; ``collective`` indexes ``collective_rules``; ``devices`` holds the timeline of each
    device. The samples of ``counters_moved`` were moved back by so much, to the clock of the ops.
    """

    trace: Trace
    rules: Rules
    plan: StepPlan
    launch: I64
    range: I64
    step: I64
    in_decode: Bools
    phase: I8
    kernel_class: I8
    collective: I32
    collective_rules: tuple[Rule, ...]
    devices: dict[int, DeviceTimeline]
    counters_moved: Mapping[int, int] = field(default_factory=dict)
    find_modules: Callable[[], OpModules] = field(default=lambda: OpModules((), np.empty(0, np.int32)))

    @property
    def modules(self) -> OpModules:
        """The module of each op; found when first asked for, since it takes as long as all the rest."""
        return self.find_modules()

    def check(self) -> None:
        """Raise ``ValueError`` where the parts of a device do not sum to its time."""
        for timeline in self.devices.values():
            timeline.check()


def decode_ops(plan: StepPlan, step: I64) -> Bools:
    """Which ops belong to a decode step."""
    if not len(plan.steps):
        return np.zeros(len(step), np.bool_)
    decode: Bools = plan.steps.kind[np.maximum(step, 0)] == DECODE
    return (step >= 0) & decode


def attribute(trace: Trace, rules: Rules | None = None) -> Attribution:
    """Attribute every op of ``trace`` (design, sections 4 and 5)."""
    rules = rules or load_rules()
    ops, launches = trace.ops, trace.launches
    launch = launch_of_op(ops, launches)
    launch_ops = np.bincount(launch[launch >= 0], minlength=len(launches)).astype(np.int64)
    plan = plan_steps(trace, rules, launch_ops)
    calls = np.flatnonzero(launch_ops)
    at = launches.pid[calls], launches.tid[calls], launches.start[calls]

    def of_ops(found: I64) -> I64:
        # The last place stays unknown: it is what an op without launch, at -1, reads.
        by_launch = np.full(len(launches) + 1, UNKNOWN, np.int64)
        by_launch[calls] = found
        return by_launch[launch]

    steps, labels = plan.steps, plan.labels
    step = of_ops(spans_at(steps.pid, steps.tid, steps.start, steps.end, *at))
    label = of_ops(spans_at(labels.pid, labels.tid, labels.start, labels.end, *at))
    phase = np.full(len(ops), PHASE["outside"], np.int8)
    inside = step >= 0
    phase[inside] = labels.phase[label[inside]]
    in_decode = decode_ops(plan, step)
    every = np.ones(len(trace.ranges), np.bool_)
    kernel_class, collective, collective_rules = classify(trace, rules)
    innermost = of_ops(range_at(trace.ranges, every, *at))
    attribution = Attribution(
        trace=trace,
        rules=rules,
        plan=plan,
        launch=launch,
        range=innermost,
        step=step,
        in_decode=in_decode,
        phase=phase,
        kernel_class=kernel_class,
        collective=collective,
        collective_rules=collective_rules,
        devices={},
        find_modules=cache(partial(op_modules, trace, innermost)),
    )
    for device in distinct(ops.device).tolist():
        attribution.devices[device] = build_timeline(trace, rules, device, launch, phase, kernel_class, in_decode)
    return attribution


def classify(trace: Trace, rules: Rules) -> tuple[I8, I32, tuple[Rule, ...]]:
    """Class code of each op, the collective rule it matched (or ``UNKNOWN``), and those rules.

    Rules are tried once per distinct name. Memory copies and sets are ``copy`` unless a collective rule names them.
    """
    names = distinct(trace.ops.name)
    classes = np.full(max(len(trace.strings), 1), CLASS["other"], np.int8)
    collective = np.full(max(len(trace.strings), 1), UNKNOWN, np.int32)
    found: dict[Rule, int] = {}
    for number in names.tolist():
        text = trace.strings[number] if number >= 0 else ""
        rule = Rules.match(rules.collectives, text)
        if rule is not None:
            classes[number] = CLASS["collective"]
            collective[number] = found.setdefault(rule, len(found))
            continue
        named = Rules.match(rules.classes, text)
        classes[number] = CLASS[named.value] if named else CLASS["other"]
    kernel_class = classes[trace.ops.name].copy()
    moved = np.isin(trace.ops.kind, (OpKind.MEMCPY, OpKind.MEMSET)) & (kernel_class != CLASS["collective"])
    kernel_class[moved] = CLASS["copy"]
    return kernel_class, collective[trace.ops.name], tuple(found)


__all__ = ["PARTS", "Attribution", "attribute", "classify", "decode_ops"]
