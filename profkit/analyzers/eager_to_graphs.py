"""What CUDA graphs save: an eager step beside the same step with graphs, on the rank that the others wait for.

The step's wall time is cut into what the partition says, with exposed collectives split into waiting and transfer, so
that rows sum to the step of each side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from .attribution import Attribution
from .collectives import Exposed, exposed_collectives
from .intervals import union_length
from .matching import match_collectives
from .result import ClassSaving, DeviceFigures, GraphFigures, GraphSaving, KernelDifference, Saving, TraceFigures
from .vocabulary import CLASSES, PHASES
from .words import duration, listed

GROUPS = {
    "compute": "compute", "copy": "copies", "gap_in_graph": "graph_gaps", "gap_queue": "queue",
    "gap_unknown": "unknown", "gap_sync": "sync", "gap_host": "host_code",
    "gap_api": "launch", "gap_launch": "launch", "gap_graph_launch": "launch",
}  # fmt: skip
WAITING, TRANSFER = "waiting", "transfer"
ORDER = ("host_code", "launch", "sync", WAITING, TRANSFER, "compute", "copies", "graph_gaps", "queue", "unknown")
"""Rows of the waterfall: what graphs are for comes first."""

TOLD = 0.02
"""Changes of less than this share of the eager step are not put into the sentence."""

SAID = {
    "host_code": "code on the host", "launch": "launch calls", "sync": "blocking calls",
    WAITING: "waiting for other ranks", TRANSFER: "transfers", "compute": "kernels", "copies": "copies",
    "graph_gaps": "gaps inside graphs", "queue": "queues", "unknown": "gaps without launch record",
}  # fmt: skip


def graph_savings(traces: Sequence[TraceFigures], attributions: Sequence[Attribution]) -> tuple[GraphSaving, ...]:
    """One for each eager recording that has one with graphs of the same configuration and concurrency beside it."""
    known = list(zip(traces, attributions, strict=True))
    found = []
    for eager, eagerly in known:
        partner = next((pair for pair in known if _is_partner(eager, pair[0])), None)
        if partner is not None:
            saving = _saving((eager, eagerly), partner)
            found += [saving] if saving else []
    return tuple(found)


def launched_eagerly(graphs: Collection[GraphFigures]) -> bool:
    """Whether no graph was launched in the decode steps of any device; of no device, nothing is known."""
    return bool(graphs) and not any(graph.launches_per_step for graph in graphs)


def _is_partner(eager: TraceFigures, graphs: TraceFigures) -> bool:
    ours, theirs = eager.provenance, graphs.provenance
    return (
        launched_eagerly(eager.graphs.values())
        and not launched_eagerly(graphs.graphs.values())
        and bool(ours.config)
        and (ours.config, ours.concurrency, eager.source) == (theirs.config, theirs.concurrency, graphs.source)
        and [d.rank for d in eager.devices.values()] == [d.rank for d in graphs.devices.values()]
    )


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
    kernels, same = _kernels(*(one for _, one in sides))
    overlap = [
        _overlap(one, int(n)) // d.steps
        for (_, one), (n, d) in zip(sides, (devices[0][rank], devices[1][rank]), strict=True)
    ]
    waits = [_most_waiting(side, rank) for side in devices]
    return GraphSaving(
        eager=eager[0].name,
        graphs=graphs[0].name,
        batch_size=eager[0].cycle.batch_size,
        rank=rank,
        rows=rows,
        classes=_classes(before, after),
        overlap_ns=(overlap[0], overlap[1]),
        waiting_ns=(waits[0], waits[1]),
        kernels=kernels,
        same_kernels=same,
        text=_text(rows, rank, (waits[0], waits[1])),
    )


def _awaited(devices: dict[int, tuple[str, DeviceFigures]], exposed: dict[int, Exposed], slowest: int | None) -> int:
    """The rank that waits least for others, or the slowest one where waiting is not known."""
    if not exposed:
        return slowest if slowest is not None else min(devices)
    return min(devices, key=lambda rank: int(exposed[int(devices[rank][0])].skew.sum()))


def _rows(device: DeviceFigures, exposed: Exposed | None) -> dict[tuple[str, str], int]:
    """Nanoseconds per step by phase and group; rounded so that they sum to the step's rounded wall time."""
    total: dict[tuple[str, str], int] = defaultdict(int)
    for phase, parts in device.phase_partition_ns.items():
        for part, ns in parts.items():
            if part != "collective":
                total[phase, GROUPS[part]] += ns or 0
                continue
            waiting = int(exposed.skew[PHASES.index(phase)]) if exposed else 0
            total[phase, WAITING] += waiting
            total[phase, TRANSFER] += (ns or 0) - waiting
    reached = np.cumsum([0, *total.values()])
    per_step = np.diff((2 * reached + device.steps) // (2 * device.steps)).tolist()
    return {key: ns for key, ns in zip(total, per_step, strict=True) if ns}


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


def _classes(eager: DeviceFigures, graphs: DeviceFigures) -> tuple[ClassSaving, ...]:
    both = [name for name in CLASSES if name in eager.classes or name in graphs.classes]
    sums = [[d.classes[name].sum_ns // d.steps if name in d.classes else 0 for name in both] for d in (eager, graphs)]
    return tuple(ClassSaving(*row) for row in zip(both, *sums, strict=True))


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


def _text(rows: Sequence[Saving], rank: int, waits: tuple[int | None, int | None]) -> str:
    before, after = (sum(getattr(row, side) for row in rows) for side in ("eager_ns", "graphs_ns"))
    changes = sorted(totals(rows), key=lambda row: row.graphs_ns - row.eager_ns)
    saved = [_said(row) for row in changes if row.eager_ns - row.graphs_ns >= TOLD * before]
    dearer = [row for row in changes[::-1] if row.graphs_ns - row.eager_ns >= TOLD * min(before, after)]
    cost = [_said(row) for row in dearer if row.key != "compute"]
    if after >= before:
        return f"with CUDA graphs the step takes {duration(after)} instead of {duration(before)} on rank {rank}"
    text = f"CUDA graphs take {duration(before - after)} off a {duration(before)} step on rank {rank}"
    text += f": {listed(saved)}" if saved else ""
    if waits[0] is not None and waits[1] is not None and waits[0] - waits[1] >= TOLD * before:
        text += f"; another rank's waiting for it falls from {duration(waits[0])} to {duration(waits[1])}"
    text += f"; they cost {listed(cost)}" if cost else ""
    for row in dearer:
        if row.key == "compute":
            # The same kernels: graphs do not slow them, but requests were further on, or clocks lower.
            text += f"; kernels take {duration(row.graphs_ns - row.eager_ns)} longer, as with longer contexts"
    return f"{text}; {duration(after)} are left"


def _said(row: Saving) -> str:
    return f"{SAID[row.key]} ({duration(row.eager_ns)} → {duration(row.graphs_ns)})"
