"""Causes of steps and ranks that run without the graphs that others have."""

from __future__ import annotations

from .graph_ranks import disagreements
from .result import Cause
from .view import View
from .vocabulary import HOST_PARTS
from .words import a_duration, duration, listed


def eager_fallback(view: View) -> list[Cause]:
    """What it costs that some steps run without the graphs that others have."""
    graphs, steps = view.graphs[view.slowest], max(view.devices[view.slowest].steps, 1)
    cost = (graphs.fallback_ns or 0) / steps
    if cost <= 0:
        return []
    phases = list(dict.fromkeys(row.phase for row in graphs.fallbacks))
    fallen = {step for row in graphs.fallbacks for step in row.steps}
    largest = max(view.attribution.trace.run.graph_batch_sizes, default=None)
    sizes = {size for row in graphs.fallbacks for size in row.batch_sizes if size is not None}
    beyond = [str(size) for size in sorted(sizes) if largest is not None and size > largest]
    advice = (
        f"capture graphs for batch {listed(beyond)}" if beyond else "find out from the server's log what rules them out"
    )
    how = "partly without graphs" if all(row.partial for row in graphs.fallbacks) else "without graphs"
    text = (
        f"{listed(phases)} {'runs' if len(phases) == 1 else 'run'} {how} in {len(fallen)} of {steps} steps, "
        f"which costs {duration(cost)} of {a_duration(view.step_ns)} step on average: {advice}"
    )
    return [Cause("eager_fallback", None, phases[0] if len(phases) == 1 else None, None, round(cost), text)]


def eager_ranks(view: View) -> list[Cause]:
    """How much longer ranks wait for their hosts in phases that run in graphs on other ranks only."""
    causes = []
    for row in disagreements(view.attribution):
        late = {d: _late_in(view, d, row.phases) for d in (*row.graphed, *row.eager) if d in view.devices}
        usual = min((late[device] for device in row.graphed if device in late), default=0.0)
        for device in row.eager:
            cost, rank = late.get(device, 0.0) - usual, view.devices[device].rank
            text = (
                f"rank {rank} runs {listed(list(row.phases))} without the graphs that other ranks have, and its GPU "
                f"waits {duration(cost)} of {a_duration(view.step_ns)} step longer for its host there: find out from "
                "the server's log why it has none"
            )
            phase = row.phases[0] if len(row.phases) == 1 else None
            causes.append(Cause("eager_fallback", rank, phase, None, round(cost), text))
    return causes


def _late_in(view: View, device: int, phases: tuple[str, ...]) -> float:
    """Nanoseconds per step that a device waits for its host in some phases."""
    figures = view.devices[device]
    cells = [figures.phase_partition_ns.get(phase, {}) for phase in phases]
    waits = sum(cell.get(part) or 0 for cell in cells for part in HOST_PARTS)
    return waits / max(figures.steps, 1)
