"""What a step's own work costs, without waiting for hosts or ranks: drafts, verifies, copies, and prefills between."""

from __future__ import annotations

import numpy as np

from profkit.traces import F64, OpKind

from .collectives import Exposed
from .intervals import covered_before, merge
from .result import Cause
from .view import View
from .vocabulary import PART, PARTS, PHASE, PHASES
from .words import a_duration, duration, in_phase, share


def own_work(view: View, time: dict[int, F64], exposed: dict[int, Exposed]) -> list[Cause]:
    """Causes that are no fault by themselves, but for copies that nothing hides."""
    speculative = view.cycle.kind == "speculative"
    return [*_prefill(view), *_copies(view), *(_forwards(view, time, exposed) if speculative else ())]


def _prefill(view: View) -> list[Cause]:
    """What prefills add to the mean step, busy and waiting."""
    cost = view.phase_per_step("prefill", *PARTS)
    text = (
        f"prefills between the decode steps take {duration(cost)} of {a_duration(view.step_ns)} step on average "
        f"({share(cost, view.step_ns)}): record while no request comes in to see decode steps alone"
    )
    return [Cause("prefill", None, "prefill", None, round(cost), text)]


def _copies(view: View) -> list[Cause]:
    """Copies of decode steps during which nothing else runs, on the device that has least of them."""
    cells = {device: _copied(view, device) for device in view.devices}
    least = min(cells, key=lambda device: cells[device].sum())
    cost, timeline = float(cells[least].sum()), view.attribution.devices[least]
    if cost <= 0:
        return []
    phase = PHASES[int(np.argmax(cells[least]))]
    rows = np.flatnonzero((timeline.part == PART["copy"]) & (timeline.phase == PHASE[phase]))
    rows = rows[timeline.start[rows] >= (timeline.window_start or 0)]
    names = np.maximum(view.attribution.trace.ops.name[timeline.op[rows]], 0)
    time = np.bincount(names, weights=(timeline.end - timeline.start)[rows], minlength=1)
    name = view.attribution.trace.strings[int(np.argmax(time))]
    text = (
        f"copies and memsets beside which nothing else runs take {duration(cost)} of {a_duration(view.step_ns)} step, "
        f"mostly {name} {in_phase(phase)}: {_less_of(name)}"
    )
    return [Cause("copies", None, phase, "copy", round(cost), text)]


def _less_of(name: str) -> str:
    if "HtoD" in name or "DtoH" in name:
        return "copy less, or from and to pinned memory beside the work of another step"
    return f"{'clear' if 'emset' in name else 'copy'} less memory in the step, or beside its kernels"


def _copied(view: View, device: int) -> np.ndarray:
    """Nanoseconds per step by phase."""
    figures = view.devices[device]
    parts = [figures.phase_partition_ns.get(phase, {}).get("copy") or 0 for phase in PHASES]
    parts[PHASE["prefill"]] = parts[PHASE["outside"]] = 0
    return np.array(parts) / max(figures.steps, 1)


def _forwards(view: View, time: dict[int, F64], exposed: dict[int, Exposed]) -> list[Cause]:
    """What drafting and verifying cost by themselves."""
    waits = time[view.slowest][[PART["gap_in_graph"], PART["gap_queue"]], PHASE["draft"]]
    drafter = _draft_alone(view) + float(waits.sum())
    drafter = max(0.0, drafter - _skew_in_phase(view, exposed, "draft"))
    verify = view.phase_per_step("verify", "compute")
    return [
        Cause(
            "drafter_cost", None, "draft", "compute", round(drafter),
            f"the drafter takes {duration(drafter)} of {a_duration(view.step_ns)} step "
            f"({share(drafter, view.step_ns)}): a free drafter would save that much",
        ),
        Cause(
            "verify_cost", None, "verify", "compute", round(verify),
            f"verify's own GPU work takes {duration(verify)} of {a_duration(view.step_ns)} step "
            f"({share(verify, view.step_ns)}): only a smaller block, a cheaper target or a higher accept length "
            "changes that",
        ),
    ]  # fmt: skip


def _draft_alone(view: View) -> float:
    """Nanoseconds per step in which the drafter's kernels run and nothing else: beside verify they cost nothing."""
    attribution, device = view.attribution, view.slowest
    ops = attribution.trace.ops
    here = ops.device == device
    draft = (attribution.phase == PHASE["draft"]) & (ops.kind == OpKind.KERNEL)
    alone, other = (np.flatnonzero(here & mine) for mine in (draft & attribution.in_decode, ~draft))
    start, end = merge(ops.start[alone], ops.end[alone])
    beside = merge(ops.start[other], ops.end[other])
    hidden = covered_before(*beside, end) - covered_before(*beside, start)
    return int((end - start - hidden).sum()) / max(view.devices[device].steps, 1)


def _skew_in_phase(view: View, exposed: dict[int, Exposed], phase: str) -> float:
    """Nanoseconds per step that the slowest device waits for the last rank and nothing hides, in one phase."""
    split = exposed.get(view.slowest)
    return int(split.skew[PHASE[phase]]) / max(view.devices[view.slowest].steps, 1) if split else 0.0
