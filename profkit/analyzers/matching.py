"""Matching the collectives of ranks: which instances are one collective, and how long each waited for the last rank.

Instance i of a kind and communicator in a step is the same collective on every rank. Where ranks disagree on how
many there are, the figures are unknown: a mismatch is reported, never guessed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from profkit.traces import I64, UNKNOWN, Index

from .attribution import Attribution
from .clocks import Pair, clock_offsets, partners, why_impossible
from .collective_counts import common_steps, counts_per_step, differing, edge_steps, mismatches_of, steps_cut_off
from .collective_groups import Groups
from .collective_instances import Instances, instances_of
from .ranks import missing_ranks, step_numbers


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
    found = {device: instances_of(attribution, device, numbers[device]) for device in attribution.devices}
    if len(found) < 2:
        return MatchedCollectives(found, unpaired=sum(len(i.row) for i in found.values()))
    recorded = common_steps(numbers)
    groups = Groups.of(attribution)
    codes = {device: groups.code[instances.row] for device, instances in found.items()}
    counts = [counts_per_step(found, codes, groups, code, recorded) for code in range(len(groups.rule))]
    cut = steps_cut_off(attribution, numbers, counts, recorded)
    common = recorded[~cut]
    counts = [{device: count[~cut] for device, count in one.items()} for one in counts]
    mismatches = [
        text for code, count in enumerate(counts) for text in mismatches_of(attribution, groups, code, count, common)
    ]
    keys = {
        device: np.where(np.isin(instances.step, common), _keys(instances.step, codes[device]), UNKNOWN)
        for device, instances in found.items()
    }
    differ = common[np.any([differing(count) for count in counts if count], axis=0)] if mismatches else common[:0]
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
        edge_steps=edge_steps(numbers, recorded) + int(cut.sum()),
        clock_offset=offset,
        keys=keys,
        missing_ranks=missing_ranks(attribution),
    )


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
