"""Small array functions that several questions share; each takes time linear in its arrays, but for sorting."""

from __future__ import annotations

import numpy as np

from profkit.traces import I32, I64, Index


def distinct(values: I64) -> I64:
    """The distinct values, ascending: ``np.unique`` without its hashing, which is slow where most are distinct."""
    ordered = np.sort(values, kind="stable")
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def occurring(codes: I32 | I64) -> Index:
    """The distinct values, ascending, of codes: small integers from 0 on."""
    return np.flatnonzero(np.bincount(codes))


def expand(first: Index, behind: Index) -> tuple[Index, Index]:
    """All positions of n ranges ``[first, behind)``, one range after the other, and the range that each is of."""
    count = np.maximum(behind - first, 0)
    owner = np.repeat(np.arange(len(count)), count)
    return owner, np.arange(len(owner)) + np.repeat(first - np.cumsum(count) + count, count)
