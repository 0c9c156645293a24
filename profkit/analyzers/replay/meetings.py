"""Where the hosts of ranks wait for each other: engines hand work to their ranks on the CPU, out of the GPU's sight.

Such a meeting is a pause between two host calls, once a step, that no rank leaves before the last one has come to it,
and that takes the last one about as long in every step.
"""

from __future__ import annotations

import numpy as np

from profkit.traces import I64, Bools, Index

from ..arrays import distinct
from .model import NONE, begins

ALMOST_ALL = 0.95
STEADY = 0.25
"""How much of the variation of the pauses may be left when counted from the last rank's coming."""


def meetings_of(thread: I64, step: I64, inside: Bools, start: I64, end: I64) -> tuple[I64, I64]:
    """The meeting that each call begins with, or ``NONE``, and how long it begins after that or after the last call.

    ``step`` is the decode step of each call, ``inside`` whether it lies in it. Looked for in the longest pause between
    two steps of each thread.
    """
    came = np.concatenate([[0], end])[: len(end)]
    first = begins(thread)
    before = np.where(first, 0, start - came)
    meeting = np.full(len(start), NONE, np.int64)
    places = _longest_pauses(thread, step, inside, first, before)
    stepping = distinct(thread[inside])
    together = [number for number, calls in places.items() if len(calls) == len(stepping) > 1]
    if not together:
        return meeting, before
    calls = np.array([places[number] for number in together])
    last = came[calls].max(axis=1, keepdims=True)
    since = start[calls] - last
    # Ranks that only happen to leave after each other would not do so by as much in every step.
    held = np.all(since >= 0, axis=1).mean() >= ALMOST_ALL
    steady = since.std(axis=0).max() < STEADY * before[calls].std(axis=0).max()
    if not held or not steady:
        return meeting, before
    kept = np.flatnonzero(np.all(since >= 0, axis=1))
    meeting[calls[kept]] = np.arange(len(kept))[:, None]
    before[calls[kept]] = since[kept]
    return meeting, before


def _longest_pauses(thread: I64, step: I64, inside: Bools, first: Bools, before: I64) -> dict[int, list[int]]:
    """Per step boundary, the call of each thread behind its longest pause since the last call inside the step."""
    enters = np.concatenate([step[:1] < 0, step[1:] != step[:-1]])
    between: Index = np.flatnonzero(~first & (step >= 0) & (~inside | enters))
    # A boundary counts as that of the step before it, also at the first call inside the next one.
    number = np.where(inside[between], step[between] - 1, step[between])
    order = np.lexsort((before[between], number, thread[between]))
    ordered = between[order]
    key = thread[ordered] * (int(step.max(initial=0)) + 2) + number[order] + 1
    longest = np.concatenate([begins(key)[1:], [True]]) if len(key) else np.empty(0, np.bool_)
    places: dict[int, list[int]] = {}
    for call, of_step in zip(ordered[longest].tolist(), number[order][longest].tolist(), strict=True):
        places.setdefault(of_step, []).append(call)
    return places
