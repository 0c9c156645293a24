"""From one forward phase to the next: does the host launch the next one before the GPU has finished what it has?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I8, I64, Bools, Index

from .attribution import Attribution
from .graph_fallbacks import FORWARDS
from .graph_launches import decode_rows, earlier_work, median
from .graph_outside import group_by
from .graph_result import Boundary
from .steps import Steps
from .vocabulary import PHASE, PHASES


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """First launches of forward phases by host thread and time, and which of them lead straight to the next one.

    ``first`` is the row of the op and ``call`` that of the call, of the phase's first launch in its step. ``leads``
    tells whether the next entry follows on the same thread in the same decode step or the one after it;
    ``next_step`` whether in the latter.
    """

    first: Index
    call: I64
    phase: I8
    leads: Bools
    next_step: Bools


def crossings(attribution: Attribution, device: int) -> Crossings:
    """The crossings of ``device``; across a prefill, or a step without work on the device, there is none."""
    ops, launches = attribution.trace.ops, attribution.trace.launches
    rows = decode_rows(attribution, device)
    rows = rows[np.isin(attribution.phase[rows], [PHASE[name] for name in FORWARDS])]
    key = attribution.step[rows] * len(PHASES) + attribution.phase[rows]
    order = np.lexsort((ops.start[rows], launches.start[attribution.launch[rows]], key))
    first = rows[order][np.unique(key[order], return_index=True)[1]]
    call = attribution.launch[first]
    by_host = np.lexsort((launches.start[call], launches.tid[call], launches.pid[call]))
    first, call = first[by_host], call[by_host]
    same = (np.diff(launches.pid[call]) == 0) & (np.diff(launches.tid[call]) == 0)
    step = np.diff(_place_on_thread(attribution.plan.steps)[attribution.step[first]])
    leads = same & ((step == 0) | (step == 1))
    return Crossings(first, call, attribution.phase[first], np.append(leads, False), np.append(step == 1, False))


def _place_on_thread(steps: Steps) -> I64:
    """Places that count the steps of each thread without a hole; another thread's begin behind one."""
    order = np.lexsort((steps.start, steps.tid, steps.pid))
    place = np.zeros(len(steps), np.int64)
    place[order] = np.arange(len(order))
    return place


def boundaries(attribution: Attribution, device: int, found: Crossings) -> tuple[Boundary, ...]:
    """Launch lead and run-ahead at each kind of crossing, in the order of a step."""
    before = np.flatnonzero(found.leads)
    if not len(before):
        return ()
    end, has = earlier_work(attribution, device, found.first[before + 1])
    lead = end - attribution.trace.launches.start[found.call[before + 1]]
    group, first = group_by(found.next_step[before], found.phase[before], found.phase[before + 1])
    rows = []
    for number, at in enumerate(first.tolist()):
        leads = lead[(group == number) & has]
        rows.append(
            Boundary(
                before=PHASES[found.phase[before[at]]],
                after=PHASES[found.phase[before[at] + 1]],
                next_step=bool(found.next_step[before[at]]),
                count=int((group == number).sum()),
                launch_lead_ns_median=median(leads),
                run_ahead_share=float((leads > 0).mean()) if len(leads) else None,
            )
        )
    return tuple(rows)
