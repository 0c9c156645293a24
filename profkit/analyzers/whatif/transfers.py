"""Transfers as a latency and bytes over a bandwidth. Recordings seldom hold bytes; but bytes go with tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profkit.traces import F64

from ..vocabulary import CLASS, PHASES
from .case import Case


@dataclass(frozen=True, slots=True, eq=False)
class LatencyShare:
    """Which share of a phase's transfer does not depend on bytes; one of each per phase."""

    low: F64
    usual: F64
    high: F64
    recordings: int


def latency_share(case: Case, series: Sequence[Case]) -> LatencyShare:
    """The share of latency in the transfers of ``case``; ``series`` are recordings by tokens, itself included.

    A line through two recordings leaves the latency at no tokens. Usually it is that of the two with the fewest tokens,
    where latency tells most, and never more than the whole transfer; lines through other neighbours are the bounds,
    since libraries change protocols with the size. With one recording, all or nothing is latency.
    """
    transfer = case.per_step[:, CLASS["collective"]]
    if len(series) < 2:
        return LatencyShare(np.zeros(len(PHASES)), np.full(len(PHASES), 0.5), np.ones(len(PHASES)), 1)
    shares = np.array([_share(transfer, *pair) for pair in pairwise(series)])
    return LatencyShare(shares.min(axis=0), shares[0], shares.max(axis=0), len(series))


def _share(transfer: F64, fewer: Case, more: Case) -> F64:
    before, after = (one.per_step[:, CLASS["collective"]] for one in (fewer, more))
    tokens = fewer.tokens or 1, more.tokens or 1
    slope = np.maximum((after - before) / (tokens[1] - tokens[0]), 0)
    latency = np.clip(before - slope * tokens[0], 0, transfer)
    with np.errstate(divide="ignore", invalid="ignore"):
        share: F64 = np.where(transfer > 0, latency / transfer, 0)
    return share
