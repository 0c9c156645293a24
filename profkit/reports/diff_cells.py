"""How a change is written in the cells of tables: the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.analyzers import words
from profkit.analyzers.diff.result import Change, KernelChange, PairDiff, PartChange
from profkit.analyzers.diff.sentence import signed

Row = Change | PartChange | KernelChange

NOTHING = "–"
NOISE = "within noise"
NOT_TESTED = "not tested"
STATES = {"new": "only in B", "gone": "only in A", "unknown": NOT_TESTED}
"""States of kernels that have other names in tables."""

AS_FACTOR = 10.0
"""Growth by at least so many times A is written as a factor: ``106 times``, not ``+10459.5 %``."""


def change(row: Row) -> str:
    """The change with its sign, in the unit and with the digits of its interval."""
    if row.ci95_ns is None or not row.delta_ns:
        return signed(row.delta_ns)
    return words.interval(row.delta_ns, max(row.ci95_ns, key=abs)).split(" … ")[0]


def interval(row: Row) -> str:
    """The 95 % interval; a dash where noise could not be tested."""
    return NOTHING if row.ci95_ns is None else words.interval(*row.ci95_ns)


def relative(row: Row) -> str:
    """The change as a share of A: ``−95.5 %``, ``21.7 times``, ``new`` where A has nothing, ``gone`` where B has."""
    if not row.a_ns or not row.b_ns:
        return "new" if row.b_ns else "gone" if row.a_ns else NOTHING
    if row.delta_ns >= AS_FACTOR * row.a_ns:
        factor = row.b_ns / row.a_ns
        return f"{factor:,.{0 if factor >= 100 else 1}f} times"
    return percentage(100 * row.delta_ns / row.a_ns)


def percentage(percent: float) -> str:
    """A change in per cent with its sign, as long as one digit behind the point shows any: ``−0.1 %``, ``0.0 %``."""
    text = f"{percent:+.1f} %".replace("-", "−")
    return text[1:] if text[1:] == "0.0 %" else text


def verdict(row: Row) -> str:
    """Whether a change is more than noise, and which way it goes."""
    if row.ci95_ns is None:
        return NOT_TESTED
    if not row.significant and row.ci95_ns[0] <= 0 <= row.ci95_ns[1]:
        return NOISE
    # Among so many rows, one whose own interval leaves out 0 may still be chance.
    return ("" if row.significant else "maybe ") + direction(row.delta_ns)


def direction(delta_ns: int) -> str:
    """``longer`` or ``shorter``."""
    return "longer" if delta_ns > 0 else "shorter"


def part_and_class(part: str, kernel_class: str | None) -> str:
    """A part with the class that it is of, where that says more: ``compute: attention``, ``collective``."""
    return part if kernel_class in (None, part) else f"{part}: {kernel_class}"


def state(row: KernelChange) -> str:
    """What became of a kernel, in plain words."""
    return STATES.get(row.state, row.state)


def calls(count: float, each_ns: float | None) -> str:
    """How often a kernel runs, and how long one call takes: ``36 × 47.7 µs``."""
    if not count:
        return NOTHING
    often = words.tokens(count) if count >= 0.001 else "< 0.001"
    return often if each_ns is None else f"{often} × {words.duration(each_ns)}"


def unit_of(pair: PairDiff) -> str:
    """What the times of ``pair`` are of."""
    if pair.window == "recording":
        return "recording"
    return "accepted token" if pair.per == "token" else "step"


def steps_of(pair: PairDiff) -> str:
    """How many steps each side has."""
    a, b = (side.steps for side in pair.sides)
    if not a and not b:
        return "no decode steps"
    return f"{words.counted(a, 'step')} each" if a == b else f"{a} and {words.counted(b, 'step')}"


def ranks_of(pair: PairDiff, most: str) -> str:
    """Whose time is compared: ``slowest rank: 1``, ``slowest ranks: 0 and 1``, with ``most`` as ``slowest``."""
    a, b = (side.rank for side in pair.sides)
    return f"{most} rank: {a}" if a == b else f"{most} ranks: {a} and {b}"


def kernels_of(pair: PairDiff) -> str:
    """Whose kernels are compared, where that is not clear from the rest: `` on rank 0``."""
    ranks = pair.kernel_ranks
    if ranks is None or ranks == tuple(side.rank for side in pair.sides):
        return ""
    return f" on rank {ranks[0]}" if ranks[0] == ranks[1] else f" on rank {ranks[0]} of A and rank {ranks[1]} of B"


def waiting(row: KernelChange) -> str:
    """What of a collective's time is waiting: ``waiting 1.45 µs → 67.7 µs``; empty where that is not known."""
    known = [NOTHING if ns is None else words.duration(ns) for ns in (row.a_wait_ns, row.b_wait_ns)]
    return "" if row.a_wait_ns is row.b_wait_ns is None else f"waiting {' → '.join(known)}"


def tested(pair: PairDiff) -> bool:
    """Whether changes could be told from noise."""
    return pair.total is not None and pair.total.ci95_ns is not None


def unpaired_sentence(names: Sequence[str]) -> str:
    """Which recordings were left out."""
    return f"{words.listed(list(names))} {'has' if len(names) == 1 else 'have'} no partner of the same concurrency."
