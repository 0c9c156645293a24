"""What CUDA graphs save: an eager step beside the same step with graphs, on the rank that the others wait for.

The step's wall time is cut into what the partition says, with exposed collectives split into waiting and transfer, so
that rows sum to the step of each side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from .attribution import Attribution
from .collectives import Exposed, exposed_collectives
from .device_result import DeviceFigures
from .graph_result import GraphFigures
from .intervals import union_length
from .matching import match_collectives
from .result import TraceFigures, one_model
from .saving_result import ClassSaving, GraphSaving, KernelDifference, Saving
from .vocabulary import CLASSES, PHASES
from .words import a_duration, duration, listed

GROUPS = {
    "compute": "compute", "copy": "copies", "gap_in_graph": "graph_gaps", "gap_queue": "queue",
    "gap_unknown": "unknown", "gap_sync": "sync", "gap_host": "host_code",
    "gap_api": "launch", "gap_launch": "launch", "gap_graph_launch": "launch",
}  # fmt: skip
WAITING, TRANSFER = "waiting", "transfer"
PREFILL = "prefill"
ORDER = (
    "host_code",
    "launch",
    "sync",
    WAITING,
    TRANSFER,
    "copies",
    "graph_gaps",
    "queue",
    "unknown",
    "compute",
    PREFILL,
)
"""Rows of the waterfall: what graphs are for comes first, and last what they do not change."""

NOT_GRAPHS = ("compute", PREFILL)
"""The same kernels, and prefills: where they differ, it is not for the graphs."""

TOLD = 0.02
"""Changes of less than this share of the eager step are not put into the sentence."""

SAID = {
    "host_code": "code on the host", "launch": "launch calls", "sync": "blocking calls",
    WAITING: "waiting for other ranks", TRANSFER: "transfers", "compute": "kernels", "copies": "copies",
    "graph_gaps": "gaps inside graphs", "queue": "queues", "unknown": "gaps without launch record", PREFILL: "prefills",
}  # fmt: skip


def graph_savings(traces: Sequence[TraceFigures], attributions: Sequence[Attribution]) -> tuple[GraphSaving, ...]:
    """One for each eager recording that has one with graphs of the same configuration and batch size beside it.

    Of several, one of the same sweep is taken, else the first.
    """
    known = list(zip(traces, attributions, strict=True))
    found = []
    for eager, eagerly in known:
        partners = [pair for pair in known if is_partner(eager, pair[0])]
        partners.sort(key=lambda pair: pair[0].name.partition("/")[0] != eager.name.partition("/")[0])
        saving = _saving((eager, eagerly), partners[0]) if partners else None
        found += [saving] if saving else []
    return tuple(found)


def launched_eagerly(graphs: Collection[GraphFigures]) -> bool:
    """Whether no graph was launched in the decode steps of any device; of no device, nothing is known."""
    return bool(graphs) and not any(graph.launches_per_step for graph in graphs)


def is_partner(eager: TraceFigures, graphs: TraceFigures) -> bool:
    """Whether ``graphs`` is the same run with CUDA graphs on all its ranks, as far as configurations are known.

    Where none is, the kernels must be those of one model: most names of the one are names of the other.
    """
    ours, theirs = eager.provenance, graphs.provenance
    alike = (
        (ours.config, eager.source, eager.cycle.kind, eager.cycle.batch_size)
        == (theirs.config, graphs.source, graphs.cycle.kind, graphs.cycle.batch_size)
        and [d.rank for d in eager.devices.values()] == [d.rank for d in graphs.devices.values()]
        and eager.cycle.batch_size is not None
    )
    modes = launched_eagerly(eager.graphs.values()) and all(g.launches_per_step for g in graphs.graphs.values())
    kept = all(d.busy_union_ns is not None for trace in (eager, graphs) for d in trace.devices.values())
    return alike and modes and kept and one_model(eager, graphs) and (bool(ours.config) or _same_kernels(eager, graphs))


def _same_kernels(eager: TraceFigures, graphs: TraceFigures) -> bool:
    names = [{k.name for d in trace.devices.values() for k in d.kernels} for trace in (eager, graphs)]
    return 2 * len(names[0] & names[1]) >= max(map(len, names), default=0) > 0


def _saving(eager: tuple[TraceFigures, Attribution], graphs: tuple[TraceFigures, Attribution]) -> GraphSaving | None:
    """The comparison on the rank for which the others wait; ``None`` where a side has no known partition."""
    sides = (eager, graphs)
    exposed = [exposed_collectives(one, match_collectives(one)) for _, one in sides]
    devices = [{d.rank: (name, d) for name, d in trace.devices.items()} for trace, _ in sides]
    if any(d.window is None or d.busy_union_ns is None or not d.steps for side in devices for _, d in side.values()):
        return None
    rank = _awaited(devices[0], exposed[0], eager[0].cycle.rank)
    (name, before), (other, after) = devices[0][rank], devices[1][rank]
    tables = [_rows(d, e.get(int(n))) for (n, d), e in zip(((name, before), (other, after)), exposed, strict=True)]
    rows = tuple(
        Saving(phase, key, tables[0].get((phase, key), 0), tables[1].get((phase, key), 0))
        for phase in PHASES
        for key in ORDER
        if any((phase, key) in table for table in tables)
    )
    ends = ((eager[1], int(name), before), (graphs[1], int(other), after))
    kernels, same = _kernels(*(_of_device(one, device) for one, device, _ in ends))
    calls = [_launch_calls(one, device, figures.steps) for one, device, figures in ends]
    overlaps = [_overlap(one, device) // figures.steps for one, device, figures in ends]
    waits = [_most_waiting(side, rank) for side in devices]
    padding = _padding(graphs[0], other, after.steps)
    classes = _classes(*ends)
    saving = GraphSaving(
        eager=eager[0].name,
        graphs=graphs[0].name,
        batch_size=eager[0].cycle.batch_size,
        rank=rank,
        rows=rows,
        classes=classes,
        launch_calls=(calls[0][0], calls[1][0]),
        launch_host_ns=(calls[0][1], calls[1][1]),
        overlap_ns=(overlaps[0], overlaps[1]),
        waiting_ns=(waits[0], waits[1]),
        padding_ns=padding,
        kernels=kernels,
        same_kernels=same,
        text="",
    )
    return structs.replace(saving, text=_text(saving))


def _of_device(attribution: Attribution, device: int) -> Attribution:
    """The attribution as if ``device`` were the only one."""
    return replace(attribution, devices={device: attribution.devices[device]})


def _launch_calls(attribution: Attribution, device: int, steps: int) -> tuple[float, int]:
    """Calls per step that launch the ops of decode steps, and the host's time in them."""
    ops, launches = attribution.trace.ops, attribution.trace.launches
    call = np.unique(attribution.launch[(ops.device == device) & attribution.in_decode & (attribution.launch >= 0)])
    return len(call) / steps, round(int((launches.end - launches.start)[call].sum()) / steps)


