"""Which spans of a host thread make up a step, how far it reaches, and how many requests it serves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I8, I64, UNKNOWN, Bools, Trace

from .steps import DECODE, PREFILL, Labels, Steps, batch_size_of, make_steps
from .vocabulary import PHASE

DRAFT, VERIFY, PLAIN, PROMPT = PHASE["draft"], PHASE["verify"], PHASE["decode"], PHASE["prefill"]
OPENING = (DRAFT, VERIFY, PLAIN, PROMPT)
"""Phases that may open a step; what has another one joins the step before it, or the one that it lies around."""

MIN_DRAFTING = 0.8
"""Share of steps that draft from which on a thread is a drafting one: a verify before its first draft is no step."""


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Ranges or graph launches with a phase, in host order on their threads, and how many ops each launched.

    ``row`` and ``parent`` are rows of ``trace.ranges``, ``UNKNOWN`` where there is no such range.
    """

    pid: I64
    tid: I64
    start: I64
    end: I64
    phase: I8
    batch_size: I64
    ops: I64
    row: I64
    parent: I64


@dataclass(frozen=True, slots=True, eq=False)
class _Thread:
    """The spans of one thread (``rows``), those that open or continue a step, and the step of each (-1: none)."""

    rows: I64
    owner: I64
    openers: I64
    number: I64

    @property
    def steps(self) -> I64:
        return np.arange(self.number.max(initial=-1) + 1)


def threads(pid: I64, tid: I64) -> list[I64]:
    """Rows of each thread; rows must be ordered by thread."""
    if not len(pid):
        return []
    cuts = np.flatnonzero((np.diff(pid) != 0) | (np.diff(tid) != 0)) + 1
    return np.split(np.arange(len(pid)), cuts)


def claim_for_prefill(spans: Spans) -> None:
    """What lies inside a prefill is prefill, in place."""
    for rows in threads(spans.pid, spans.tid):
        inside = _inside(spans.phase[rows] == PROMPT, spans.start[rows], spans.end[rows])
        spans.phase[rows[inside]] = PROMPT


def group(trace: Trace, spans: Spans) -> tuple[Steps, Labels]:
    """One step per plain decode or prefill forward, else per run of drafter forwards and the verify behind it."""
    parts, labelled = [], []
    for rows in threads(spans.pid, spans.tid):
        thread = _thread(spans, rows)
        if len(thread.steps):
            parts.append(_columns(trace, spans, thread))
            labelled.append(rows[thread.owner >= 0])
    head, start, end, kind, size, drafts = (np.concatenate(column) for column in zip(*parts, strict=True))
    steps = make_steps(spans.pid[head], spans.tid[head], start, end, kind.astype(np.int8), size)
    steps.drafts[:] = (drafts.astype(np.bool_) & (kind == DECODE))[np.lexsort((start, spans.pid[head]))]
    return steps, _labels(steps, spans, np.concatenate(labelled))


def _inside(outer: Bools, start: I64, end: I64) -> Bools:
    """Which spans of a thread lie inside an earlier one that is ``outer``."""
    reach = np.maximum.accumulate(np.where(outer, end, np.iinfo(np.int64).min))
    found = np.zeros(len(start), np.bool_)
    found[1:] = reach[:-1] > start[1:]
    return found


def _thread(spans: Spans, rows: I64) -> _Thread:
    phase, start, end = spans.phase[rows], spans.start[rows], spans.end[rows]
    opening = np.isin(phase, OPENING)
    openers = np.flatnonzero(opening & ~_inside(opening, start, end))
    of = phase[openers]
    opens = np.ones(len(openers), np.bool_)
    opens[1:] = ~((of[:-1] == DRAFT) & np.isin(of[1:], (DRAFT, VERIFY)))
    number = np.maximum(np.cumsum(opens) - 1 - _without_draft(of[opens]), UNKNOWN)
    return _Thread(rows, _owners(start, end, openers, number), openers, number)


def _without_draft(heads: I8) -> int:
    """How many steps at the start only verify where nearly all others draft: a prefill, or half a step."""
    cycles = heads[np.isin(heads, (DRAFT, VERIFY))]
    if not len(cycles) or (cycles == DRAFT).mean() < MIN_DRAFTING:
        return 0
    return int(np.argmax(heads != VERIFY))


def _owners(start: I64, end: I64, openers: I64, number: I64) -> I64:
    """The step of each span: that of the opener before it, or of the one that it lies around."""
    if not len(openers):
        return np.full(len(start), UNKNOWN, np.int64)
    before = np.searchsorted(start[openers], start, side="right") - 1
    following = np.minimum(before + 1, len(openers) - 1)
    around = (before + 1 < len(openers)) & (end > start[openers[following]])
    around[openers] = False
    at = np.where(around, following, before)
    return np.where(at >= 0, number[np.maximum(at, 0)], UNKNOWN)


