"""The sentence in which the what-ifs of a recording end."""

from __future__ import annotations

from collections.abc import Sequence

from ..words import between, duration
from .holding import HELD
from .result import Economics, Figure, Outcome, Refusal

MINOR = 0.01
"""Gains below this share of what a token costs are not named."""

NOTHING = "Nothing that was asked can be said of this recording."


def summary(now: Economics, shown: Outcome | None, left_out: Sequence[Refusal] = ()) -> str:
    """What was asked for in words: the step and what a token takes then, each as far as it is known."""
    if shown is None:
        return NOTHING
    reasons = dict.fromkeys(one.reason for one in left_out)
    without = (f"{', '.join(one.name for one in left_out if one.reason == reason)} ({reason})" for reason in reasons)
    return _said(now, shown) + (f" Left out: {'; '.join(without)}." if left_out else "")


def surest(now: Economics, alone: Sequence[Outcome]) -> str:
    """The lever that is sure to gain most, in words; bounds promise nothing."""
    best = max((one for one in alone if not one.bound), key=lambda one: gain(now, one), default=None)
    if best is None:
        return NOTHING
    if gain(now, best) < MINOR:
        return f"Nothing that was tried is sure to make a token cheaper by {100 * MINOR:g} % or more."
    return _said(now, best)


def gain(now: Economics, outcome: Outcome) -> float:
    """By which share a token becomes cheaper, at least; where its cost is not known, the step shorter."""
    return 1 - outcome.then.cost_us / now.cost_us


def _said(now: Economics, outcome: Outcome) -> str:
    then, bound = outcome.then, outcome.bound
    step = Figure(then.step_ns.low, then.step_ns.usual, then.step_ns.high)
    parts = [f"the step {_instead(step, now.step_ns.usual, bound)}"]
    before, after = now.us_per_token, then.us_per_token
    if before and after:
        cost = _instead(Figure(after.low * 1e3, after.usual * 1e3, after.high * 1e3), before.usual * 1e3, bound)
        parts.append(f"a token {cost}")
    far = f" ({outcome.beyond})" if outcome.beyond else ""
    text = f"With {outcome.name}{far} {', and '.join(parts)}"
    if now.speedup and then.speedup:
        text += f": {_times(then.speedup, bound)} plain decoding's rate, now {now.speedup.usual:.2f}"
    return f"{text}{_reserved(outcome)}."


def _reserved(outcome: Outcome) -> str:
    """With what reserve all that is said."""
    bound = "; a bound, no prediction" if outcome.bound else ""
    held = f"; {HELD}" if outcome.held_back else ""
    return bound + held + (f"; not in the range: {outcome.not_in_bounds}" if outcome.not_in_bounds else "")


def _instead(then: Figure, now: float, bound: bool) -> str:
    """What something takes then, from the least to the most, and now, in ns."""
    low, usual, high, before = (duration(ns) for ns in (then.low, then.usual, then.high, now))
    if low == high == before:
        return f"takes {before} as now"
    if low == high:
        return f"takes {usual} instead of {before}"
    if bound:
        worst = "now and at worst" if high == before else f"now, and {high} at worst"
        return f"takes {low} at best, instead of {before} {worst}"
    return f"takes {usual} ({between(low, high)}) {'as now' if usual == before else f'instead of {before}'}"


def _times(rate: Figure, bound: bool) -> str:
    low, usual, high = (f"{one:.2f}" for one in (rate.low, rate.usual, rate.high))
    if low == high:
        return f"{usual} times"
    return f"at best {high} times" if bound else f"{usual} ({between(low, high)}) times"
