"""Matching the collectives of ranks: which instances are one collective, and how long each waited for the last rank.

Instance i of a kind and communicator in a step is the same collective on every rank. Where ranks disagree on how
many there are, the figures are unknown: a mismatch is reported, never guessed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from profkit.traces import I64, UNKNOWN, Index

from .arrays import occurring
from .attribution import Attribution
from .ranks import step_numbers
from .vocabulary import CLASS

CLOCK_TOLERANCE = 50_000
"""Ranks leave a collective within this many nanoseconds of each other; more means that clocks differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Instances:
    """Collectives of the decode steps of one device, in order of start.

    ``row`` is the op; ``skew`` is ``UNKNOWN`` where the instance has no partner; ``last`` is the device that all
    waited for, ``UNKNOWN`` likewise.
    """

    row: Index
    step: I64
    start: I64
    end: I64
    skew: I64
    last: I64


@dataclass(frozen=True, slots=True, eq=False)
class MatchedCollectives:
    """Instances by device, what could not be matched, and by how much the clocks of devices differ.

    ``keys`` names each instance; the same key means the same collective on all devices, ``UNKNOWN`` none.
    """

    instances: dict[int, Instances]
    mismatches: tuple[str, ...] = ()
    unpaired: int = 0
    edge_steps: int = 0
    clock_offset: dict[int, int] = field(default_factory=dict)
    keys: dict[int, I64] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether skew can be told from transfer: not where no collective at all has a partner."""
        count = sum(len(instances.row) for instances in self.instances.values())
        return len(self.instances) > 1 and not self.mismatches and (self.unpaired < count or not count)


def match_collectives(attribution: Attribution) -> MatchedCollectives:
    """Match the collectives of decode steps over all devices."""
    numbers = step_numbers(attribution)
    kinds = _kind_codes(attribution)
    found = {device: _instances(attribution, device, numbers[device]) for device in attribution.devices}
    if len(found) < 2:
        return MatchedCollectives(found, (), sum(len(i.row) for i in found.values()))
    common = _common_steps(numbers)
    keys: dict[int, I64] = {}
    mismatches: list[str] = []
    groups = {device: kinds[instances.row] for device, instances in found.items()}
    for code in sorted({int(code) for codes in groups.values() for code in np.unique(codes)}):
        mismatches += _mismatches(attribution, found, groups, code, common)
    for device, instances in found.items():
        keys[device] = np.where(np.isin(instances.step, common), _keys(instances.step, groups[device]), UNKNOWN)
    offset = _clock_offsets(attribution, found, keys)
    matched = {device: _matched(device, found, keys, offset) for device in found}
    unpaired = sum(int(np.count_nonzero(m.skew == UNKNOWN)) for m in matched.values())
    edges = len(set().union(*(occurring(n[n >= 0]).tolist() for n in numbers.values()))) - len(common)
    return MatchedCollectives(matched, tuple(mismatches), unpaired, edges, offset, keys)


def _kind_codes(attribution: Attribution) -> I64:
    """One code per op for kind and communicator; ``UNKNOWN`` for what is no collective or has no partner."""
    paired = np.array([rule.paired for rule in attribution.collective_rules] or [False])
    rules = attribution.collective
    codes = np.where(rules >= 0, rules, UNKNOWN).astype(np.int64)
    codes[(rules >= 0) & ~paired[np.maximum(rules, 0)]] = UNKNOWN
    communicator = communicators(attribution)
    return np.where(codes >= 0, codes * 1024 + communicator + 1, UNKNOWN)


def communicators(attribution: Attribution) -> I64:
    """The communicator (a string id) of each op's collective call, or ``UNKNOWN``."""
    call = call_of_op(attribution)
    comm = attribution.trace.collective_calls.comm
    return np.where(call >= 0, comm[np.maximum(call, 0)], UNKNOWN) if len(comm) else call


def call_of_op(attribution: Attribution) -> I64:
    """The row of ``trace.collective_calls`` in which each collective op was launched, or ``UNKNOWN``."""
    calls, launches = attribution.trace.collective_calls, attribution.trace.launches
    call = np.full(len(attribution.launch), UNKNOWN, np.int64)
    asked = np.flatnonzero((attribution.kernel_class == CLASS["collective"]) & (attribution.launch >= 0))
    if not len(calls) or not len(asked):
        return call
    from .steps import spans_at

    launch = attribution.launch[asked]
    end = np.maximum(calls.end, calls.start + 1)
    call[asked] = spans_at(
        calls.pid, calls.tid, calls.start, end, launches.pid[launch], launches.tid[launch], launches.start[launch]
    )
    return call


