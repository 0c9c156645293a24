"""Ranks that the others wait for, and blocking calls: whose fault a wait is, in a sentence each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.traces import F64

from .gpu_words import why_longer
from .host_words import host_words
from .lateness import Blocking
from .result import Cause
from .turns import in_turn
from .view import View
from .vocabulary import HOST_PARTS, PART, PARTS, PHASE, PHASES
from .waiting import causes_of_waiting, exposed_waits
from .words import a_duration, duration, in_phase, launching, listed

LATE_GPU: dict[str, tuple[tuple[str, ...], str]] = {
    "straggler_compute": (
        ("compute", "copy"),
        "its GPU works longer (mostly {phase}): {advice}",
    ),
    "queue": (
        ("gap_queue",),
        "its GPU idles though the next work (mostly {phase}) was launched in time: look for event waits between "
        "streams in front of it",
    ),
    "graph_gaps": (
        ("gap_in_graph",),
        "it idles longer between the kernels of its graphs (mostly {phase}): compare the GPU's clocks with the others'",
    ),
    "unexplained": (
        ("gap_unknown", "collective"),
        "it spends longer on work without a launch record, or on collectives without a partner: the recording cannot "
        "tell why",
    ),
}
"""Why a rank whose host is in time may be late, by the parts in which it spends longer than the others."""

WITH_IT = 0.5
"""A rank that waits for the last one for less than this share of what others do is late too."""

OF_ITS_OWN = "if that work is not the engine's own, give the engine GPUs of its own"

COPIES = (
    "its GPU copies longer (mostly {phase}): copy less or from pinned memory, keep the data on the GPU, or copy it "
    "beside the work of the step before"
)


def stragglers(view: View, blocked: dict[int, Blocking]) -> list[Cause]:
    """Ranks that the others wait for, by what they did longer since the collective before."""
    if not view.matched.known or len(view.devices) < 2:
        return []
    waits = {device: causes_of_waiting(view.attribution, view.matched, device) for device in view.devices}
    causes = []
    for late in view.devices:
        others = [device for device in view.devices if device != late]
        nothing = np.zeros((len(PARTS), len(PHASES)), np.int64)
        per_step = [waits[d].get(late, nothing) / view.told_steps(d) for d in others]
        longer = np.median(np.stack(per_step), axis=0)
        waiting = _waiting(view, late)
        causes += _late_host(view, blocked, late, waiting, longer)
        causes += _late_gpu(view, late, waiting, longer)
    return in_turn(view, [cause for cause in causes if cause.ns_per_step > 0])


def _waited(view: View, device: int, late: int) -> float:
    """Nanoseconds per step that ``device`` waits for ``late`` and does nothing else."""
    own = view.matched.instances[device]
    wait = exposed_waits(view.attribution, device, own)
    return int(wait[own.last == late].sum()) / view.told_steps(device)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Who waits and how long per step, ``ranks 2 and 3 wait 8.00 ms``, and for whom, by rank."""

    who: str
    whom: str


def _waiting(view: View, late: int) -> _Waiting:
    """The waiting for ``late``, by the median of the others; ranks that wait for much less are late with it."""
    waited = {device: _waited(view, device, late) for device in view.devices if device != late}
    usual = float(np.median(list(waited.values())))
    beside = [device for device, ns in waited.items() if ns < WITH_IT * usual]
    ranks = sorted(view.devices[device].rank for device in waited if device not in beside)
    verb = "waits" if len(ranks) == 1 else "wait"
    who = f"{view.of_told(waited)}{_ranks(ranks)} {verb} {duration(usual)}"
    whom, also = f"rank {view.devices[late].rank}", sorted(view.devices[device].rank for device in beside)
    if also:
        whom += f" ({_ranks(also)} {'is' if len(also) == 1 else 'are'} late with it)"
    return _Waiting(who, whom)


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {listed([str(rank) for rank in ranks])}" if len(ranks) <= 3 else f"{len(ranks)} ranks"


def _late_host(view: View, blocked: dict[int, Blocking], late: int, waiting: _Waiting, longer: F64) -> list[Cause]:
    cost = float(longer[[PART[name] for name in HOST_PARTS]].sum())
    if not cost:
        return []
    rank = view.devices[late].rank
    part, phase = _dearest(longer, HOST_PARTS)
    sync = {d: blocked[d].total / max(view.devices[d].steps, 1) for d in view.devices}
    more_sync = sync[late] - float(np.median([cost for device, cost in sync.items() if device != late]))
    if more_sync >= cost / 2:
        return [sync_cause(view, blocked[late], cost, rank, f"{waiting.who} for it")]
    words = host_words(view, late, part, phase)
    text = (
        f"{waiting.who} of {a_duration(view.step_ns)} step in collectives for {waiting.whom}, "
        f"whose host is late by {duration(cost)} (mostly {words.doing or launching(phase)}): {words.advice}"
    )
    return [Cause("straggler_host", rank, words.phase, part, round(cost), text)]