def _columns(trace: Trace, spans: Spans, thread: _Thread) -> tuple[I64, ...]:
    """Head, start, end, kind, batch size and whether it drafts, of each step of a thread."""
    steps, rows = thread.steps, thread.rows
    head = rows[thread.openers[np.searchsorted(thread.number, steps)]]
    start, end = _extent(trace, spans, thread, head)
    kind = np.where(spans.phase[head] == PROMPT, PREFILL, DECODE)
    drafting = np.isin(steps, thread.owner[spans.phase[rows] == DRAFT])
    return head, start, end, kind, _batch_sizes(trace, spans, thread, head), drafting.astype(np.int64)


def _extent(trace: Trace, spans: Spans, thread: _Thread, head: I64) -> tuple[I64, I64]:
    """A step reaches over the range around it if each decode step has one of its own, else to the next step."""
    own_end = _last_ends(spans, thread)
    around = _around(spans, thread, head)
    fits = _fits(trace, spans, thread, around)
    prompt = spans.phase[head] == PROMPT
    if np.all(fits) or (np.all(fits | prompt) and not np.all(prompt)):
        ranges = trace.ranges.take(np.maximum(around, 0))
        return np.where(fits, ranges.start, spans.start[head]), np.where(fits, ranges.end, own_end)
    end = own_end.copy()
    end[:-1] = spans.start[head][1:]
    return spans.start[head], end


def _last_ends(spans: Spans, thread: _Thread) -> I64:
    ends = spans.start[thread.rows[:1]].repeat(len(thread.steps))
    mine = thread.owner >= 0
    np.maximum.at(ends, thread.owner[mine], spans.end[thread.rows[mine]])
    return ends


def _around(spans: Spans, thread: _Thread, head: I64) -> I64:
    """The range that may be a whole step: a decode forward that holds others is one itself, else what is around."""
    inner = spans.phase[thread.rows] != PROMPT
    inner[thread.openers] = False
    starts = spans.start[thread.rows[inner & np.isin(spans.phase[thread.rows], OPENING)]]
    holds = np.searchsorted(starts, spans.start[head]) < np.searchsorted(starts, spans.end[head])
    return np.where(holds & (spans.phase[head] == PLAIN), spans.row[head], spans.parent[head])


def _fits(trace: Trace, spans: Spans, thread: _Thread, around: I64) -> Bools:
    """Whether each range in ``around`` holds all spans of its step, and opens no other."""
    if not len(trace.ranges):
        return np.zeros(len(around), np.bool_)
    ranges, starts = trace.ranges.take(np.maximum(around, 0)), spans.start[thread.rows]
    mine = np.flatnonzero(thread.owner >= 0)
    first, last = np.full(len(around), np.iinfo(np.int64).max), np.zeros(len(around), np.int64)
    np.minimum.at(first, thread.owner[mine], mine)
    np.maximum.at(last, thread.owner[mine], mine)
    opened = starts[thread.openers]
    low, high = np.searchsorted(opened, ranges.start), np.searchsorted(opened, ranges.end)
    alone = (low == np.searchsorted(thread.number, thread.steps)) & (
        high == np.searchsorted(thread.number, thread.steps, side="right")
    )
    fits: Bools = (around >= 0) & alone & (starts[first] >= ranges.start) & (starts[last] < ranges.end)
    return fits


def _batch_sizes(trace: Trace, spans: Spans, thread: _Thread, head: I64) -> I64:
    """The size that the last labelled span of each step says, else the nearest range around its first one."""
    sizes = np.full(len(head), UNKNOWN, np.int64)
    said = (thread.owner >= 0) & (spans.batch_size[thread.rows] >= 0)
    sizes[thread.owner[said]] = spans.batch_size[thread.rows[said]]
    for step in np.flatnonzero(sizes < 0).tolist():
        row = int(spans.parent[head[step]])
        while row >= 0 and sizes[step] < 0:
            sizes[step] = batch_size_of(trace.strings[trace.ranges.text[row]])
            row = int(trace.ranges.parent[row])
    return sizes


def _labels(steps: Steps, spans: Spans, rows: I64) -> Labels:
    whole = np.where(steps.kind == PREFILL, PROMPT, PHASE["step_other"]).astype(np.int8)
    return Labels(
        np.concatenate([steps.pid, spans.pid[rows]]),
        np.concatenate([steps.tid, spans.tid[rows]]),
        np.concatenate([steps.start, spans.start[rows]]),
        np.concatenate([steps.end, spans.end[rows]]),
        np.concatenate([whole, spans.phase[rows]]),
    )
