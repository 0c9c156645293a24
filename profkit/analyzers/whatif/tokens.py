"""How the time of a phase's ops grows with the tokens of a step, from recordings at several concurrencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.traces import F64

from ..vocabulary import CLASS, PHASE
from ..words import counted
from .case import Case
from .changes import RefusedError

FARTHEST = 4
"""Beyond so many times the tokens of any recording nothing is said: kernels and their limits are other ones there."""

SCALED = ("draft", "verify", "accept")
"""Phases that work on every token of a block; what is appended to the KV cache are accepted tokens only."""


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """What the ops of each phase and class take relative to the recording; shape (phases, classes)."""

    low: F64
    usual: F64
    high: F64


def factors_at(tokens: float, case: Case, series: Sequence[Case]) -> Factors:
    """The factors of ``case`` for a step of ``tokens`` tokens; ``series`` are recordings by tokens, itself included.

    Usually a class takes the time that lies on the line between the recordings at fewer and at more tokens, or on the
    next line prolonged. The bounds are as far from it as the power law through the same two recordings, but never
    beyond no change and proportion to tokens. Attention goes by requests and their context, hardly by block: usually it
    does not change, at most it is in proportion. With one recording, the bounds are no change and proportion, and the
    usual figure is their middle.
    """
    ratio = tokens / (case.tokens or 1)
    least, most = min(1.0, ratio), max(1.0, ratio)
    shape = case.per_step.shape
    low, usual, high = np.full(shape, least), np.full(shape, (least + most) / 2), np.full(shape, most)
    if len(series) > 1:
        straight, power = _line(tokens, series), _power(tokens, series)
        with np.errstate(divide="ignore", invalid="ignore"):
            straight, power = (np.where(case.per_step > 0, times / case.per_step, 1.0) for times in (straight, power))
        usual, apart = np.clip(straight, least, most), np.abs(power - straight)
        low, high = np.clip(usual - apart, least, most), np.clip(usual + apart, least, most)
    attention = CLASS["attention"]
    low[:, attention], usual[:, attention], high[:, attention] = least, 1.0, most
    for table in (low, usual, high):
        table[[code for name, code in PHASE.items() if name not in SCALED]] = 1.0
    return Factors(low, usual, high)


def beyond(tokens: float, series: Sequence[Case]) -> str:
    """How far ``tokens`` lie outside of what was recorded, in words; empty where they do not."""
    recorded, wanted = [_count(one) for one in series], counted(round(tokens), "token")
    if min(recorded) <= tokens <= max(recorded):
        return ""
    if tokens < min(recorded):
        return f"below the recordings: {wanted}, at least {min(recorded):,} recorded"
    return f"beyond the recordings: {wanted}, at most {max(recorded):,} recorded"


def refuse_far(tokens: float, series: Sequence[Case]) -> None:
    """Raise ``RefusedError`` where ``tokens`` are too many for any recording to tell."""
    if tokens > FARTHEST * max(_count(one) for one in series):
        raise RefusedError(f"{beyond(tokens, series)}, and beyond {FARTHEST} times as many nothing can be told")


def times_at(tokens: float, series: Sequence[Case]) -> F64:
    """The time in ns of each phase and class at ``tokens`` tokens, on the line between recordings."""
    return _line(tokens, series)


def _line(tokens: float, series: Sequence[Case]) -> F64:
    before, after = _around(tokens, series)
    place = (tokens - _count(before)) / (_count(after) - _count(before))
    found: F64 = np.maximum(before.per_step + place * (after.per_step - before.per_step), 0)
    return found


def _power(tokens: float, series: Sequence[Case]) -> F64:
    before, after = _around(tokens, series)
    place = np.log(tokens / _count(before)) / np.log(_count(after) / _count(before))
    known = (before.per_step > 0) & (after.per_step > 0)
    first, last = (np.where(known, one.per_step, 1.0) for one in (before, after))
    return np.where(known, first * (last / first) ** place, _line(tokens, series))


def _around(tokens: float, series: Sequence[Case]) -> tuple[Case, Case]:
    """The two neighbours of ``tokens`` among recordings, or the two nearest ones beyond the ends."""
    place = int(np.searchsorted([_count(one) for one in series], tokens))
    place = min(max(place, 1), len(series) - 1)
    return series[place - 1], series[place]


def _count(case: Case) -> int:
    return case.tokens or 1