def _late_gpu(view: View, late: int, waiting: _Waiting, longer: F64) -> list[Cause]:
    rank = view.devices[late].rank
    waits = f"{waiting.who} of {a_duration(view.step_ns)} step in collectives for {waiting.whom}"
    causes = []
    longer, neighbour = _without_neighbours(view, late, longer)
    if neighbour:
        text = (
            f"{waits}, {duration(neighbour)} of it because "
            f"{other_processes(view.neighbours[late].pids)} occupies its GPU: {OF_ITS_OWN}"
        )
        causes.append(Cause("straggler_compute", rank, "outside", "compute", round(neighbour), text))
    for cause, (parts, why) in LATE_GPU.items():
        cost = float(longer[[PART[name] for name in parts]].sum())
        # Of several parts the one that costs most in all phases together, and of it the dearest phase.
        part = max(parts, key=lambda name: longer[PART[name]].sum())
        _, phase = _dearest(longer, (part,))
        why = COPIES if part == "copy" else why
        advice = why_longer(view, late) if cost > 0 and "{advice}" in why else ""
        why = why.format(phase=in_phase(phase), advice=advice)
        text = f"{waits}, {duration(cost)} of it because {why}"
        causes.append(Cause(cause, rank, phase, part, round(cost), text))
    return causes


def _without_neighbours(view: View, late: int, longer: F64) -> tuple[F64, float]:
    """What a rank did longer beside the work of other processes on its GPU, and how much longer that was."""
    alone = {d: view.neighbours[d].alone_ns / max(view.devices[d].steps, 1) for d in view.devices}
    more = alone[late] - float(np.median([ns for device, ns in alone.items() if device != late]))
    cells = [PART[name] for name in ("compute", "copy")], [PHASE["outside"]] * 2
    there = float(longer[cells].sum())
    cost = min(max(more, 0.0), there)
    rest = longer.copy()
    rest[cells] *= 1 - cost / there if there else 1
    return rest, cost


def other_processes(pids: tuple[int, ...]) -> str:
    """The neighbours in words, as a singular subject."""
    if len(pids) == 1:
        return f"process {pids[0]}, of which no step is named,"
    return f"work of {len(pids)} processes of which no step is named (most of it of process {pids[0]})"


def _dearest(doing: F64, parts: tuple[str, ...]) -> tuple[str, str]:
    """The part and phase with most time among ``parts``."""
    rows = doing[[PART[name] for name in parts]]
    part, phase = np.unravel_index(int(np.argmax(rows)), rows.shape)
    return parts[part], PHASES[phase]


def sync_cause(view: View, blocking: Blocking, cost: float, rank: int | None, effect: str) -> Cause:
    """The sentence names the dearest call and where it stands."""
    trace = view.attribution.trace
    row = int(blocking.row[np.argmax(blocking.idle)])
    api = re.sub(r"_v\d+$", "", trace.strings[trace.launches.api[row]])
    phase = _phase_at(view, row)
    where = f"rank {rank}'s host" if rank is not None else "the host"
    held = "Memcpy" in api and "Async" in api
    call = f"{api} of pageable memory, which blocks," if held else f"blocking {api}"
    advice = "copy to pinned memory" if held else "keep its result on the GPU"
    text = (
        f"a {call} {in_phase(phase)} takes the run-ahead of {where} away: {effect}, {duration(cost)} of a "
        f"{duration(view.step_ns)} step; {advice}, or read it one step later"
    )
    return Cause("sync", rank, phase, "gap_sync", round(cost), text)


def _phase_at(view: View, launch: int) -> str:
    """The phase of the step in which the host makes a call."""
    from .steps import spans_at

    labels, call = view.attribution.plan.labels, view.attribution.trace.launches.take(slice(launch, launch + 1))
    found = spans_at(labels.pid, labels.tid, labels.start, labels.end, call.pid, call.tid, call.start)
    return PHASES[labels.phase[found[0]]] if found[0] >= 0 else "outside"
