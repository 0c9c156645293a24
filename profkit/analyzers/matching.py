"""Matching the collectives of ranks: which instances are one collective, and how long each waited for the last rank.

Instance i of a kind and communicator in a step is the same collective on every rank. Where ranks disagree on how
many there are, the figures are unknown: a mismatch is reported, never guessed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from profkit.traces import I64, UNKNOWN, Bools, Index

from .arrays import occurring
from .attribution import Attribution
from .clocks import Pair, clock_offsets, partners, why_impossible
from .ranks import missing_ranks, step_numbers
from .vocabulary import CLASS


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
    ``impossible`` says why the matched ones cannot be the same collectives, if so; ``missing_ranks`` which ranks are
    not recorded, whose part in the waiting then is unknown.
    """

    instances: dict[int, Instances]
    mismatches: tuple[str, ...] = ()
    impossible: str | None = None
    unpaired: int = 0
    edge_steps: int = 0
    clock_offset: dict[int, int] = field(default_factory=dict)
    keys: dict[int, I64] = field(default_factory=dict)
    missing_ranks: str | None = None

    @property
    def known(self) -> bool:
        """Whether skew can be told from transfer: not where no collective at all has a partner."""
        count = sum(len(instances.row) for instances in self.instances.values())
        wrong = self.mismatches or self.impossible
        return len(self.instances) > 1 and not wrong and (self.unpaired < count or not count)


def match_collectives(attribution: Attribution) -> MatchedCollectives:
    """Match the collectives of decode steps over all devices."""
    numbers = step_numbers(attribution)
    found = {device: _instances(attribution, device, numbers[device]) for device in attribution.devices}
    if len(found) < 2:
        return MatchedCollectives(found, unpaired=sum(len(i.row) for i in found.values()))
    recorded = _common_steps(numbers)
    groups = Groups.of(attribution)
    codes = {device: groups.code[instances.row] for device, instances in found.items()}
    counts = [_counts(found, codes, groups, code, recorded) for code in range(len(groups.rule))]
    cut = _cut_steps(attribution, numbers, counts, recorded)
    common = recorded[~cut]
    counts = [{device: count[~cut] for device, count in one.items()} for one in counts]
    mismatches = [
        text for code, count in enumerate(counts) for text in _mismatches(attribution, groups, code, count, common)
    ]
    keys = {
        device: np.where(np.isin(instances.step, common), _keys(instances.step, codes[device]), UNKNOWN)
        for device, instances in found.items()
    }
    differ = common[np.any([_differ(count) for count in counts if count], axis=0)] if mismatches else common[:0]
    # Clocks are compared where nothing is missing: elsewhere the order says nothing.
    alike = {d: np.where(np.isin(found[d].step, differ), UNKNOWN, own) for d, own in keys.items()}
    pairs = pairs_of(found, alike)
    offset = clock_offsets(list(found), pairs)
    matched = {device: _matched(device, found, keys, offset) for device in found}
    return MatchedCollectives(
        instances=matched,
        mismatches=tuple(mismatches),
        impossible=None if mismatches else why_impossible(pairs, offset),
        unpaired=sum(int(np.count_nonzero(m.skew == UNKNOWN)) for m in matched.values()),
        edge_steps=_edge_steps(numbers, recorded) + int(cut.sum()),
        clock_offset=offset,
        keys=keys,
        missing_ranks=missing_ranks(attribution),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """What is matched apart: a code per op, ``UNKNOWN`` for what is no collective or has no partner.

    ``rule`` and ``communicator`` (a string id, or ``UNKNOWN``) are those of each code.
    """

    code: I64
    rule: I64
    communicator: I64

    @classmethod
    def of(cls, attribution: Attribution) -> Groups:
        """The groups of the collectives of a trace, by rule and communicator."""
        paired = np.array([rule.paired for rule in attribution.collective_rules] or [False])
        rule = attribution.collective
        rows = np.flatnonzero((rule >= 0) & paired[np.maximum(rule, 0)])
        many = len(attribution.trace.strings) + 1
        both = rule[rows].astype(np.int64) * many + communicators(attribution)[rows] + 1
        distinct, place = np.unique(both, return_inverse=True)
        code = np.full(len(rule), UNKNOWN, np.int64)
        code[rows] = place
        return cls(code, distinct // many, distinct % many - 1)


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


def _edge_steps(numbers: dict[int, I64], common: I64) -> int:
    """How many steps the recording of one device has before the first or behind the last one of another's."""
    steps = [own for number in numbers.values() if len(own := occurring(number[number >= 0]))]
    outside = [own[(own < other[0]) | (own > other[-1])] for own in steps for other in steps]
    return len(np.setdiff1d(np.concatenate(outside), common)) if outside else 0


def _counts(
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


def _differ(counts: dict[int, I64]) -> Bools:
    table = np.stack(list(counts.values()))
    differ: Bools = (table != table[0]).any(axis=0)
    return differ


def _cut_steps(attribution: Attribution, numbers: dict[int, I64], counts: list[dict[int, I64]], common: I64) -> Bools:
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
    others_differ = any(np.any(_differ(one)[~cut]) for one in counts if one)
    return cut if not cut.all() and not others_differ else np.zeros(len(common), np.bool_)


def _mismatches(attribution: Attribution, groups: Groups, code: int, counts: dict[int, I64], common: I64) -> list[str]:
    """Where the devices that take part disagree on how many collectives of one group a step has."""
    wrong = np.flatnonzero(_differ(counts)) if counts and len(common) else np.empty(0, np.intp)
    if not len(wrong):
        return []
    kind = attribution.collective_rules[int(groups.rule[code])].value
    first = wrong[0]
    seen = ", ".join(f"{count[first]} on device {device}" for device, count in counts.items())
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


def place_in_step(key: I64) -> I64:
    """Kind and place of collectives with these keys: the same number is the same place in every step."""
    return key & ((1 << 42) - 1)


def told_steps(own: Instances, steps: int) -> int:
    """Of the ``steps`` of a device, those whose waiting is told from transfer: not those without any partner."""
    alone = occurring(own.step[own.skew == UNKNOWN])
    paired = occurring(own.step[own.skew != UNKNOWN])
    return max(steps - len(np.setdiff1d(alone, paired)), 1)


def partner_positions(matched: MatchedCollectives, device: int, other: int) -> Index:
    """For each instance of ``device``, the position of the same collective among those of ``other``, or -1."""
    return partners({other: matched.keys[other]}, matched.keys[device])[other]


def pairs_of(found: dict[int, Instances], keys: dict[int, I64]) -> dict[tuple[int, int], Pair]:
    """The instances that each two devices have in common, in order."""
    pairs = {}
    for first, second in combinations(found, 2):
        there = partners({second: keys[second]}, keys[first])[second]
        here = np.flatnonzero(there >= 0)
        a, b = found[first], found[second]
        pairs[first, second] = Pair(a.start[here], a.end[here], b.start[there[here]], b.end[there[here]])
    return pairs


def _matched(device: int, found: dict[int, Instances], keys: dict[int, I64], offset: dict[int, int]) -> Instances:
    own = found[device]
    last_start = own.start - offset[device]
    last = np.full(len(own.row), device, np.int64)
    count = np.zeros(len(own.row), np.int64)
    for other, place in partners(keys, keys[device]).items():
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
        count = count + has
    alone = count == 0
    skew = np.minimum(last_start - (own.start - offset[device]), own.end - own.start)
    return Instances(
        own.row, own.step, own.start, own.end,
        np.where(alone, UNKNOWN, skew), np.where(alone, UNKNOWN, last),
    )  # fmt: skip
