"""Checks of ranks: which are recorded, whether their collectives match, and whose steps are lost."""

from __future__ import annotations

from collections.abc import Iterator

from .arrays import distinct
from .attribution import Attribution
from .matching import MatchedCollectives
from .ranks import lost_steps, missing_ranks, rank_of_device
from .result import Check
from .words import counted, duration


def checks_of_ranks(attribution: Attribution, matched: MatchedCollectives) -> Iterator[Check]:
    """Whether waiting can be told from transfer, and the steps and clocks of each rank."""
    trace = attribution.trace
    collectives = sum(len(instances.row) for instances in matched.instances.values())
    missing = missing_ranks(attribution)
    spoiled = ("collectives.skew_ns", "collectives.transfer_ns")
    if missing:
        yield Check("ranks", "warn", f"{missing}: waiting cannot be told from transfer for it", spoiled)
    elif len(matched.instances) == 1 and collectives:
        detail = "collectives run, but only one rank is recorded: waiting cannot be told from transfer"
        yield Check("ranks", "warn", detail, spoiled)
    elif len(trace.ops):
        yield Check("ranks", "ok", f"{len(matched.instances)} rank(s) recorded")
    yield from _without_steps(attribution)
    yield from _lost_steps(attribution)
    for text in matched.mismatches:
        yield Check("collectives", "warn", f"ranks disagree: {text}; skew and transfer are unknown", spoiled)
    if matched.impossible:
        yield Check("collectives", "warn", f"{matched.impossible}; skew and transfer are unknown", spoiled)
    if matched.edge_steps:
        steps = "1 step at the edge is" if matched.edge_steps == 1 else f"{matched.edge_steps} steps at the edge are"
        detail = f"{steps} not recorded whole on every rank, and left out of skew and transfer"
        yield Check("edge_steps", "warn", detail)
    if matched.known and collectives:
        yield Check("collectives", "ok", f"{collectives} collectives matched over {len(matched.instances)} ranks")
    wrong = matched.mismatches or matched.impossible
    if not matched.known and collectives and len(matched.instances) > 1 and not wrong:
        detail = "no collective of a decode step has a partner on another rank: waiting cannot be told from transfer"
        yield Check("collectives", "warn", detail, spoiled)
    apart = {device: offset for device, offset in matched.clock_offset.items() if offset}
    if apart and not matched.impossible:
        shown = ", ".join(
            f"device {device} is {duration(abs(offset))} {'ahead' if offset > 0 else 'behind'}"
            for device, offset in apart.items()
        )
        yield Check("clock", "warn", f"the GPUs' clocks differ ({shown}): aligned by collectives, which end together")


def _without_steps(attribution: Attribution) -> Iterator[Check]:
    """Ranks with GPU work of which no step is known, though steps of others are."""
    idle = [device for device, line in attribution.devices.items() if line.window_start is None]
    if not idle or len(idle) == len(attribution.devices):
        return
    ranks = rank_of_device(attribution.trace)
    in_steps = distinct(attribution.trace.ops.device[attribution.step >= 0])
    own = attribution.plan.source == "profkit"
    why = "annotated step: profkit's plugin is not active in" if own else "step: none shows in"
    for device in sorted(set(idle) - set(in_steps.tolist()), key=ranks.__getitem__):
        detail = f"rank {ranks[device]} has GPU work but no {why} that process; what its steps take is unknown"
        yield Check("annotations", "warn", detail)


def _lost_steps(attribution: Attribution) -> Iterator[Check]:
    """Steps that launched work of which no GPU record is left."""
    found = lost_steps(attribution)
    ranks = rank_of_device(attribution.trace) if found else {}
    for device, lost in found.items():
        first = attribution.plan.steps.index[lost[0]]
        detail = (
            f"{counted(len(lost), 'decode step')} of rank {ranks[device]} launched work that has no GPU record "
            f"(first: step {first}): records were lost, and what the GPU did in the window is unknown; record again"
        )
        yield Check("lost_steps", "abstain", detail, ("partition_ns", "busy_union_ns", "idle_ns"))
