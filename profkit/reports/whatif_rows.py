"""The rows of a table of what-ifs: figures with their bounds, and the marks that say with what reserve they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from profkit.analyzers.whatif.result import Economics, Figure, OnlyTogether, Outcome, Span
from profkit.analyzers.words import between, duration, listed, share

NOTHING = "–"
NOT_KNOWN = "not known"
AS_NOW = 0.0005
"""Changes below this share are none."""

COLUMNS = ("lever", "step", "change", "bounds", "per token", "tokens/s", "× plain", "pays above")

MARKS = MappingProxyType({"bound": "*", "held": "†", "beyond": "‡", "open": "?"})
"""What stands behind a lever's name, and again in front of the line below the table that explains it."""


def row_now(name: str, now: Economics) -> list[str]:
    """The recording as it is."""
    return [name, duration(now.step_ns.usual), "", "", _cost(now), *_middles(now)]


def row_of(name: str, outcome: Outcome, now: Economics) -> list[str]:
    """A lever, or several, called ``name``: of a bound only from where to where."""
    then, marked = outcome.then, " ".join([name, *marks_of(outcome)])
    if outcome.bound:
        return [marked, "", _range_of_change(then.step_ns, now), _bounds(outcome), *_ranges(then)]
    step = then.step_ns.usual
    return [
        marked,
        duration(step),
        _change(step / now.step_ns.usual - 1),
        _bounds(outcome),
        _cost(then),
        *_middles(then),
    ]


def marks_of(outcome: Outcome) -> list[str]:
    """The marks of its row."""
    reserves = outcome.bound, outcome.held_back, outcome.beyond, outcome.not_in_bounds
    return [mark for mark, reserve in zip(MARKS.values(), reserves, strict=True) if reserve]


def notes_on(outcomes: Sequence[Outcome], only_together: Sequence[OnlyTogether] = ()) -> list[str]:
    """What the marks of these rows mean, each in one line; ``only_together`` are levers without a row of their own."""
    bounds = dict.fromkeys(name for one in outcomes for name in one.bound_by)
    found = (
        [f"{MARKS['bound']} at best and at worst: {listed(list(bounds))} is a bound, no prediction"] if bounds else []
    )
    found += [f"{MARKS['held']} {said}" for said in dict.fromkeys(one.held_back for one in outcomes) if said]
    levers: list[Outcome | OnlyTogether] = [one for one in outcomes if len(one.levers) == 1]
    levers += only_together
    found += [f"{MARKS['beyond']} {one.name}: {one.beyond}" for one in levers if one.beyond]
    open_ = [one for one in levers if one.not_in_bounds]
    return found + [f"{MARKS['open']} {one.name}: {one.not_in_bounds}; not in the bounds" for one in open_]


def micros(us: float) -> str:
    """Microseconds with a unit and three figures."""
    return duration(us * 1e3)


def _middles(then: Economics) -> list[str]:
    return [
        f"{then.tokens_per_s.usual:,.0f}" if then.tokens_per_s else NOTHING,
        *(f"{figure.usual:.2f}" if figure else NOTHING for figure in (then.speedup, then.break_even_accept_len)),
    ]


def _ranges(then: Economics) -> list[str]:
    """The derived figures from the least to the most."""
    return [
        _range(then.us_per_token, micros),
        _range(then.tokens_per_s, "{:,.0f}".format),
        *(_range(figure, "{:.2f}".format) for figure in (then.speedup, then.break_even_accept_len)),
    ]


def _range(figure: Figure | None, written: Callable[[float], str]) -> str:
    return _from_to(written(figure.low), written(figure.high)) if figure else NOTHING


def _from_to(low: str, high: str) -> str:
    return low if low == high else between(low, high)


def _cost(then: Economics) -> str:
    """What a token takes; from the least to the most where the accept length is not known."""
    if then.us_per_token is None or then.accept_len is None:
        return NOTHING
    if then.accept_len.low == then.accept_len.high:
        return micros(then.us_per_token.usual)
    return _from_to(micros(then.us_per_token.low), micros(then.us_per_token.high))


def _bounds(outcome: Outcome) -> str:
    """Both bounds; where they are one, nothing, unless what is not known would set them apart."""
    low, high = duration(outcome.then.step_ns.low), duration(outcome.then.step_ns.high)
    if low != high:
        return between(low, high)
    return NOT_KNOWN if outcome.not_in_bounds else low if outcome.bound else NOTHING


def _range_of_change(step: Span, now: Economics) -> str:
    low, high = (_change(ns / now.step_ns.usual - 1) for ns in (step.low, step.high))
    return low if low == high else f"{low.removesuffix(' %')} to {high}".replace("as now", "0 %", 1)


def _change(ratio: float) -> str:
    return "as now" if abs(ratio) < AS_NOW else share(ratio, signed=True)
