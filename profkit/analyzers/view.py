"""What the verdict is drawn from: all figures of a trace, per device and step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from profkit.traces import F64

from .attribution import Attribution
from .collective_instances import told_steps
from .device_result import DeviceFigures
from .graph_result import GraphFigures
from .lateness import time_by_fault
from .matching import MatchedCollectives
from .other_work import Neighbours
from .result import Cycle

ADVICE = {
    "gap_host": "look at what its Python does between the graph launches, and whether its cores are shared",
    "gap_api": "look at the CUDA calls between the graph launches (allocations, queries, events)",
    "gap_launch": "look at the launch calls, as a first call loads its module, and a profiler slows each",
    "gap_graph_launch": "look at the graph launch calls, which take longer with more nodes, and under a recorder",
}
"""What to do about a late host, by what it spends the time in."""

EAGER_SHARE = 0.5
"""Share of launches outside graphs above which a step counts as eager."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What the verdict is drawn from, per device and step; ``slowest`` is the device that sets the pace."""

    attribution: Attribution
    matched: MatchedCollectives
    devices: dict[int, DeviceFigures]
    graphs: dict[int, GraphFigures]
    cycle: Cycle
    slowest: int
    neighbours: dict[int, Neighbours]

    def per_step(self, device: int, *parts: str) -> float:
        """Nanoseconds per step of the given parts of a device."""
        figures = self.devices[device]
        return sum(figures.partition_ns[part] or 0 for part in parts) / max(figures.steps, 1)

    def by_fault(self, device: int) -> F64:
        """Nanoseconds per step of a device by part and phase, waits by whose fault they are; without prefills."""
        per_step: F64 = time_by_fault(self.attribution, device) / max(self.devices[device].steps, 1)
        return per_step

    def told_steps(self, device: int) -> int:
        """The steps of a device whose waiting is told from transfer, at least 1."""
        return told_steps(self.matched.instances[device], self.devices[device].steps)

    def of_told(self, devices: Collection[int]) -> str:
        """Begins a sentence on waiting or transfer of ``devices``: of how many steps it is, where not of all."""
        shares = {(self.told_steps(device), self.devices[device].steps) for device in devices}
        told, steps = min(shares, key=lambda share: (share[0] / max(share[1], 1), share))
        if told >= steps:
            return ""
        least = "at least " if len(shares) > 1 else ""
        return f"in {least}{told} of {steps} steps (the others have no collective that is matched over the ranks) "

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

    def advice_for_host(self, part: str) -> str:
        """What to do about a host that launches late, mostly in ``part``."""
        return "record with CUDA graphs" if self.eager else ADVICE.get(part, ADVICE["gap_host"])