def _instances(attribution: Attribution, device: int, number: I64) -> Instances:
    ops = attribution.trace.ops
    row = np.flatnonzero((number >= 0) & (attribution.kernel_class == CLASS["collective"]))
    row = row[np.argsort(ops.start[row], kind="stable")]
    unknown = np.full(len(row), UNKNOWN, np.int64)
    return Instances(row, number[row], ops.start[row], ops.end[row], unknown, unknown)


def _common_steps(numbers: dict[int, I64]) -> I64:
    common: I64 | None = None
    for number in numbers.values():
        own = occurring(number[number >= 0])
        common = own if common is None else np.intersect1d(common, own)
    return common if common is not None else np.empty(0, np.int64)


def _mismatches(
    attribution: Attribution, found: dict[int, Instances], groups: dict[int, I64], code: int, common: I64
) -> list[str]:
    """Where the devices that take part disagree on how many collectives of one kind a step has."""
    if code == UNKNOWN or not len(common):
        return []
    counts = {
        device: np.bincount(np.searchsorted(common, instances.step[kept]), minlength=len(common))
        for device, instances in found.items()
        for kept in [(groups[device] == code) & np.isin(instances.step, common)]
    }
    takes_part = {device: count for device, count in counts.items() if code % 1024 == 0 or count.any()}
    table = np.stack(list(takes_part.values()))
    wrong = np.flatnonzero((table != table[0]).any(axis=0))
    if not len(wrong):
        return []
    kind = attribution.collective_rules[code // 1024].value
    first = wrong[0]
    seen = ", ".join(f"{count[first]} on device {device}" for device, count in takes_part.items())
    return [f"{kind} differs in {len(wrong)} of {len(common)} steps (first in step {common[first]}: {seen})"]


def _keys(step: I64, kind: I64) -> I64:
    """Step, kind and place within them as one number; ``UNKNOWN`` for what has no partner."""
    group = (step << 20) + kind
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    first = np.searchsorted(ordered, ordered, "left")
    place = np.empty(len(group), np.int64)
    place[order] = np.arange(len(group)) - first
    return np.where(kind >= 0, (step << 42) | (kind << 22) | place, UNKNOWN)


def partner_positions(matched: MatchedCollectives, device: int, other: int) -> Index:
    """For each instance of ``device``, the position of the same collective among those of ``other``, or -1."""
    return _partners({other: matched.keys[other]}, matched.keys[device])[other]


def _partners(keys: dict[int, I64], key: I64) -> dict[int, Index]:
    """For each device, the position of its instance with each ``key``, or -1."""
    places = {}
    for device, own in keys.items():
        order = np.argsort(own, kind="stable")
        ordered = own[order]
        if not len(order):
            places[device] = np.full(len(key), -1)
            continue
        at = np.minimum(np.searchsorted(ordered, key), len(order) - 1)
        places[device] = np.where((ordered[at] == key) & (key != UNKNOWN), order[at], -1)
    return places


def _clock_offsets(attribution: Attribution, found: dict[int, Instances], keys: dict[int, I64]) -> dict[int, int]:
    """How far each device's clock is ahead of the first one's, from the ends of collectives; mostly 0.

    Only files that were recorded rank by rank can differ; one recorder has one clock.
    """
    offsets = dict.fromkeys(found, 0)
    if attribution.trace.source.format != "kineto":
        return offsets
    reference, *others = found
    for device in others:
        partner = _partners(keys, keys[device])[reference]
        both = partner >= 0
        ahead = found[device].end[both] - found[reference].end[partner[both]]
        if len(ahead) and abs(np.median(ahead)) > CLOCK_TOLERANCE:
            offsets[device] = int(np.median(ahead))
    return offsets


def _matched(device: int, found: dict[int, Instances], keys: dict[int, I64], offset: dict[int, int]) -> Instances:
    own = found[device]
    last_start = own.start - offset[device]
    last = np.full(len(own.row), device, np.int64)
    partners = np.zeros(len(own.row), np.int64)
    for other, place in _partners(keys, keys[device]).items():
        has = place >= 0
        if other == device:
            continue
        start = (
            np.where(has, found[other].start[np.maximum(place, 0)] - offset[other], UNKNOWN)
            if len(found[other].start)
            else np.full(len(place), UNKNOWN)
        )
        later = has & (start > last_start)
        last[later] = other
        last_start = np.where(later, start, last_start)
        partners = partners + has
    alone = partners == 0
    skew = np.minimum(last_start - (own.start - offset[device]), own.end - own.start)
    return Instances(
        own.row, own.step, own.start, own.end,
        np.where(alone, UNKNOWN, skew), np.where(alone, UNKNOWN, last),
    )  # fmt: skip
