"""The verdict: what holds the step back, what removing it would give, and one sentence to act on for each cause.

Faults (a late host, a straggler, a blocking call, a busy link, padding, a queue) that cost at least
``MIN_FAULT`` of the step come first, dearest first; then everything else, the step's own work included, dearest first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import F64

from .attribution import Attribution
from .collectives import MatchedCollectives
from .contention import contended_transfer
from .lateness import Blocking, blocking_cost, graph_wait
from .result import Cause, Cycle, DeviceFigures, GraphFigures
from .vocabulary import HOST_PARTS, PART, PARTS, PHASE, PHASES
from .waiting import causes_of_waiting
from .words import duration, listed, share

MIN_FAULT = 0.05
MIN_SHOWN = 0.002
FAULTS = frozenset({"host_late", "straggler_host", "straggler_compute", "sync", "link_contended", "padding", "queue"})
LATE_PARTS = ("gap_sync", "gap_api", "gap_host", "gap_launch")

LATE_GPU: dict[str, tuple[tuple[str, ...], str]] = {
    "straggler_compute": (
        ("compute", "copy"),
        "its GPU works longer (mostly in {phase}): balance experts and sequences over the ranks, and compare the GPU's "
        "clocks with the others'",
    ),
    "queue": (
        ("gap_queue",),
        "its GPU idles though the next work ({phase}) was launched in time: look for event waits between streams in "
        "front of it",
    ),
    "graph_gaps": (
        ("gap_in_graph",),
        "it idles longer between the kernels of its graphs (mostly in {phase}): compare the GPU's clocks with the "
        "others'",
    ),
    "unexplained": (
        ("gap_unknown", "collective"),
        "it spends longer on work without a launch record, or on collectives without a partner: the recording cannot "
        "tell why",
    ),
}
"""Why a rank whose host is in time may be late, by the parts in which it spends longer than the others."""

EAGER_SHARE = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What the verdict is drawn from, per device and step; ``slowest`` is the device that sets the pace."""

    attribution: Attribution
    matched: MatchedCollectives
    devices: dict[int, DeviceFigures]
    graphs: dict[int, GraphFigures]
    cycle: Cycle
    slowest: int

    def per_step(self, device: int, *parts: str) -> float:
        """Nanoseconds per step of the given parts of a device."""
        figures = self.devices[device]
        return sum(figures.partition_ns[part] or 0 for part in parts) / max(figures.steps, 1)

    def graph_wait(self, device: int) -> float:
        """Nanoseconds per step that a device idles before graphs that were launched in time."""
        return graph_wait(self.attribution, device) / max(self.devices[device].steps, 1)

    def phase_per_step(self, phase: str, *parts: str) -> float:
        """Nanoseconds per step of the given parts of a phase on the slowest device."""
        figures = self.devices[self.slowest]
        cell = figures.phase_partition_ns.get(phase, {})
        return sum(cell.get(part) or 0 for part in parts) / max(figures.steps, 1)

    @property
    def step_ns(self) -> float:
        """Wall time per step of the slowest device."""
        figures = self.devices[self.slowest]
        return figures.window.wall_ns / max(figures.steps, 1) if figures.window else 0.0

    @property
    def eager(self) -> bool:
        """Whether most launches of a step are not graph launches."""
        figures = self.graphs[self.slowest]
        outside = figures.ops_outside_graphs_per_step or 0
        total = int(self.attribution.in_decode.sum()) / max(sum(d.steps for d in self.devices.values()), 1)
        return outside > EAGER_SHARE * total

    def advice_for_host(self) -> str:
        """What to do about a host that launches late."""
        if self.eager:
            return "record with CUDA graphs"
        return "look at what its Python does between the graph launches, and whether its cores are shared"


