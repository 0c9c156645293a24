"""Collectives of a step whose transfer takes many times as long as that of the others of their kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I64, UNKNOWN, Bools

from .attribution import Attribution
from .collectives import message_sizes
from .matching import MatchedCollectives, place_in_step
from .vocabulary import PART, PHASES
from .words import counted, duration, in_phase

FAR = 3
"""So many times the median transfer of its kind makes a collective a slow one."""

FEW, MOST = 0.1, 0.3
"""Slow ones are told where at most such a share of collectives takes at least such a share of the transfer."""


@dataclass(frozen=True, slots=True)
class SlowCollectives:
    """The slow collectives of one kind: how many a step has, their exposed transfer, and what is usual."""

    kind: str
    phase: str
    per_step: int
    ns_per_step: int
    usual_ns: int
    bytes: int | None

    @property
    def text(self) -> str:
        """``3.00 ms of it for 1 all_reduce in verify (64 MiB), where others take 10.0 µs each``."""
        size = f" ({self.bytes / 2**20:,.3g} MiB)" if self.bytes is not None else ""
        which = f"{counted(self.per_step, self.kind)} {in_phase(self.phase)}{size}"
        return f"{duration(self.ns_per_step)} of it for {which}, where others take {duration(self.usual_ns)} each"


def slow_collectives(
    attribution: Attribution, matched: MatchedCollectives, device: int, steps: int
) -> SlowCollectives | None:
    """The slow ones of ``device`` in one of ``steps``, if they matter; of several kinds the dearest."""
    own = matched.instances[device]
    paired = np.flatnonzero(own.skew != UNKNOWN)
    transfer, row = (own.end - own.start - own.skew)[paired], own.row[paired]
    place, at = np.unique(place_in_step(matched.keys[device][paired]), return_inverse=True)
    typical = np.array([np.median(transfer[at == number]) for number in range(len(place))])
    rule = np.zeros(len(place), np.int64)
    rule[at] = attribution.collective[row]
    usual = {code: float(np.median(typical[rule == code])) for code in np.unique(rule).tolist()}
    slow = typical > FAR * np.array([usual[code] for code in rule.tolist()])
    timeline = attribution.devices[device]
    owner, segment, length = timeline.within(own.end[paired] - transfer, own.end[paired])
    alone = np.where(timeline.part[segment] == PART["collective"], length, 0)
    exposed = np.bincount(owner, weights=alone, minlength=len(paired)).astype(np.int64)
    if not 0 < slow.sum() <= FEW * len(place) or exposed[slow[at]].sum() < max(MOST * exposed.sum(), 1):
        return None
    kinds = [code for code in usual if np.any(slow & (rule == code))]
    found = (_of_kind(attribution, row, (slow & (rule == code))[at], exposed, usual[code], steps) for code in kinds)
    return max(found, key=lambda one: one.ns_per_step)


def _of_kind(
    attribution: Attribution, row: I64, these: Bools, exposed: I64, usual: float, steps: int
) -> SlowCollectives:
    sizes = np.unique(message_sizes(attribution)[row[these]])
    phases = np.bincount(attribution.phase[row[these]])
    return SlowCollectives(
        kind=attribution.collective_rules[int(attribution.collective[row[these][0]])].value,
        phase=PHASES[int(np.argmax(phases))],
        per_step=max(round(int(these.sum()) / steps), 1),
        ns_per_step=round(int(exposed[these].sum()) / steps),
        usual_ns=round(usual),
        bytes=int(sizes[0]) if len(sizes) == 1 and sizes[0] >= 0 else None,
    )
