"""Figures as the page writes them: with units, spaces that do not break, and ``unknown`` where there is none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from profkit.analyzers.words import duration, listed, share

FIXED, NARROW, MINUS = "\u00a0", "\u202f", "\u2212"

UNITS = r"%|(?:ns|µs|ms|s|B/s|kB/s|MB/s|GB/s|TB/s)(?!\w)"
TOGETHER = re.compile(rf"(?<=\d) (?={UNITS}|± )|(?<=±) (?=\d)")
"""The spaces of a sentence at which no line may break."""

FIGURES = {
    "all": "every figure",
    "window": "the window",
    "cycle": "the step period",
    "partition_ns": "the parts of a step",
    "busy_union_ns": "busy time",
    "idle_ns": "idle time",
    "collectives.skew_ns": "skew",
    "collectives.transfer_ns": "transfer",
    "us_per_token": "the time per token",
    "predicted_speedup": "the predicted speed-up",
}
"""What the keys that a health check spoils are called in sentences."""


def ns(value: float | None) -> str:
    """Nanoseconds with a unit, ``unknown`` for ``None``."""
    return "unknown" if value is None else duration(value).replace(" ", FIXED).replace("-", MINUS)


def number(value: float | None, digits: int = 0) -> str:
    """A number with at most so many digits behind the point."""
    if value is None:
        return "unknown"
    return f"{value:,.{0 if value == int(value) else digits}f}".replace(",", NARROW).replace("-", MINUS)


def percent(value: float | None) -> str:
    """A share as a percentage."""
    if value is None:
        return "unknown"
    if 0 < value < 0.0005:
        return f"<{FIXED}0.1{FIXED}%"
    return f"0{FIXED}%" if value == 0 else share(value).replace(" ", FIXED)


def _scaled(value: float | None, units: Sequence[str], base: int) -> str:
    if value is None:
        return "unknown"
    place = 0
    while value >= base and place < len(units) - 1:
        value, place = value / base, place + 1
    return f"{value:.3g}{FIXED}{units[place]}"


def size(value: float | None) -> str:
    """A number of bytes."""
    return _scaled(value, ("B", "KiB", "MiB", "GiB"), 1024)


def rate(value: float | None) -> str:
    """Bytes per second."""
    return _scaled(value, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s"), 1000)


def sentence(text: str) -> str:
    """``text`` with a capital and a full stop."""
    whole = text[:1].upper() + text[1:]
    return whole if whole.endswith(".") or not whole else whole + "."


def held(text: str) -> str:
    """``text`` whose figures stay on one line with their units."""
    return TOGETHER.sub(FIXED, text)


def unknown_figures(detail: str, keys: Sequence[str]) -> str:
    """The sentence that says what a failed check leaves unknown; empty where ``detail`` says it, or there is none."""
    names = list(dict.fromkeys(FIGURES.get(key, key.removesuffix("_ns").replace("_", " ")) for key in keys))
    said = [name for name in names if name.removeprefix("the ") in detail]
    if not names or ("unknown" in detail and len(said) == len(names)):
        return ""
    verb = "is" if len(names) == 1 else "are"
    return sentence(f"{listed(names)} {verb} unknown")