def verdict_of(view: View) -> tuple[Cause, ...]:
    """All causes worth at least ``MIN_SHOWN`` of the step, in the order of the module's docstring."""
    blocked = {device: blocking_cost(view.attribution, device) for device in view.devices}
    causes = [
        *_stragglers(view, blocked),
        *_sync(view, blocked),
        *_host_late(view, blocked),
        *_link(view),
        *_padding(view),
        *_own_work(view),
        *_waits_on_gpu(view),
    ]
    shown = [cause for cause in causes if cause.ns_per_step >= MIN_SHOWN * view.step_ns and cause.ns_per_step > 0]

    def order(cause: Cause) -> tuple[bool, int]:
        fault = cause.cause in FAULTS or cause.rank is not None
        return (not (fault and cause.ns_per_step >= MIN_FAULT * view.step_ns), -cause.ns_per_step)

    return tuple(sorted(shown, key=order))


def _stragglers(view: View, blocked: dict[int, Blocking]) -> list[Cause]:
    """Ranks that the others wait for, by what they did longer since the collective before."""
    if not view.matched.known or len(view.devices) < 2:
        return []
    waits = {device: causes_of_waiting(view.attribution, view.matched, device) for device in view.devices}
    causes = []
    for late in view.devices:
        others = [device for device in view.devices if device != late]
        nothing = np.zeros((len(PARTS), len(PHASES)), np.int64)
        per_step = [waits[d].get(late, nothing) / max(view.devices[d].steps, 1) for d in others]
        longer = np.median(np.stack(per_step), axis=0)
        waited = float(np.median([_waited(view, device, late) for device in others]))
        causes += _late_host(view, blocked, late, waited, longer)
        causes += _late_gpu(view, late, waited, longer)
    return causes


def _waited(view: View, device: int, late: int) -> float:
    """Nanoseconds per step that ``device`` waits for ``late``."""
    own = view.matched.instances[device]
    return int(own.skew[(own.last == late) & (own.skew > 0)].sum()) / max(view.devices[device].steps, 1)


def _late_host(view: View, blocked: dict[int, Blocking], late: int, waited: float, longer: F64) -> list[Cause]:
    cost = float(longer[[PART[name] for name in HOST_PARTS]].sum())
    if not cost:
        return []
    rank, who = view.devices[late].rank, _others_wait(view, late)
    part, phase = _dearest(longer, HOST_PARTS)
    sync = {d: blocked[d].total / max(view.devices[d].steps, 1) for d in view.devices}
    more_sync = sync[late] - float(np.median([cost for device, cost in sync.items() if device != late]))
    if more_sync >= cost / 2:
        return [_sync_cause(view, blocked[late], cost, rank, f"{who} {duration(waited)} for it")]
    text = (
        f"{who} {duration(waited)} of a {duration(view.step_ns)} step in collectives for rank {rank}, "
        f"whose host is late by {duration(cost)} (mostly launching {phase}): {view.advice_for_host()}"
    )
    return [Cause("straggler_host", rank, phase, part, round(cost), text)]


def _late_gpu(view: View, late: int, waited: float, longer: F64) -> list[Cause]:
    rank = view.devices[late].rank
    waits = f"{_others_wait(view, late)} {duration(waited)} of a {duration(view.step_ns)} step in collectives for rank"
    causes = []
    for cause, (parts, why) in LATE_GPU.items():
        cost = float(longer[[PART[name] for name in parts]].sum())
        part, phase = _dearest(longer, parts)
        text = f"{waits} {rank}, {duration(cost)} of it because {why.format(phase=phase)}"
        causes.append(Cause(cause, rank, phase, part, round(cost), text))
    return causes


def _others_wait(view: View, late: int) -> str:
    ranks = sorted(figures.rank for device, figures in view.devices.items() if device != late)
    if len(ranks) == 1:
        return f"rank {ranks[0]} waits"
    return f"ranks {listed([str(rank) for rank in ranks])} wait" if len(ranks) <= 3 else f"{len(ranks)} ranks wait"


def _dearest(doing: F64, parts: tuple[str, ...]) -> tuple[str, str]:
    """The part and phase with most time among ``parts``."""
    rows = doing[[PART[name] for name in parts]]
    part, phase = np.unravel_index(int(np.argmax(rows)), rows.shape)
    return parts[part], PHASES[phase]


