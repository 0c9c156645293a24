"""Which samples of hardware counters are a recording's: they begin before it and end after it, if all went well."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.traces import Trace

from .machine import Row

PREFIX = "pm_"
MARGIN_NS = 1_000_000
"""Hardware counters are kept for so long before the first op of a bundle and after its last one."""


def within_recording(rows: Sequence[Row], trace: Trace, zero_ns: int) -> list[Row]:
    """``rows`` without the hardware counters beyond what ``trace`` holds.

    NVML's counters stay, which tell of the whole time at a concurrency.
    """
    span = _span(trace, zero_ns)
    if span is None:
        return list(rows)
    first, last = span[0] - MARGIN_NS, span[1] + MARGIN_NS
    return [row for row in rows if first <= row[0] <= last or not _is_counter(row)]


def why_none(name: str, rows: Sequence[Row], trace: Trace, zero_ns: int) -> str | None:
    """Where the samples of the window ``name`` lie if none lies in its recording; ``None`` if one does."""
    taken = {row[:2] for row in rows if _is_counter(row)}
    span = _span(trace, zero_ns)
    if not taken:
        return f"no GPU counters lie within {name}: none were sampled of its GPUs"
    if span is None or any(span[0] <= time <= span[1] for time, _ in taken):
        return None
    first, last = ((time - span[0]) * 1e-6 for time in (min(taken)[0], max(taken)[0]))
    count = f"{len(taken):,} sample{'s' if len(taken) > 1 else ''}"
    where = f"{count} from {first:,.1f} to {last:,.1f} ms of its first op"
    return f"no GPU counters lie within {name}: {where.replace('-', '−')}"


def _span(trace: Trace, zero_ns: int) -> tuple[int, int] | None:
    """UTC of the first start and the last end of ops, or of ranges where there are none."""
    tables = [table for table in (trace.ops, trace.ranges) if len(table)]
    if not tables:
        return None
    return zero_ns + int(tables[0].start.min()), zero_ns + int(tables[0].end.max())


def _is_counter(row: Row) -> bool:
    return row[2].startswith(PREFIX)
