"""Why speculation gains less, or more, at a higher concurrency: what a cycle costs in plain steps, part by part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from .comparison_result import Comparison, Gain, GainPart
from .result import TraceFigures
from .vocabulary import HOST_PARTS
from .words import listed, part_name

TOLD = 3
MINOR = 0.1
"""Parts that make up less than this share of the change are not told."""

GROUPS = {"compute": "kernels", "collective": "collectives", "copy": "copies"} | dict.fromkeys(HOST_PARTS, "host gaps")
OTHER_GAPS = "other gaps"


def gains(traces: Sequence[TraceFigures], comparisons: Sequence[Comparison]) -> tuple[Gain, ...]:
    """One for each pair of configurations that was compared at several batch sizes, alike in graphs.

    A part of a cycle, in plain steps, is its share of the cycle's time times the break-even accept length, so that
    parts sum to that.
    """
    named = {trace.name: trace for trace in traces}
    pairs: dict[tuple[str, str, str], list[Comparison]] = defaultdict(list)
    for one in comparisons:
        plain, speculative = (named[name].provenance for name in (one.baseline, one.speculative))
        if one.same_graphs and plain.config and speculative.config:
            pairs[plain.config, speculative.config, speculative.model or plain.model].append(one)
    found = []
    for (config, other, _), rows in pairs.items():
        rows.sort(key=lambda row: row.batch_size)
        if rows[0].batch_size < rows[-1].batch_size:
            found.append(_gain(config, other, rows, named))
    return tuple(found)


def _gain(plain: str, speculative: str, rows: list[Comparison], named: dict[str, TraceFigures]) -> Gain:
    low, high = rows[0], rows[-1]
    before, after = (_parts(named[row.speculative], row.break_even_accept_len) for row in (low, high))
    parts = tuple(
        GainPart(phase, group, before.get((phase, group), 0.0), after.get((phase, group), 0.0))
        for phase, group in sorted({*before, *after}, key=lambda key: (before.get(key, 0.0) - after.get(key, 0.0), key))
    )
    cost = _cost(low, high, parts, named[high.speculative].provenance.block_size)
    return Gain(plain, speculative, tuple(row.batch_size for row in rows), parts, _text(low, high, cost), cost)


def _parts(trace: TraceFigures, cost: float) -> dict[tuple[str, str], float]:
    """A cycle's parts by phase and group, in plain steps; of the rank that sets the pace."""
    device = next(device for device in trace.devices.values() if device.rank == trace.cycle.rank)
    found: dict[tuple[str, str], float] = defaultdict(float)
    for phase, parts in device.phase_partition_ns.items():
        for part, ns in parts.items():
            found[phase, GROUPS.get(part, OTHER_GAPS)] += float(ns or 0)
    whole = sum(found.values())
    return {key: cost * ns / whole for key, ns in found.items()} if whole else {}


def _cost(low: Comparison, high: Comparison, parts: tuple[GainPart, ...], block_size: int | None) -> str:
    """What a cycle costs in plain steps, and the parts that change it."""
    change = high.break_even_accept_len - low.break_even_accept_len
    told = sorted((p for p in parts if abs(p.change) >= MINOR * abs(change)), key=lambda p: -abs(p.change))[:TOLD]
    said = (
        f"a cycle costs {high.break_even_accept_len:.2f} plain steps at {high.batch_size} and "
        f"{low.break_even_accept_len:.2f} at {low.batch_size}"
    )
    if told:
        causes = listed([f"{part_name(p.phase, p.group)} {p.change:+.2f}".replace("-", "−") for p in told])
        said = f"{said} ({causes})"
    return f"{said}; verify checks {block_size} tokens where a plain step decodes one" if block_size else said


def _text(low: Comparison, high: Comparison, cost: str) -> str:
    if low.predicted_speedup is None or high.predicted_speedup is None:
        return cost
    way = "shrinks" if high.predicted_speedup < low.predicted_speedup else "grows"
    return (
        f"the speed-up predicted from steps {way} from {low.predicted_speedup:.2f} at batch {low.batch_size} to "
        f"{high.predicted_speedup:.2f} at batch {high.batch_size}, because {cost}"
    )
