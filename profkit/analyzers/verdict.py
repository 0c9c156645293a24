"""The verdict: what holds the step back, what removing it would give, and one sentence to act on for each cause.

Faults (a late host, a straggler, a blocking call, a busy link, padding, a fallback to eager, a queue, another process,
exposed copies) that cost at least ``MIN_FAULT`` of the step come first, dearest first; then everything else, the step's
own work included, dearest first.
"""

from __future__ import annotations

import numpy as np

from profkit.traces import F64

from .collectives import exposed_collectives
from .eager_causes import eager_fallback, eager_ranks
from .graph_fallbacks import FORWARDS
from .graph_words import padded_batches, some
from .host_words import host_words
from .lateness import Blocking, blocking_cost
from .link_causes import link_causes
from .own_work import own_work
from .result import Cause
from .stragglers import OF_ITS_OWN, other_processes, stragglers, sync_cause
from .view import View
from .vocabulary import HOST_PARTS, PART, PHASES
from .words import a_duration, duration, launching

MIN_FAULT = 0.05
MIN_SHOWN = 0.002
FAULTS = frozenset(
    {
        "host_late", "straggler_host", "straggler_compute", "sync", "link_contended", "padding", "eager_fallback",
        "queue", "other_process", "copies",
    }
)  # fmt: skip

LATE = [PART[name] for name in HOST_PARTS]


def verdict_of(view: View) -> tuple[Cause, ...]:
    """All causes worth at least ``MIN_SHOWN`` of the step, in the order of the module's docstring."""
    blocked = {device: blocking_cost(view.attribution, device) for device in view.devices}
    time = {device: view.by_fault(device) for device in view.devices}
    exposed = exposed_collectives(view.attribution, view.matched)
    causes = [
        *stragglers(view, blocked),
        *_sync(view, blocked),
        *_host_late(view, time, blocked),
        *link_causes(view, exposed),
        *_padding(view),
        *_other_process(view),
        *eager_fallback(view),
        *eager_ranks(view),
        *own_work(view, time, exposed),
        *_waits_on_gpu(view, time),
    ]
    shown = [cause for cause in causes if cause.ns_per_step >= MIN_SHOWN * view.step_ns and cause.ns_per_step > 0]

    def order(cause: Cause) -> tuple[bool, int]:
        fault = cause.cause in FAULTS or cause.rank is not None
        return (not (fault and cause.ns_per_step >= MIN_FAULT * view.step_ns), -cause.ns_per_step)

    return tuple(sorted(shown, key=order))


def _sync(view: View, blocked: dict[int, Blocking]) -> list[Cause]:
    costs = {device: blocked[device].total / max(view.devices[device].steps, 1) for device in view.devices}
    least = min(costs, key=lambda device: costs[device])
    if costs[least] <= 0:
        return []
    return [sync_cause(view, blocked[least], costs[least], None, "the GPU idles behind it")]


def _host_late(view: View, time: dict[int, F64], blocked: dict[int, Blocking]) -> list[Cause]:
    """What every rank waits for its own host, beyond what blocking calls explain."""
    own = {d: time[d][LATE].sum() - blocked[d].total / max(view.devices[d].steps, 1) for d in view.devices}
    least = min(own, key=lambda device: own[device])
    late, place = np.unravel_index(int(np.argmax(time[least][LATE])), (len(LATE), len(PHASES)))
    part, phase = HOST_PARTS[int(late)], PHASES[int(place)]
    ways = {"gap_host": "in Python", "gap_api": "in other CUDA calls", "gap_sync": "in blocking calls"}
    words = host_words(view, least, part, phase)
    doing = words.doing or f"{ways.get(part, 'in launch calls')} while {launching(phase)}"
    subject = "every rank waits for its own host" if len(view.devices) > 1 else "the GPU waits for its host"
    text = f"{subject} {duration(own[least])} of {a_duration(view.step_ns)} step, mostly {doing}: {words.advice}"
    return [Cause("host_late", None, words.phase, part, round(own[least]), text)]


def _dearest_phase(view: View, *parts: str) -> str:
    cells = view.devices[view.slowest].phase_partition_ns
    return max(cells, key=lambda phase: sum(cells[phase].get(part) or 0 for part in parts), default="verify")


def _padding(view: View) -> list[Cause]:
    """Work on padded rows, where graphs ran for fewer requests than captured for: at most, as not all grows with it."""
    table, steps = view.graphs[view.slowest].phases, max(view.devices[view.slowest].steps, 1)
    phases = {name: phase for name, phase in table.items() if name in FORWARDS and phase.padding_ns}
    if not phases:
        return []
    work = sum(
        view.phase_per_step(name, "compute") * (phase.padding_ns or 0) / (phase.in_graphs_ns or 1)
        for name, phase in phases.items()
    )
    cost = min(work, sum(phase.padding_ns or 0 for phase in phases.values()) / steps)
    padded = max(phase.padded_steps or 0 for phase in phases.values())
    sizes = sorted({max(row.batch_size, 1) for phase in phases.values() for row in phase.padded})
    text = (
        f"{padded} of {steps} steps replay graphs for a larger batch ({padded_batches(list(phases.values()))}): up to "
        f"{duration(cost)} of {a_duration(view.step_ns)} step works on padding; capture graphs for batch "
        f"{some([str(size) for size in sizes])}"
    )
    return [Cause("padding", None, None, "compute", round(cost), text)]


def _other_process(view: View) -> list[Cause]:
    """What every rank's GPU spends on work of processes that are not the engine's."""
    found = view.neighbours
    cost = {device: found[device].alone_ns / max(view.devices[device].steps, 1) for device in view.devices}
    least = min(cost, key=lambda device: cost[device])
    if cost[least] <= 0:
        return []
    whose = "the GPU" if len(cost) == 1 else "every rank's GPU"
    text = (
        f"{other_processes(found[least].pids)} occupies {whose} for {duration(cost[least])} of "
        f"{a_duration(view.step_ns)} step: {OF_ITS_OWN}"
    )
    return [Cause("other_process", None, "outside", "compute", round(cost[least]), text)]


def _waits_on_gpu(view: View, time: dict[int, F64]) -> list[Cause]:
    """Gaps that are no host's fault: between the kernels of a graph, in a queue, or without a launch record."""

    step, devices = a_duration(view.step_ns), view.devices
    in_graph = min(view.per_step(device, "gap_in_graph") for device in devices)
    queue = min(float(time[device][PART["gap_queue"]].sum()) for device in devices)
    queued = PHASES[int(np.argmax(time[view.slowest][PART["gap_queue"]]))]
    unknown = min(view.per_step(device, "gap_unknown") for device in devices)
    nodes = sum(view.graphs[view.slowest].nodes_per_launch.values())
    return [
        Cause(
            "graph_gaps", None, _dearest_phase(view, "gap_in_graph"), "gap_in_graph", round(in_graph),
            f"the GPU idles {duration(in_graph)} of {step} step between the {nodes:,} kernels of its graphs: "
            "fewer, fused kernels would shorten it",
        ),
        Cause(
            "queue", None, queued, "gap_queue", round(queue),
            f"the GPU idles {duration(queue)} of {step} step though the next work was launched in time: look for "
            "event waits between streams in front of it",
        ),
        Cause(
            "unexplained", None, None, "gap_unknown", round(unknown),
            f"{duration(unknown)} of {step} step are gaps before work without a launch record: the recording "
            "cannot tell why",
        ),
    ]  # fmt: skip