def _padding(graphs: TraceFigures, device: str, steps: int) -> int | None:
    """The most that padding costs per step; ``None`` where it is not known."""
    known = [phase.padding_ns for phase in graphs.graphs[device].phases.values() if phase.padding_ns is not None]
    return round(sum(known) / steps) if known else None


def _awaited(devices: dict[int, tuple[str, DeviceFigures]], exposed: dict[int, Exposed], slowest: int | None) -> int:
    """The rank that waits least for others, or the slowest one where waiting is not known."""
    if not exposed:
        return slowest if slowest is not None else min(devices)
    return min(devices, key=lambda rank: int(exposed[int(devices[rank][0])].skew.sum()))


def _rows(device: DeviceFigures, exposed: Exposed | None) -> dict[tuple[str, str], int]:
    """Nanoseconds per step by phase and group; rounded so that they sum to the step's rounded wall time."""
    total: dict[tuple[str, str], int] = defaultdict(int)
    for phase, parts in device.phase_partition_ns.items():
        if phase == PREFILL:
            total[phase, PREFILL] += sum(ns or 0 for ns in parts.values())
            continue
        for part, ns in parts.items():
            if part != "collective":
                total[phase, GROUPS[part]] += ns or 0
                continue
            waiting = int(exposed.skew[PHASES.index(phase)]) if exposed else 0
            total[phase, WAITING] += waiting
            total[phase, TRANSFER] += (ns or 0) - waiting
    return {key: ns for key, ns in zip(total, _per_step([*total.values()], device.steps), strict=True) if ns}


