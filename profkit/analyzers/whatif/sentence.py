"""The sentence in which the what-ifs of a recording end."""

from __future__ import annotations

from collections.abc import Sequence

from ..words import duration, share
from .result import Economics, Outcome

MINOR = 0.01
"""Gains below this share of what a token costs are not named."""


def summary(now: Economics, alone: Sequence[Outcome], combined: Outcome | None) -> str:
    """The combination, or the lever that gains most, in words."""
    best = combined or max((one for one in alone if not one.bound), key=lambda one: gain(now, one), default=None)
    if best is None:
        return "Nothing that was asked can be said of this recording."
    then = best.then.step_ns
    if best is not combined and gain(now, best) < MINOR:
        return f"No lever makes a token cheaper by {share(MINOR, 1)} or more."
    said = []
    if duration(then.usual) != duration(now.step_ns.usual):
        bounds = f"{duration(then.low)} to {duration(then.high)}"
        said.append(f"the step takes {duration(then.usual)} instead of {duration(now.step_ns.usual)} ({bounds})")
    before, after = now.us_per_token, best.then.us_per_token
    if before and after and _micros(after.usual) != _micros(before.usual):
        said.append(f"a token takes {_micros(after.usual)} instead of {_micros(before.usual)}")
    text = f"With {best.name} {' and '.join(said) or 'the step stays as it is'}"
    if now.speedup and best.then.speedup:
        text += f": {best.then.speedup.usual:.2f} times plain decoding's rate, now {now.speedup.usual:.2f}"
    return f"{text}."


def gain(now: Economics, outcome: Outcome) -> float:
    """By which share a token becomes cheaper, at least; where its cost is not known, the step shorter."""
    return 1 - outcome.then.cost_us / now.cost_us


def _micros(us: float) -> str:
    return duration(us * 1e3)
