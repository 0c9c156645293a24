"""What collectives cost: transfers, those that memory copies slow down, and what no recording can tell from waiting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import UNKNOWN

from .arrays import occurring
from .collectives import Exposed, exposed_time
from .contention import contended_transfer
from .device_result import DeviceFigures
from .link_use import dearest, in_words
from .result import Cause
from .slow_collectives import slow_collectives
from .view import View
from .vocabulary import PHASES
from .words import a_duration, counted, duration, listed

FULL = 0.5
"""Share of a link's limit below which transfers surely do not fill it."""

LESS = 0.05
"""A rank that spends less in collectives without a partner than the others, by this share of a step, may come last."""

NOT_OF_STEPS = ("prefill", "outside")
STEP_PHASES = [code for code, phase in enumerate(PHASES) if phase not in NOT_OF_STEPS]


def link_causes(view: View, split: dict[int, Exposed]) -> list[Cause]:
    """Exposed collectives, without waiting for recorded ranks; of the rank that sees least of it."""
    exposed = {device: _of_steps(figures) for device, figures in view.devices.items()}
    if not any(exposed.values()):
        return []
    if not view.matched.known:
        return [_cannot_tell(view, exposed)]
    transfer = {
        d: (ns - int((split[d].skew + split[d].unpaired)[STEP_PHASES].sum())) / view.told_steps(d)
        for d, ns in exposed.items()
    }
    if view.matched.missing_ranks:
        return [*_without_partner(view), _ranks_missing(view, max(transfer.values()))]
    return [*_without_partner(view), *_transfers(view, transfer)]


def _of_steps(figures: DeviceFigures) -> int:
    """Time of decode steps in which a device runs only collectives, in nanoseconds."""
    return sum(
        parts.get("collective") or 0 for phase, parts in figures.phase_partition_ns.items() if phase not in NOT_OF_STEPS
    )


def _cannot_tell(view: View, exposed: dict[int, int]) -> Cause:
    matched = view.matched
    longest = max(ns / max(view.devices[device].steps, 1) for device, ns in exposed.items())
    if len(matched.instances) < 2:
        advice = "record every rank in one run"
    elif not all(len(own.row) for own in matched.instances.values()):
        advice = "record and annotate the steps of every rank"
    elif matched.mismatches:
        advice = "see the health checks, and record again without losses"
    elif not matched.impossible and (alone := _without_partner(view)):
        return alone[0]
    else:
        advice = "see the health checks"
    text = (
        f"{duration(longest)} of {a_duration(view.step_ns)} step goes to collectives, and the recording cannot "
        f"tell waiting from transfer: {advice}"
    )
    return Cause("unexplained", None, None, "collective", round(longest), text)


def _ranks_missing(view: View, longest: float) -> Cause:
    text = (
        f"{duration(longest)} of {a_duration(view.step_ns)} step goes to collectives and is no waiting for a recorded "
        f"rank, but {view.matched.missing_ranks}, so waiting for the others cannot be told from transfer: record every "
        "rank in one run"
    )
    return Cause("unexplained", None, None, "collective", round(longest), text)


@dataclass(frozen=True, slots=True)
class _Alone:
    """Exposed time of one device in collectives that have no partner on another rank, and their kinds."""

    per_step: float
    kinds: tuple[str, ...]


def _alone(view: View, device: int) -> _Alone:
    attribution, own = view.attribution, view.matched.instances[device]
    alone = own.skew == UNKNOWN
    paired = occurring(own.step[~alone])
    # A step without any partner is one at the edge, whose collectives are like others.
    rows = np.flatnonzero(alone & np.isin(own.step, paired) if len(paired) else alone)
    exposed = int(exposed_time(attribution.devices[device], own.start[rows], own.end[rows]).sum())
    rules = occurring(attribution.collective[own.row[rows]]).tolist()
    kinds = tuple(dict.fromkeys(attribution.collective_rules[rule].value for rule in rules))
    return _Alone(exposed / max(view.devices[device].steps, 1), kinds)


def _without_partner(view: View) -> list[Cause]:
    """Collectives such as send and receive, of which no rank tells when the others came."""
    found = {device: _alone(view, device) for device in view.devices}
    longest = max(found.values(), key=lambda one: one.per_step)
    if longest.per_step <= 0:
        return []
    text = (
        f"{duration(longest.per_step)} of {a_duration(view.step_ns)} step goes to {listed(list(longest.kinds))}, of "
        f"which the recording cannot tell waiting from transfer{_who_may_be_last(view, found)}"
    )
    return [Cause("unexplained", None, None, "collective", round(longest.per_step), text)]


def _who_may_be_last(view: View, found: dict[int, _Alone]) -> str:
    """The rank that is in them for least time comes last, if anything is waiting."""
    last = min(found, key=lambda device: found[device].per_step)
    others = [one.per_step for device, one in found.items() if device != last]
    less = float(np.median(others)) - found[last].per_step if others else 0.0
    if less < LESS * view.step_ns:
        return ": look at whether all ranks get there at the same time"
    rank = view.devices[last].rank
    rest = "the other" if len(others) == 1 else "the others"
    return f": rank {rank} spends {duration(less)} less in them than {rest}, which may wait for it"


def _transfers(view: View, transfer: dict[int, float]) -> list[Cause]:
    least = min(transfer, key=lambda device: transfer[device])
    figures, steps, of = view.devices[least], view.told_steps(least), view.of_told([least])
    paired = int(np.count_nonzero(view.matched.instances[least].skew != UNKNOWN))
    contended = contended_transfer(view.attribution, view.matched)
    causes = []
    if contended.excess_ns:
        text = (
            f"{of}{contended.count / steps:.0f} collectives per step share the link with memory copies and take "
            f"{duration(contended.excess_ns / steps)} longer for it: move the copies out of the step, or to a time "
            "without collectives"
        )
        causes.append(
            Cause("link_contended", None, contended.phase, "collective", round(contended.excess_ns / steps), text)
        )
    measured, advice = _measured(figures)
    if (slow := slow_collectives(view.attribution, view.matched, least, steps)) is not None:
        measured = f"{measured}, {slow.text}"
        advice = f"look at {'that one' if slow.per_step == 1 else 'those'} first; {advice}"
    text = (
        f"{of}the transfers themselves take {duration(transfer[least])} of {a_duration(view.step_ns)} step in "
        f"{counted(round(paired / steps), 'collective')}{measured}: {advice}"
    )
    own = max(0.0, transfer[least] - contended.excess_ns / steps)
    return [*causes, Cause("link_bound", None, _dearest_phase(view), "collective", round(own), text)]


def _dearest_phase(view: View) -> str:
    cells = view.devices[view.slowest].phase_partition_ns
    phases = [phase for phase in cells if phase not in NOT_OF_STEPS]
    return max(phases, key=lambda phase: cells[phase].get("collective") or 0, default="verify")


def _measured(figures: DeviceFigures) -> tuple[str, str]:
    """How much of the link the transfers use, in brackets, where that was measured; and what would shorten them."""
    used = dearest(figures.link_use or ())
    if used is None:
        return "", "a faster link, fewer or fused collectives, or overlap with compute would shorten it"
    said = f" ({in_words(used)})"
    if used.share_most is not None and used.share_most < FULL:
        advice = "fewer or fused collectives, overlap with compute, or a path with less latency would shorten it"
        return said, f"the GPU's own link is not full, so {advice}"
    return said, "a faster link, fewer or fused collectives, or overlap with compute would shorten it"
