"""What hardware counters measured, as terminal and page show it; nothing where none were sampled."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.analyzers.counter_result import CounterSampling, LinkUse, PhaseActivity
from profkit.analyzers.device_result import DeviceFigures
from profkit.analyzers.link_use import TITLES, dearest, in_words
from profkit.analyzers.words import duration, rate, share

from .graph_terminal import Block
from .units import percent, sentence
from .units import rate as written_rate

AS_ASKED = 0.1
"""By how much of it the usual interval of samples may differ from the one that was asked for, and not be told so."""

WHOLE = 0.95
"""Samples that cover less of a recording are told to."""

NONE = "–"
UNITS = ("SM", "tensor pipe", "DRAM", "of the GPU's DRAM")
"""The columns of the table of activity, and what stands where nothing was sampled."""

WAYS = {("pcie", "in"): "reads", ("pcie", "out"): "writes", ("nvlink", "in"): "receives", ("nvlink", "out"): "sends"}


def every(sampling: CounterSampling | None) -> str:
    """``every 50.0 µs``, and what was asked for where that is something else; empty without samples.

    Where samples cover a part only, or their clock is not known to an interval, that is told too.
    """
    if sampling is None:
        return ""
    period, asked, error = sampling.period_ns, sampling.asked_ns, sampling.clock_error_ns
    said = f"every {duration(period)}"
    if asked is not None and abs(period - asked) > AS_ASKED * asked:
        said += f" ({duration(asked)} was asked for)"
    if sampling.covered_share < WHOLE:
        said += f" over {share(sampling.covered_share)} of the recording"
    if error is not None and error > period and not sampling.moved_ns:
        said += f" by a clock known to ± {duration(error)}"
    return said


def link_line(device: DeviceFigures) -> str | None:
    """How much of its link the dearest collectives of ``device`` use, in one line; ``None`` where it is not known."""
    used = dearest(device.link_use or ())
    if used is None:
        return None
    implied = f"; its message sizes imply {rate(used.bus_bandwidth)}" if used.bus_bandwidth is not None else ""
    return sentence(f"{in_words(used)} {every(device.sampling)}{implied}")


def activity_block(device: DeviceFigures, which: str) -> Block | None:
    """How busy the units of ``device`` are in each phase; ``None`` without samples."""
    rows = [row for row in device.activity or () if row.told]
    if not rows:
        return None
    title = f"Activity{which} while busy, measured {every(device.sampling)}"
    columns, cells = activity_table(rows)
    return Block(title, ("phase", *columns), tuple((row.phase, *own) for row, own in zip(rows, cells, strict=True)))


def activity_table(rows: Sequence[PhaseActivity]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What was sampled of each phase, in words, and what each column is of; without what no phase has a sample of."""
    cells = [_activity(row) for row in rows]
    kept = [place for place in range(len(UNITS)) if any(row[place] != NONE for row in cells)]
    return tuple(UNITS[place] for place in kept), [tuple(row[place] for place in kept) for row in cells]


def _activity(row: PhaseActivity) -> tuple[str, str, str, str]:
    """SM, tensor pipe, DRAM and its share."""
    moved = NONE if row.dram_bytes_per_s is None else rate(row.dram_bytes_per_s)
    busy = (None if value is None else value / 100 for value in (row.sm_percent, row.tensor_percent))
    sm, tensor, dram = (NONE if value is None else percent(value) for value in (*busy, row.dram_share))
    return sm, tensor, moved, dram


def shown_links(rows: Sequence[LinkUse]) -> list[LinkUse]:
    """The rows of the links that carry anything at all: an NVLink that is not used counts zeros."""
    used = {row.link for row in rows if row.mean}
    return [row for row in rows if row.link in used]


def link_title(row: LinkUse) -> str:
    """``PCIe reads``."""
    return f"{TITLES[row.link]} {WAYS[row.link, row.direction]}"


def rates(row: LinkUse) -> str:
    """The mean rate, or from which to which it may be where transfers are shorter than samples."""
    if row.mean is None or row.mean_most is None:
        return "unknown"
    return written_rate(row.mean) if row.resolved else f"{written_rate(row.mean)} to {written_rate(row.mean_most)}"


def shares(row: LinkUse) -> str:
    """The rate over the link's limit, likewise."""
    if row.share is None or row.share_most is None:
        return "unknown"
    return percent(row.share) if row.resolved else f"{percent(row.share)} to {percent(row.share_most)}"
