"""Figures of collectives: waiting for the last rank (skew), the rest (transfer), and what the last rank was doing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I8, I64, UNKNOWN, Bools

from .arrays import occurring
from .attribution import Attribution
from .collective_groups import call_of_op
from .device_result import CollectiveKind, Collectives, Waiting
from .intervals import merge, union_length
from .matching import MatchedCollectives
from .partition import DeviceTimeline
from .ranks import rank_of_device
from .vocabulary import CLASS, PART, PARTS, PHASE, PHASES


@dataclass(frozen=True, slots=True, eq=False)
class Exposed:
    """Time of one device's part ``collective`` by phase, in nanoseconds: waiting for the last rank, and ``unpaired``.

    ``unpaired`` is the time in collectives without a partner; the rest of the part is transfer.
    """

    skew: I64
    unpaired: I64


def overlap_totals(timeline: DeviceTimeline, start: I64, end: I64) -> I64:
    """Nanoseconds of ``timeline`` by part and phase within the given intervals, summed: shape (parts, phases).

    What lies before the first or behind the last op of the device is ``gap_unknown`` and ``outside``.
    """
    _, segment, length = timeline.within(start, end)
    cell = timeline.part[segment].astype(np.int64) * len(PHASES) + timeline.phase[segment]
    total = np.bincount(cell, weights=length, minlength=len(PARTS) * len(PHASES)).astype(np.int64)
    totals = total.reshape(len(PARTS), len(PHASES))
    totals[PART["gap_unknown"], PHASE["outside"]] += int((end - start).sum()) - int(length.sum())
    return totals


def blame(attribution: Attribution, matched: MatchedCollectives, device: int) -> dict[int, I64]:
    """What each last device was doing while ``device`` waited for it: totals by part and phase."""
    own = matched.instances[device]
    offset = matched.clock_offset
    totals = {}
    for last in np.unique(own.last[own.skew > 0]).tolist():
        waits = (own.last == last) & (own.skew > 0)
        start = own.start[waits] - offset.get(device, 0) + offset.get(last, 0)
        totals[last] = overlap_totals(attribution.devices[last], start, start + own.skew[waits])
    return totals


def exposed_collectives(attribution: Attribution, matched: MatchedCollectives) -> dict[int, Exposed]:
    """What each device's part ``collective`` is made of; empty where waiting cannot be told from transfer."""
    if not matched.known:
        return {}
    found = {}
    for device, own in matched.instances.items():
        alone, waits = own.skew == UNKNOWN, own.skew > 0
        found[device] = Exposed(
            skew=exposed_time(attribution.devices[device], own.start[waits], (own.start + own.skew)[waits]),
            unpaired=exposed_time(attribution.devices[device], own.start[alone], own.end[alone]),
        )
    return found


def exposed_time(timeline: DeviceTimeline, start: I64, end: I64) -> I64:
    """By phase, how long a device runs only collectives within intervals, merged, in nanoseconds."""
    order = np.argsort(start, kind="stable")
    row: I64 = overlap_totals(timeline, *merge(start[order], end[order]))[PART["collective"]]
    return row


def collective_figures(
    attribution: Attribution, matched: MatchedCollectives, device: int, exposed: int | None
) -> Collectives:
    """The figures of one device; ``exposed`` is the window's collective part."""
    own = matched.instances[device]
    paired = own.skew != UNKNOWN
    known = matched.known
    duration = own.end - own.start
    skew = int(own.skew[paired].sum()) if known else None
    transfer = int((duration - own.skew)[paired].sum()) if known and not matched.missing_ranks else None
    ranks = rank_of_device(attribution.trace)
    totals = blame(attribution, matched, device) if known else {}
    parts = {
        name: int(sum(total[code].sum() for total in totals.values())) if known else None
        for code, name in enumerate(PARTS)
    }
    waits = [
        Waiting(ranks[last], PHASES[phase], PARTS[part], int(total[part, phase]))
        for last, total in totals.items()
        for part, phase in zip(*np.nonzero(total), strict=True)
    ]
    return Collectives(
        count=len(own.row),
        sum_ns=int(duration.sum()),
        union_ns=union_length(own.start, own.end),
        exposed_ns=exposed,
        skew_ns=skew,
        transfer_ns=transfer,
        skew_blame_ns=parts,
        waits=tuple(sorted(waits, key=lambda w: -w.ns)),
        kinds=_kinds(attribution, matched, device),
        unpaired_ns=int(duration[~paired].sum()) if known else None,
    )


def _kinds(attribution: Attribution, matched: MatchedCollectives, device: int) -> tuple[CollectiveKind, ...]:
    own = matched.instances[device]
    sizes = message_sizes(attribution)[own.row]
    rule = attribution.collective[own.row]
    phase: I8 = attribution.phase[own.row]
    distinct_sizes, place = np.unique(sizes, return_inverse=True)
    kind = (rule.astype(np.int64) * len(PHASES) + phase) * len(distinct_sizes) + place
    rows = []
    for number in occurring(kind).tolist():
        kept = kind == number
        one = int(np.argmax(kept))
        rows.append(_kind(attribution, matched, device, kept, int(rule[one]), int(phase[one]), int(sizes[one])))
    return tuple(sorted(rows, key=lambda row: -row.sum_ns))


def _kind(
    attribution: Attribution, matched: MatchedCollectives, device: int, kept: Bools, code: int, phase: int, size: int
) -> CollectiveKind:
    own = matched.instances[device]
    rule = attribution.collective_rules[code]
    duration = (own.end - own.start)[kept]
    paired = own.skew[kept] != UNKNOWN
    skew = own.skew[kept][paired]
    known = matched.known and bool(paired.any())
    told = known and not matched.missing_ranks
    transfer = duration[paired] - skew
    median = int(np.median(transfer)) if told else None
    algorithm, bus = _bandwidths(rule.value, size, len(matched.instances), median)
    limit = next((d.link_bandwidth for d in attribution.trace.devices if d.device == device), None)
    return CollectiveKind(
        kind=rule.value,
        library=rule.library,
        phase=PHASES[phase],
        bytes=size if size >= 0 else None,
        count=int(kept.sum()),
        sum_ns=int(duration.sum()),
        skew_ns=int(skew.sum()) if known else None,
        transfer_ns=int(transfer.sum()) if told else None,
        transfer_ns_median=median,
        algorithm_bandwidth=algorithm,
        bus_bandwidth=bus,
        link_share=bus / limit if bus is not None and limit else None,
    )


def message_sizes(attribution: Attribution) -> I64:
    """The message size of each collective op in bytes per rank, or ``UNKNOWN``."""
    call = call_of_op(attribution)
    sizes = attribution.trace.collective_calls.bytes
    own = attribution.trace.ops.bytes
    named = attribution.kernel_class == CLASS["collective"]
    by_call = np.where(call >= 0, sizes[np.maximum(call, 0)], UNKNOWN) if len(sizes) else call
    return np.where(by_call >= 0, by_call, np.where(named, own, UNKNOWN))


def _bandwidths(kind: str, size: int, ranks: int, transfer: int | None) -> tuple[float | None, float | None]:
    """Algorithm and bus bandwidth in bytes per second, by the definitions of NCCL's tests."""
    if size < 0 or not transfer:
        return None, None
    total = size * ranks if kind == "all_gather" else size
    factors = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks}
    factors |= {"reduce_scatter": (ranks - 1) / ranks, "all_to_all": (ranks - 1) / ranks}
    algorithm = total / (transfer * 1e-9)
    return algorithm, algorithm * factors.get(kind, 1.0)
