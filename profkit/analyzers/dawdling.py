"""How much longer than usual a host takes from a blocking call to a launch behind it.

An engine may block in every step without its GPU running dry. Where the GPU does so only in steps in which the host
was also much slower than usual behind the same call, its slowness is at fault and not the call.
"""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, UNKNOWN, Index

from .arrays import distinct
from .attribution import Attribution
from .owners import pair_keys
from .steps import spans_at

USUAL = 25
"""The percentile of the times behind the same call that counts as usual: a host may be late in many steps."""

FAR = 2
"""So many times as long as usual is more than noise."""


def dawdled(attribution: Attribution, calls: Index, call: Index, launch: Index) -> I64:
    """For each blocking ``call`` and a ``launch`` behind it on its thread, the time between them beyond the usual one.

    All are rows of ``trace.launches``; ``calls`` are all blocking ones. Zero where it is about as long as usual.
    """
    launches = attribution.trace.launches
    working = distinct(attribution.launch[attribution.launch >= 0])
    asked, blocked, worked = pair_keys(*((launches.pid[r], launches.tid[r]) for r in (call, calls, working)))
    longer = np.zeros(len(call), np.int64)
    for thread in distinct(asked):
        mine = np.flatnonzero(asked == thread)
        pace = _Pace(attribution, calls[blocked == thread], working[worked == thread])
        longer[mine] = pace.beyond_usual(call[mine], launch[mine])
    return longer


class _Pace:
    """The blocking calls and the launches of one thread, in order of start."""

    def __init__(self, attribution: Attribution, calls: Index, working: Index) -> None:
        launches = attribution.trace.launches
        self.calls = calls[np.argsort(launches.start[calls], kind="stable")]
        self.working = working[np.argsort(launches.start[working], kind="stable")]
        self.begin, self.launched = launches.start, launches.start[self.working]
        self.done = launches.end[self.calls]
        self.next_call = np.append(launches.start[self.calls][1:], np.iinfo(np.int64).max)
        self.behind = np.searchsorted(self.launched, self.done, "left")
        self.site = self._sites(attribution)
        self.name = _first_names(attribution)[self.working]

    def _sites(self, attribution: Attribution) -> I64:
        """What tells calls at one place of the code from others: the API, and the phase in which it is called."""
        launches, labels = attribution.trace.launches, attribution.plan.labels
        at = launches.pid[self.calls], launches.tid[self.calls], launches.start[self.calls]
        found = spans_at(labels.pid, labels.tid, labels.start, labels.end, *at)
        phase = np.where(found >= 0, np.append(labels.phase, UNKNOWN)[found], UNKNOWN)
        site: I64 = launches.api[self.calls].astype(np.int64) * 1000 + phase
        return site

    def beyond_usual(self, call: Index, launch: Index) -> I64:
        """Both are rows of ``trace.launches``."""
        place = np.searchsorted(self.begin[self.calls], self.begin[call], "left")
        target = np.searchsorted(self.launched, self.begin[launch], "left")
        taken = self.begin[launch] - self.done[place]
        # Launches that are alike: as many launches behind a call of the same site, and of the same name.
        kinds = np.stack([self.site[place], target - self.behind[place], self.name[target]])
        alike, which = np.unique(kinds, axis=1, return_inverse=True)
        usual = np.array([self._usual(*kind) for kind in alike.T.tolist()], np.int64)[which.reshape(-1)]
        longer: I64 = np.where(taken > FAR * usual, taken - usual, 0)
        return longer

    def _usual(self, site: int, behind: int, name: int) -> int:
        """The usual time from a call of ``site`` until the launch of ``name`` so many launches behind it."""
        peer = np.flatnonzero(self.site == site)
        there = self.behind[peer] + behind
        inside = (there >= 0) & (there < len(self.working))
        peer, there = peer[inside], there[inside]
        alike = (self.launched[there] < self.next_call[peer]) & (self.name[there] == name)
        taken = (self.launched[there] - self.done[peer])[alike]
        return int(np.percentile(taken, USUAL)) if len(taken) else np.iinfo(np.int64).max // FAR


def _first_names(attribution: Attribution) -> I64:
    """The name (a string id) of the first op of each row of ``trace.launches``, or ``UNKNOWN``."""
    ops = attribution.trace.ops
    name = np.full(len(attribution.trace.launches), UNKNOWN, np.int64)
    rows = np.flatnonzero(attribution.launch >= 0)[::-1]
    name[attribution.launch[rows]] = ops.name[rows]
    return name
