"""Transfers as a latency and bytes over a bandwidth. Recordings seldom hold bytes; but bytes go with tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profkit.traces import F64

from ..vocabulary import CLASS, PHASES
from .case import Case

Ratios = tuple[float, float, float]
"""Lowest, usual and highest."""

Factors = tuple[F64, F64, F64]
"""Lowest, usual and highest, per phase."""


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """What latency and bytes each take of a phase's transfer, relative to the recording; shape (ways, phases).

    Each way is one of all that may be so, the first of them the usual one. ``before`` is the whole that a change found.
    """

    latency: F64
    size: F64
    before: F64

    def scaled(self, latency: Ratios, size: Ratios) -> Transfers:
        """Either part takes so many times as long."""
        return self._each([self.latency * late for late in _usual_first(latency)], size)

    def with_latency(self, part: F64, size: Ratios) -> Transfers:
        """Latency takes ``part`` per phase, and bytes take so many times as long."""
        return self._each([np.broadcast_to(part, self.latency.shape)], size)

    def _each(self, latencies: Sequence[F64], size: Ratios) -> Transfers:
        ways = [(late, self.size * wide, self.before) for late in latencies for wide in _usual_first(size)]
        return Transfers(*(np.concatenate(part) for part in zip(*ways, strict=True)))

    @property
    def changed(self) -> Transfers:
        """The same as what the next change finds."""
        return Transfers(self.latency, self.size, self.latency + self.size)

    @property
    def factors(self) -> Factors:
        """What a transfer takes relative to what the change found: least, usually, and most of all ways."""
        with np.errstate(divide="ignore", invalid="ignore"):
            every = np.where(self.before > 0, (self.latency + self.size) / self.before, 1.0)
        return every.min(axis=0), every[0], every.max(axis=0)


def transfers_of(case: Case, series: Sequence[Case]) -> Transfers:
    """Latency and bytes in the transfers of ``case``; ``series`` are recordings by tokens, itself included.

    A line through two recordings leaves the latency at no tokens. Usually it is that of the two with the fewest tokens,
    where latency tells most, and never more than the whole transfer; lines through other neighbours are the bounds,
    since libraries change protocols with the size. With one recording, all or nothing is latency.
    """
    transfer = case.per_step[:, CLASS["collective"]]
    if len(series) < 2:
        latency = np.outer([0.5, 0.0, 1.0], np.ones(len(PHASES)))
    else:
        shares = np.array([_share(transfer, *pair) for pair in pairwise(series)])
        latency = np.array([shares[0], shares.min(axis=0), shares.max(axis=0)])
    return Transfers(latency, 1 - latency, np.ones_like(latency))


def _usual_first(ratios: Ratios) -> Ratios:
    low, usual, high = ratios
    return usual, low, high


def _share(transfer: F64, fewer: Case, more: Case) -> F64:
    before, after = (one.per_step[:, CLASS["collective"]] for one in (fewer, more))
    tokens = fewer.tokens or 1, more.tokens or 1
    slope = np.maximum((after - before) / (tokens[1] - tokens[0]), 0)
    latency = np.clip(before - slope * tokens[0], 0, transfer)
    with np.errstate(divide="ignore", invalid="ignore"):
        share: F64 = np.where(transfer > 0, latency / transfer, 0)
    return share