def _per_step(totals: Sequence[int], steps: int) -> list[int]:
    """``totals`` over ``steps``, rounded so that they sum to the rounded whole."""
    reached = np.cumsum([0, *totals])
    found: list[int] = np.diff((2 * reached + steps) // (2 * steps)).tolist()
    return found


def _most_waiting(devices: dict[int, tuple[str, DeviceFigures]], rank: int) -> int | None:
    """The longest time per step that another rank waits in collectives; ``None`` where that is not known."""
    others = [d for number, (_, d) in devices.items() if number != rank]
    if not others or any(d.collectives.skew_ns is None for d in others):
        return None
    return max((d.collectives.skew_ns or 0) // d.steps for d in others)


def _overlap(attribution: Attribution, device: int) -> int:
    """How long more than one op runs at a time on a device, counted once for each further one."""
    ops = attribution.trace.ops
    row = np.flatnonzero((ops.device == device) & attribution.in_decode)
    row = row[np.argsort(ops.start[row], kind="stable")]
    return int((ops.end - ops.start)[row].sum()) - union_length(ops.start[row], ops.end[row])


def _classes(*sides: tuple[Attribution, int, DeviceFigures]) -> tuple[ClassSaving, ...]:
    """Sums of durations of the decode steps' ops, by phase and class."""
    tables = []
    for attribution, device, figures in sides:
        ops = attribution.trace.ops
        row = np.flatnonzero((ops.device == device) & attribution.in_decode)
        key = attribution.phase[row].astype(np.int64) * len(CLASSES) + attribution.kernel_class[row]
        totals = np.zeros(len(PHASES) * len(CLASSES), np.int64)
        np.add.at(totals, key, (ops.end - ops.start)[row])
        tables.append(_per_step(totals.tolist(), figures.steps))
    return tuple(
        ClassSaving(PHASES[place // len(CLASSES)], CLASSES[place % len(CLASSES)], before, after)
        for place, (before, after) in enumerate(zip(*tables, strict=True))
        if before or after
    )


def _kernels(eager: Attribution, graphs: Attribution) -> tuple[tuple[KernelDifference, ...], int]:
    """Kernels that only one side has or that take each other's place, and how many per step are the same."""
    from .diff import Context, Side, diff

    sides = [Side.of("", "", one, Context()) for one in (eager, graphs)]
    changes = diff([sides[0]], [sides[1]], "step").pairs[0].kernels
    rows = tuple(
        KernelDifference(
            c.state, c.phase, c.kernel_class, c.a_name, c.b_name, c.a_count, c.b_count, c.a_ns, c.b_ns
        )
        for c in changes
        if c.state in ("new", "gone", "replaced")
    )  # fmt: skip
    return rows, round(sum(c.b_count for c in changes if c.a_name and c.b_name and c.state != "replaced"))


def totals(rows: Sequence[Saving]) -> list[Saving]:
    """The rows summed over phases, in the order of the waterfall."""
    found = []
    for key in ORDER:
        mine = [row for row in rows if row.key == key]
        if mine:
            found.append(Saving("", key, sum(row.eager_ns for row in mine), sum(row.graphs_ns for row in mine)))
    return found


def _text(saving: GraphSaving) -> str:
    before, after = (sum(getattr(row, side) for row in saving.rows) for side in ("eager_ns", "graphs_ns"))
    of = f"on rank {saving.rank}"
    changes = sorted(totals(saving.rows), key=lambda row: row.graphs_ns - row.eager_ns)
    graphs = [row for row in changes if row.key not in NOT_GRAPHS]
    saved = [_said(row) for row in graphs if row.eager_ns - row.graphs_ns >= TOLD * before]
    cost = [_said(row) for row in graphs[::-1] if row.graphs_ns - row.eager_ns >= TOLD * min(before, after)]
    if after >= before:
        text = f"with CUDA graphs the step takes {duration(after)} instead of {duration(before)} {of}"
    else:
        text = f"CUDA graphs take {duration(before - after)} off {a_duration(before)} step {of}"
    text += f": {listed(saved)}" if saved else ""
    waits = saving.waiting_ns
    if waits[0] is not None and waits[1] is not None and waits[0] - waits[1] >= TOLD * before:
        text += f"; another rank's waiting falls from {duration(waits[0])} to {duration(waits[1])}"
    text += f"; they cost {listed(cost)}" if cost else ""
    if saving.padding_ns is not None and saving.padding_ns >= TOLD * after:
        text += f"; padding costs them at most {duration(saving.padding_ns)}"
    for row in changes:
        if row.key in NOT_GRAPHS and abs(row.graphs_ns - row.eager_ns) >= TOLD * min(before, after):
            text += f"; {_unlike(row, saving.classes)}"
    return f"{text}; {duration(after)} are left" if after < before else text


def _unlike(row: Saving, classes: Sequence[ClassSaving]) -> str:
    """How kernels or prefills differ; contexts are named where attention makes up most of it."""
    change = row.graphs_ns - row.eager_ns
    text = f"{SAID[row.key]} take {duration(abs(change))} {'longer' if change > 0 else 'less'}, not for the graphs"
    attention = sum(own.graphs_ns - own.eager_ns for own in classes if own.kernel_class == "attention")
    told = (row.key == "compute" and 2 * attention >= change > 0) or 2 * attention <= change < 0
    return f"{text} (mostly attention: contexts differ)" if told else text


def _said(row: Saving) -> str:
    return f"{SAID[row.key]} ({duration(row.eager_ns)} → {duration(row.graphs_ns)})"
