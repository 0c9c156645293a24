"""How figures are written in sentences."""

from __future__ import annotations

from collections.abc import Sequence

PHASE_NAMES = {"kv_append": "KV append", "step_other": "rest of the step"}
"""What phases are called in sentences and legends, where not by their key."""


def phase_name(phase: str) -> str:
    """A phase in words: ``verify``, ``KV append``, ``rest of the step``."""
    return PHASE_NAMES.get(phase, phase)


def in_phase(phase: str) -> str:
    """Where in a step something is: ``in verify``, ``in the rest of the step``, ``between steps``."""
    if phase == "outside":
        return "between steps"
    return f"in the {phase_name(phase)}" if " of " in phase_name(phase) else f"in {phase_name(phase)}"


def launching(phase: str) -> str:
    """What a host does that launches a phase: ``launching verify``, ``launching what comes between steps``."""
    if phase == "outside":
        return "launching what comes between steps"
    return f"launching {in_phase(phase).removeprefix('in ')}"


def part_name(phase: str, group: str) -> str:
    """A phase's group of parts in words: ``verify's kernels``, ``host gaps in the rest of the step``."""
    name = phase_name(phase)
    return f"{group} in the {name}" if " of " in name else f"{name}'s {group}"


PARTS_IN_WORDS = {
    "union": "ops", "attention": "attention", "work": "kernels and copies", "other_work": "other kernels and copies",
    "compute": "kernels", "collective": "collectives", "copy": "copies",
    "gap_sync": "blocking calls", "gap_api": "other CUDA calls", "gap_host": "host code", "gap_launch": "launches",
    "gap_graph_launch": "graph launches", "gap_in_graph": "gaps inside graphs", "gap_queue": "queue",
    "gap_unknown": "unknown gaps",
}  # fmt: skip


def duration(ns: float) -> str:
    """Nanoseconds with a unit and three figures: ``103 ms``, ``7.42 ms``, ``420 µs``, ``65 ns``."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= size:
            value = ns / size
            digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
            return f"{value:.{digits}f} {unit}".replace("-", "−")
    return f"{ns:.0f} ns".replace("-", "−")


def a_duration(ns: float) -> str:
    """A duration with its article: ``a 7.42 ms``, ``an 8.30 ms``, ``an 11.2 ms``."""
    said = duration(ns)
    vowel = said.startswith("8") or said.split()[0].split(".")[0] in ("11", "18")
    return f"{'an' if vowel else 'a'} {said}"


def range_of(low: int | None, high: int | None) -> str:
    """A range: ``7.19 to 7.71 ms``, ``840 µs to 1.10 ms``, ``0 to 5 ns``, ``unknown`` where there is none."""
    if low is None or high is None:
        return "unknown"
    return f"0 to {duration(high)}" if low == 0 else between(duration(low), duration(high), " to ")


MOST_OFF = 1.0


def off(ratio: float) -> str:
    """How far something lies off, as a percentage: ``23 %``; far off is far off: ``>100 %``."""
    return share(ratio) if ratio <= MOST_OFF else f">{100 * MOST_OFF:.0f} %"


def share(part: float, whole: float = 1.0, signed: bool = False) -> str:
    """A share, or a change with its sign, as a percentage: ``81 %``, ``4.2 %``, ``−0.3 %``, ``+12 %``."""
    ratio = part / whole if whole else 0.0
    digits = 0 if abs(ratio) >= 0.0995 else 1
    written = f"{100 * ratio:{'+' if signed else ''}.{digits}f} %"
    return "0.0 %" if written[1:] == "0.0 %" else written.replace("-", "−")


def between(low: str, high: str, dash: str = " – ") -> str:
    """Two figures with their unit, which is written once where it is the same: ``18.2 – 22.0 ms``."""
    same = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return f"{low.rpartition(' ')[0] if same and ' ' in low else low}{dash}{high}"


def ranges(column: Sequence[tuple[float, float] | None], dash: str = " … ") -> list[str]:
    """A column of ranges with two digits; all with three where that tells ends apart that two write alike.

    One figure where neither does, and nothing where there is no range.
    """
    told = ({len({f"{end:.{digits}f}" for end in ends}) for digits in (2, 3)} for ends in column if ends)
    form = ".3f" if {1, 2} in told else ".2f"
    return [dash.join(dict.fromkeys(format(end, form) for end in ends or ())) for ends in column]


def from_to(low: float, high: float) -> str:
    """A range in a sentence: ``0.36 to 0.43``, ``0.998 to 1.003``."""
    return ranges([(low, high)], " to ")[0]


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 step``, ``1,204 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(items: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def tokens(count: float) -> str:
    """A number of tokens with three figures: ``3.5``, ``3.51``, ``113``, ``1,204``."""
    return f"{count:.3g}" if count < 1000 else f"{count:,.0f}"


def interval(low: float, high: float) -> str:
    """Two signed durations in one unit and with the same digits: ``−1.14 ms … −0.60 ms``, ``−16.5 µs … +0.1 µs``.

    The one farther from 0 decides, and has three figures.
    """
    size, unit = next(
        (scale for scale in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if max(abs(low), abs(high)) >= scale[0]), (1.0, "ns")
    )
    most = max(abs(low), abs(high)) / size
    digits = 0 if most >= 100 or size == 1 else 1 if most >= 10 else 2
    signs = ("+" if ns > 0 else "−" if ns < 0 else "" for ns in (low, high))
    ends = (f"{sign}{abs(ns) / size:.{digits}f} {unit}" for sign, ns in zip(signs, (low, high), strict=True))
    return " … ".join(ends)


def rate(bytes_per_s: float) -> str:
    """Bytes per second with a unit and two or three figures: ``9.8 GB/s``, ``1.20 TB/s``, ``420 MB/s``."""
    for size, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_s >= size:
            value = bytes_per_s / size
            digits = 2 if unit == "TB/s" and value < 10 else 0 if value >= 10 else 1
            return f"{value:.{digits}f} {unit}"
    return f"{bytes_per_s:.0f} B/s"