def _sync(view: View, blocked: dict[int, Blocking]) -> list[Cause]:
    costs = {device: blocked[device].total / max(view.devices[device].steps, 1) for device in view.devices}
    least = min(costs, key=lambda device: costs[device])
    if costs[least] <= 0:
        return []
    return [_sync_cause(view, blocked[least], costs[least], None, "the GPU idles behind it")]


def _sync_cause(view: View, blocking: Blocking, cost: float, rank: int | None, effect: str) -> Cause:
    """The sentence names the dearest call and where it stands."""
    trace = view.attribution.trace
    row = int(blocking.row[np.argmax(blocking.idle)])
    api = trace.strings[trace.launches.api[row]]
    phase = _phase_at(view, row)
    where = f"rank {rank}'s host" if rank is not None else "the host"
    text = (
        f"a blocking {api} in {phase} takes the run-ahead of {where} away: {effect}, {duration(cost)} of a "
        f"{duration(view.step_ns)} step; keep its result on the GPU, or read it one step later"
    )
    return Cause("sync", rank, phase, "gap_sync", round(cost), text)


def _phase_at(view: View, launch: int) -> str:
    """The phase of the step in which the host makes a call."""
    from .steps import spans_at

    labels, call = view.attribution.plan.labels, view.attribution.trace.launches.take(slice(launch, launch + 1))
    found = spans_at(labels.pid, labels.tid, labels.start, labels.end, call.pid, call.tid, call.start)
    return PHASES[labels.phase[found[0]]] if found[0] >= 0 else "outside"


def _host_late(view: View, blocked: dict[int, Blocking]) -> list[Cause]:
    """What every rank waits for its own host, beyond what blocking calls explain."""
    own = {d: _late_launches(view, d) - blocked[d].total / max(view.devices[d].steps, 1) for d in view.devices}
    least = min(own, key=lambda device: own[device])
    figures = view.devices[least]
    cells = {
        (part, phase): parts.get(part) or 0
        for phase, parts in figures.phase_partition_ns.items()
        for part in LATE_PARTS
    }
    part, phase = max(cells, key=lambda cell: cells[cell], default=("gap_host", "step_other"))
    doing = {"gap_host": "in Python", "gap_launch": "in launch calls", "gap_api": "in other CUDA calls"}
    subject = "every rank waits for its own host" if len(view.devices) > 1 else "the GPU waits for its host"
    text = (
        f"{subject} {duration(own[least])} of a {duration(view.step_ns)} step, mostly "
        f"{doing.get(part, 'in blocking calls')} while launching {phase}: {view.advice_for_host()}"
    )
    return [Cause("host_late", None, phase, part, round(own[least]), text)]


def _late_launches(view: View, device: int) -> float:
    """Nanoseconds per step that a device waits for a launch call to come, or to take effect."""
    return view.per_step(device, *LATE_PARTS, "gap_graph_launch") - view.graph_wait(device)


def _link(view: View) -> list[Cause]:
    """Transfer that no compute hides: of the rank that sees least of it."""
    exposed = {d: view.per_step(d, "collective") for d in view.devices}
    if not any(exposed.values()):
        return []
    if not view.matched.known:
        longest = max(exposed.values())
        text = (
            f"{duration(longest)} of a {duration(view.step_ns)} step goes to collectives, and the recording cannot "
            "tell waiting from transfer: record every rank in one run"
        )
        return [Cause("unexplained", None, None, "collective", round(longest), text)]
    transfer = {
        d: max(0.0, exposed[d] - (f.collectives.skew_ns or 0) / max(f.steps, 1)) for d, f in view.devices.items()
    }
    least = min(transfer, key=lambda device: transfer[device])
    count = view.devices[least].collectives.count / max(view.devices[least].steps, 1)
    contended = contended_transfer(view.attribution, view.matched)
    steps = max(view.devices[least].steps, 1)
    causes = []
    if contended.excess_ns:
        text = (
            f"{contended.count / steps:.0f} collectives per step share the link with memory copies and take "
            f"{duration(contended.excess_ns / steps)} longer for it: move the copies out of the step, or to a time "
            "without collectives"
        )
        causes.append(
            Cause("link_contended", None, contended.phase, "collective", round(contended.excess_ns / steps), text)
        )
    text = (
        f"the transfers themselves take {duration(transfer[least])} of a {duration(view.step_ns)} step in "
        f"{count:.0f} collectives: a faster link, fewer or fused collectives, or overlap with compute would shorten it"
    )
    own = max(0.0, transfer[least] - contended.excess_ns / steps)
    return [*causes, Cause("link_bound", None, _dearest_phase(view, "collective"), "collective", round(own), text)]


