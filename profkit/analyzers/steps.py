"""The steps of the engine on each host thread, and the ranges that give the ops of a step their phase.

Three sources, the first that is there wins: ranges of profkit's plugin (design, section 4); ranges that the rules
name (SGLang's own ``step[…]``, or a user's ``--rules``); the structure of graph launches. What does not come from
the plugin's own ranges or from an unambiguous label is marked as inferred.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from profkit.traces import I8, I32, I64, UNKNOWN, Bools, Trace

from .rules import FORWARD, Rules
from .vocabulary import PHASE

PREFILL, DECODE = 0, 1
STEP = re.compile(r"^step:(prefill|decode)\b(?:.*?\bbs=(\d+))?")
BATCH = re.compile(r"\bbs=(\d+)")
INNER = {
    "prepare": PHASE["draft"],
    "draft": PHASE["draft"],
    "draft_sample": PHASE["draft"],
    "target": PHASE["verify"],
    "accept": PHASE["accept"],
    "accept_sim": PHASE["accept"],
    "kv_append": PHASE["kv_append"],
}
UNRESOLVED = -2


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps in host order. ``kind`` is ``PREFILL`` or ``DECODE``; ``index`` counts a process's steps of one kind.

    ``drafts`` tells whether a drafter ran in the step; ``batch_size`` is ``UNKNOWN`` where no label says.
    """

    pid: I64
    tid: I64
    start: I64
    end: I64
    kind: I8
    batch_size: I64
    drafts: Bools
    index: I64

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Spans of a host thread with the phase that ops launched in them serve."""

    pid: I64
    tid: I64
    start: I64
    end: I64
    phase: I8


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """Steps and labels of a trace, and how they were found.

    ``source`` is ``profkit``, ``annotations``, ``rules``, ``structure`` or ``none``; ``inferred`` tells whether
    phases rest on structure.
    """

    steps: Steps
    labels: Labels
    source: str
    inferred: bool
    detail: str = ""


def empty_plan(detail: str = "") -> StepPlan:
    """A plan without steps."""
    none = np.empty(0, np.int64)
    flags = none.astype(np.int8)
    steps = Steps(none, none, none, none, flags, none, none.astype(np.bool_), none)
    return StepPlan(steps, Labels(none, none, none, none, flags), "none", False, detail)


def plan_steps(trace: Trace, rules: Rules, launch_ops: I64) -> StepPlan:
    """Find the steps of ``trace``. ``launch_ops`` is the number of ops that each row of ``trace.launches`` owns."""
    from .structure import plan_from_forwards, plan_from_graphs

    if not rules.user_phases:
        own = _plan_from_plugin(trace)
        if own is not None:
            return own
    forwards = forwards_of(trace, rules)
    if len(forwards.row):
        return plan_from_forwards(trace, forwards, launch_ops, "rules" if rules.user_phases else "annotations")
    return plan_from_graphs(trace, launch_ops)


def _plan_from_plugin(trace: Trace) -> StepPlan | None:
    domain = next((i for i, text in enumerate(trace.strings) if text == "profkit"), None)
    named = trace.ranges.domain == domain if domain is not None else np.zeros(len(trace.ranges), np.bool_)
    steps = _step_codes(trace)
    if not np.any(steps[trace.ranges.text[named]] >= 0 if np.any(named) else False):
        # The PyTorch profiler keeps no domains: the same words, in the default one.
        named = np.ones(len(trace.ranges), np.bool_)
    rows = np.flatnonzero(named & (steps[trace.ranges.text] >= 0)) if len(trace.ranges) else np.empty(0, np.int64)
    if not len(rows):
        return None
    inner_codes = np.array([INNER.get(text, UNKNOWN) for text in trace.strings], np.int8)
    inner = np.flatnonzero(named & (inner_codes[trace.ranges.text] >= 0))
    kind = steps[trace.ranges.text[rows]].astype(np.int8)
    sizes = np.array([batch_size_of(text) for text in trace.strings], np.int64)
    ranges = trace.ranges
    step = make_steps(
        ranges.pid[rows], ranges.tid[rows], ranges.start[rows], ranges.end[rows], kind, sizes[ranges.text[rows]]
    )
    owner = _owning_step(step, ranges.pid[inner], ranges.tid[inner], ranges.start[inner])
    phase = inner_codes[ranges.text[inner]].copy()
    drafted = np.unique(owner[(phase == PHASE["draft"]) & (owner >= 0)])
    step.drafts[drafted] = True
    return StepPlan(step, _plugin_labels(trace, rows, kind, inner, phase, owner, step), "profkit", False)


def _plugin_labels(trace: Trace, rows: I64, kind: I8, inner: I64, phase: I8, owner: I64, step: Steps) -> Labels:
    """The step itself is ``step_other`` or ``prefill``; a target forward is ``verify`` only where the step drafts."""
    inside = owner >= 0
    inner, phase, owner = inner[inside], phase[inside], owner[inside]
    plain = (phase == PHASE["verify"]) & ~step.drafts[owner]
    phase[plain] = PHASE["decode"]
    phase[step.kind[owner] == PREFILL] = PHASE["prefill"]
    whole = np.where(kind == PREFILL, PHASE["prefill"], PHASE["step_other"]).astype(np.int8)
    every = np.concatenate([rows, inner])
    ranges = trace.ranges.take(every)
    return Labels(ranges.pid, ranges.tid, ranges.start, ranges.end, np.concatenate([whole, phase]))


def _step_codes(trace: Trace) -> I8:
    found = [STEP.match(text) for text in trace.strings] or [None]
    return np.array([UNKNOWN if m is None else (PREFILL, DECODE)[m[1] == "decode"] for m in found], np.int8)


def batch_size_of(text: str) -> int:
    """The number behind ``bs=`` in ``text``, or ``UNKNOWN``."""
    found = BATCH.search(text)
    return int(found[1]) if found else UNKNOWN


def make_steps(pid: I64, tid: I64, start: I64, end: I64, kind: I8, batch_size: I64) -> Steps:
    """``Steps`` in host order, numbered per process and kind; ``drafts`` is false everywhere to begin with."""
    order = np.lexsort((start, pid))
    pid, tid, start, end = pid[order], tid[order], start[order], end[order]
    kind, batch_size = kind[order], batch_size[order]
    index = np.zeros(len(order), np.int64)
    for process in np.unique(pid):
        for which in (PREFILL, DECODE):
            mine = np.flatnonzero((pid == process) & (kind == which))
            index[mine] = np.arange(len(mine))
    return Steps(pid, tid, start, end, kind, batch_size, np.zeros(len(order), np.bool_), index)


def _owning_step(steps: Steps, pid: I64, tid: I64, time: I64) -> I64:
    return spans_at(steps.pid, steps.tid, steps.start, steps.end, pid, tid, time)


def spans_at(pid: I64, tid: I64, start: I64, end: I64, at_pid: I64, at_tid: I64, time: I64) -> I64:
    """The row of the innermost span that is open on thread (at_pid, at_tid) at ``time``, or ``UNKNOWN``."""
    from profkit.traces import Ranges

    from .owners import range_at

    order = np.lexsort((-end, start, tid, pid))
    none = np.zeros(len(order), np.int32)
    spans = Ranges(start[order], end[order], pid[order], tid[order], none, none, none, none.astype(np.int64))
    found = range_at(spans, np.ones(len(order), np.bool_), at_pid, at_tid, time)
    return np.where(found >= 0, order[np.maximum(found, 0)], UNKNOWN) if len(order) else found


@dataclass(frozen=True, slots=True, eq=False)
class Forwards:
    """Ranges around forwards of the engine: their rows, phase codes (``UNRESOLVED`` where open) and batch sizes."""

    row: I64
    phase: I8
    batch_size: I64 = field(default_factory=lambda: np.empty(0, np.int64))


def forwards_of(trace: Trace, rules: Rules) -> Forwards:
    """The ranges that a phase rule names; of nested ones the innermost decides, as with any range."""
    codes = np.full(max(len(trace.strings), 1), UNKNOWN, np.int8)
    for number in np.unique(trace.ranges.text).tolist():
        rule = Rules.match(rules.phases, trace.strings[number]) if number >= 0 else None
        if rule is not None:
            codes[number] = UNRESOLVED if rule.value == FORWARD else PHASE[rule.value]
    row = np.flatnonzero(codes[trace.ranges.text] != UNKNOWN) if len(trace.ranges) else np.empty(0, np.int64)
    text: I32 = trace.ranges.text[row]
    sizes = np.array([batch_size_of(trace.strings[number]) for number in text.tolist()], np.int64)
    return Forwards(row, codes[text], sizes)
