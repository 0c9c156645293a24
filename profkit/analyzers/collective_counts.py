"""How many collectives of each group the steps have on each device, and where devices disagree on it."""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, UNKNOWN, Bools

from .arrays import occurring
from .attribution import Attribution
from .collective_groups import Groups
from .collective_instances import Instances


def common_steps(numbers: dict[int, I64]) -> I64:
    """The decode steps that all devices have, from the step number of every op by device."""
    common: I64 | None = None
    for number in numbers.values():
        own = occurring(number[number >= 0])
        common = own if common is None else np.intersect1d(common, own)
    return common if common is not None else np.empty(0, np.int64)


def edge_steps(numbers: dict[int, I64], common: I64) -> int:
    """How many steps the recording of one device has before the first or behind the last one of another's."""
    steps = [own for number in numbers.values() if len(own := occurring(number[number >= 0]))]
    outside = [own[(own < other[0]) | (own > other[-1])] for own in steps for other in steps]
    return len(np.setdiff1d(np.concatenate(outside), common)) if outside else 0


def counts_per_step(
    found: dict[int, Instances], codes: dict[int, I64], groups: Groups, code: int, common: I64
) -> dict[int, I64]:
    """How many collectives of one group each step has, on the devices that take part."""
    counts = {
        device: np.bincount(np.searchsorted(common, instances.step[kept]), minlength=len(common))
        for device, instances in found.items()
        for kept in [(codes[device] == code) & np.isin(instances.step, common)]
    }
    everyone = groups.communicator[code] == UNKNOWN
    return {device: count for device, count in counts.items() if everyone or count.any()}


def differing(counts: dict[int, I64]) -> Bools:
    """In which steps devices have different numbers of them."""
    table = np.stack(list(counts.values()))
    differ: Bools = (table != table[0]).any(axis=0)
    return differ


def steps_cut_off(
    attribution: Attribution, numbers: dict[int, I64], counts: list[dict[int, I64]], common: I64
) -> Bools:
    """Steps with which a device's recording begins or ends, and of which it lacks collectives that others have.

    None where no other step would be left, or where others differ too: then records are missing inside.
    """
    cut = np.zeros(len(common), np.bool_)
    ops = attribution.trace.ops
    for device, number in numbers.items():
        rows = np.flatnonzero(ops.device == device)
        edges = number[rows[[np.argmin(ops.start[rows]), np.argmax(ops.end[rows])]]]
        fewer = np.any([one[device] < np.max(list(one.values()), axis=0) for one in counts if device in one], axis=0)
        cut |= np.isin(common, edges) & fewer
    others_differ = any(np.any(differing(one)[~cut]) for one in counts if one)
    return cut if not cut.all() and not others_differ else np.zeros(len(common), np.bool_)


def mismatches_of(
    attribution: Attribution, groups: Groups, code: int, counts: dict[int, I64], common: I64
) -> list[str]:
    """Where the devices that take part disagree on how many collectives of one group a step has."""
    wrong = np.flatnonzero(differing(counts)) if counts and len(common) else np.empty(0, np.intp)
    if not len(wrong):
        return []
    kind = attribution.collective_rules[int(groups.rule[code])].value
    first = wrong[0]
    seen = ", ".join(f"{count[first]} on device {device}" for device, count in counts.items())
    return [f"{kind} differs in {len(wrong)} of {len(common)} steps (first in step {common[first]}: {seen})"]