def _dearest_phase(view: View, *parts: str) -> str:
    cells = view.devices[view.slowest].phase_partition_ns
    return max(cells, key=lambda phase: sum(cells[phase].get(part) or 0 for part in parts), default="verify")


def _padding(view: View) -> list[Cause]:
    """Work on padded rows, if graphs were captured for a larger batch: at most, as not all work grows with it."""
    captured, real = view.graphs[view.slowest].captured_batch_size, view.cycle.batch_size
    if not captured or not real or captured <= real:
        return []
    work = sum(view.phase_per_step(phase, "compute") for phase in ("draft", "verify", "decode"))
    cost = work * (1 - real / captured)
    text = (
        f"the graphs were captured for batch {captured}, the step has {real}: up to {duration(cost)} of a "
        f"{duration(view.step_ns)} step works on padding; capture a graph for batch {real}"
    )
    return [Cause("padding", None, None, "compute", round(cost), text)]


def _own_work(view: View) -> list[Cause]:
    """What drafting and verifying cost by themselves, without waiting for hosts or ranks."""
    if view.cycle.kind != "speculative":
        return []
    drafter = view.phase_per_step("draft", "compute", "copy", "collective", "gap_in_graph", "gap_queue")
    drafter = max(0.0, drafter - _skew_in_phase(view, "draft"))
    verify = view.phase_per_step("verify", "compute", "copy")
    return [
        Cause(
            "drafter_cost", None, "draft", "compute", round(drafter),
            f"the drafter takes {duration(drafter)} of a {duration(view.step_ns)} step "
            f"({share(drafter, view.step_ns)}): a free drafter would save that much",
        ),
        Cause(
            "verify_cost", None, "verify", "compute", round(verify),
            f"verify's own GPU work takes {duration(verify)} of a {duration(view.step_ns)} step "
            f"({share(verify, view.step_ns)}): only a smaller block, a cheaper target or a higher accept length "
            "changes that",
        ),
    ]  # fmt: skip


def _skew_in_phase(view: View, phase: str) -> float:
    instances = view.matched.instances.get(view.slowest)
    if instances is None or not view.matched.known:
        return 0.0
    inside = (view.attribution.phase[instances.row] == PHASE[phase]) & (instances.skew > 0)
    return int(instances.skew[inside].sum()) / max(view.devices[view.slowest].steps, 1)


def _waits_on_gpu(view: View) -> list[Cause]:
    """Gaps that are no host's fault: between the kernels of a graph, in a queue, or without a launch record."""

    step, devices = duration(view.step_ns), view.devices
    in_graph = min(view.per_step(device, "gap_in_graph") for device in devices)
    queue = min(view.per_step(device, "gap_queue") + view.graph_wait(device) for device in devices)
    unknown = min(view.per_step(device, "gap_unknown") for device in devices)
    nodes = sum(view.graphs[view.slowest].nodes_per_launch.values())
    return [
        Cause(
            "graph_gaps", None, _dearest_phase(view, "gap_in_graph"), "gap_in_graph", round(in_graph),
            f"the GPU idles {duration(in_graph)} of a {step} step between the {nodes:,} kernels of its graphs: "
            "fewer, fused kernels would shorten it",
        ),
        Cause(
            "queue", None, _dearest_phase(view, "gap_queue", "gap_graph_launch"), "gap_queue", round(queue),
            f"the GPU idles {duration(queue)} of a {step} step though the next work was launched in time: look for "
            "event waits between streams in front of it",
        ),
        Cause(
            "unexplained", None, None, "gap_unknown", round(unknown),
            f"{duration(unknown)} of a {step} step are gaps before work without a launch record: the recording "
            "cannot tell why",
        ),
    ]  # fmt: skip
