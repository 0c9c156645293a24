"""From an attributed recording to the model that is re-played; played as it is, it gives back the recorded times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, Bools, Index

from ..arrays import distinct
from ..attribution import Attribution
from ..matching import MatchedCollectives
from ..owners import pair_keys
from ..partition import blocking_calls
from ..ranks import step_numbers
from .meetings import meetings_of
from .model import NONE, Calls, Model
from .waits import awaited_ops, blocking_columns
from .work import work_of

SEVERAL_THREADS = "threads of one process that launch work do not wait for each other on the host"


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """Decode steps of the launching threads: per host call, the last step that its thread had begun, and inside it.

    Steps are counted alike on all ranks; ``NONE`` before the first one.
    """

    step: I64
    inside: Bools


def build_model(attribution: Attribution, matched: MatchedCollectives, most_steps: int | None = None) -> Model:
    """The model of all calls and ops of a recording, or of what was launched before step ``most_steps`` began."""
    trace, launches = attribution.trace, attribution.trace.launches
    (thread,) = pair_keys((launches.pid, launches.tid))
    launching = np.zeros(len(launches), np.bool_)
    launching[attribution.launch[attribution.launch >= 0]] = True
    blocking = blocking_calls(trace, attribution.rules)
    rows = np.flatnonzero((launching | blocking) & np.isin(thread, thread[launching]))
    rows = rows[np.lexsort((launches.start[rows], thread[rows]))]
    numbering = _numbering(attribution, rows)
    kept = np.ones(len(trace.ops), np.bool_)
    if most_steps is not None and np.any(numbering.step >= most_steps):
        early, kept = _begun_before(attribution, rows, numbering.step, most_steps)
        rows, numbering = rows[early], Numbering(numbering.step[early], numbering.inside[early])
    work, waits = work_of(attribution, matched, rows, kept)
    end = work.origin + (trace.ops.end - trace.ops.start)[work.row]
    start = launches.start[rows]
    codes = np.searchsorted(distinct(thread[rows]), thread[rows]).astype(np.int64)
    awaited, heard = awaited_ops(attribution, rows, blocking[rows], numbering.step, codes, work, end)
    duration, wake = blocking_columns(start, launches.end[rows], awaited, end)
    meeting, before = meetings_of(codes, numbering.step, numbering.inside, start, launches.end[rows])
    calls = Calls(rows, codes, numbering.step, start, before, duration, awaited, wake, meeting)
    several = (SEVERAL_THREADS,) if _several_threads(attribution, rows) else ()
    return Model(calls, work, waits, (*heard, *several))


def _begun_before(attribution: Attribution, rows: Index, step: I64, count: int) -> tuple[Bools, Bools]:
    """Which calls at ``rows`` come before step ``count`` of their thread, and which ops of the recording do."""
    launches, ops = attribution.trace.launches, attribution.trace.ops
    later = step >= count
    until = launches.start[rows[later]].min()
    early = ~later & ((step >= 0) | (launches.start[rows] < until))
    called = np.zeros(len(launches), np.bool_)
    called[rows[early]] = True
    launch = attribution.launch
    return early, np.where(launch >= 0, called[launch], ops.start < until)


def _several_threads(attribution: Attribution, rows: Index) -> bool:
    launches = attribution.trace.launches
    (threads,) = pair_keys((launches.pid[rows], launches.tid[rows]))
    return len(distinct(threads)) > len(distinct(launches.pid[rows]))


def _numbering(attribution: Attribution, rows: Index) -> Numbering:
    """The steps of the calls at ``rows``, numbered as the ops that were launched in them."""
    number = np.full(len(attribution.plan.steps), NONE, np.int64)
    for of_ops in step_numbers(attribution).values():
        known = np.flatnonzero(of_ops >= 0)
        number[attribution.step[known]] = of_ops[known]
    launches, steps = attribution.trace.launches, attribution.plan.steps
    seen = np.flatnonzero(number >= 0)
    step = np.full(len(rows), NONE, np.int64)
    inside = np.zeros(len(rows), np.bool_)
    mine, theirs = pair_keys((launches.pid[rows], launches.tid[rows]), (steps.pid[seen], steps.tid[seen]))
    for thread in distinct(theirs):
        own = seen[theirs == thread]
        own = own[np.argsort(steps.start[own], kind="stable")]
        asked = np.flatnonzero(mine == thread)
        place = np.searchsorted(steps.start[own], launches.start[rows[asked]], "right") - 1
        step[asked] = np.where(place >= 0, number[own[np.maximum(place, 0)]], NONE)
        inside[asked] = (place >= 0) & (launches.start[rows[asked]] < steps.end[own[np.maximum(place, 0)]])
    return Numbering(step, inside)
