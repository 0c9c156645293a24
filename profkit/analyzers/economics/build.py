"""From figures and comparisons to one ``Economics`` for each pair of configurations."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec import structs

from ..comparison import timed_ns
from ..comparison_result import Comparison
from ..eager_to_graphs import launched_eagerly
from ..gain import gains
from ..result import TraceFigures, sweep_of
from .break_even import crossing, spread_of_ratio
from .decoding import decoding_of
from .growth import growth_of
from .lever import lever_of
from .outcome import decided_by, outcome_of
from .result import Basis, Crossover, Decided, Economics, Range, Row
from .trust import intervals, prediction
from .words import crossover_text, recorded_steps, what_moves, where, why

Key = tuple[str, str, str, bool, str]
"""Model, both configurations, whether they ran with graphs, and the folder of the speculative sweep."""

Sweep = dict[int, Comparison]


def economics(traces: Sequence[TraceFigures], comparisons: Sequence[Comparison]) -> tuple[Economics, ...]:
    """One for each pair of configurations that were compared, alike in graphs, in the order of their first comparison.

    Several sweeps of one configuration stay apart, and so do several recordings of one pair at one batch size.
    """
    named = {trace.name: trace for trace in traces}
    found: dict[Key, list[Sweep]] = {}
    for one in comparisons:
        key = _key(one, named)
        if key is not None:
            _place(found.setdefault(key, []), one)
    return tuple(
        _economics(key, _labels(key, sweep, found, named), sweep, named)
        for key, sweeps in found.items()
        for sweep in sweeps
    )


def _labels(key: Key, sweep: Sweep, found: Collection[Key], named: Mapping[str, TraceFigures]) -> tuple[str, str]:
    """Both configurations; where several sweeps or models have one, the folder that this one's recordings lie in."""
    model, plain, speculative, _, folder = key
    plain_folder = sweep_of(named[next(iter(sweep.values())).baseline])
    models = {other[0] for other in found if other[1] == plain}
    several = sum(other[2] == speculative for other in found) > 1
    return (
        (plain_folder.rpartition("/")[2] if models - {model} else "") or plain,
        (folder.rpartition("/")[2] if several else "") or speculative,
    )


def _key(one: Comparison, named: Mapping[str, TraceFigures]) -> Key | None:
    plain, speculative = (named[name].provenance for name in (one.baseline, one.speculative))
    if not (one.same_graphs and one.batch_size and plain.config and speculative.config):
        return None
    said, trace = speculative.graphs, named[one.speculative]
    with_graphs = said if said is not None else not launched_eagerly(trace.graphs.values())
    model = speculative.model or plain.model
    return model, plain.config, speculative.config, with_graphs, sweep_of(trace)


def _place(sweeps: list[Sweep], one: Comparison) -> None:
    """Put a comparison into the first sweep that has none of its batch size yet."""
    free = next((sweep for sweep in sweeps if one.batch_size not in sweep), None)
    if free is None:
        sweeps.append(free := {})
    free[one.batch_size] = one


def _economics(key: Key, labels: tuple[str, str], sweep: Sweep, named: Mapping[str, TraceFigures]) -> Economics:
    (baseline, speculative), graphs = labels, key[3]
    rows, decided = _decided([_row(sweep[batch_size], named) for batch_size in sorted(sweep)])
    costs = {row.batch_size: row.break_even for row in rows}
    crossover = _crossover(rows)
    block_sizes = {name: trace.provenance.block_size for name, trace in named.items()}
    lever = lever_of(rows, block_sizes, "predicted")
    measured_lever = lever_of(rows, block_sizes, "measured") if decided == "measured" else None
    gain = next(iter(gains(list(named.values()), list(sweep.values()))), None)
    return Economics(
        baseline=baseline,
        speculative=speculative,
        graphs=graphs,
        rows=rows,
        growth=(
            *growth_of("speculative", costs, [row.speculative for row in rows]),
            *growth_of("plain", dict.fromkeys(costs, 1.0), [row.plain for row in rows]),
        ),
        crossover=crossover,
        lever=lever,
        sentences=(
            where(speculative, rows, crossover, decided),
            why(rows, gain, decided),
            what_moves(measured_lever or lever),
        ),
        prediction=prediction(rows),
        decided_by=decided,
        measured_lever=measured_lever,
        intervals=intervals(rows),
    )


def _decided(rows: Sequence[Row]) -> tuple[tuple[Row, ...], Decided | None]:
    """The rows with their outcomes, and what these rest on."""
    basis = decided_by(rows)
    if basis is None:
        return tuple(rows), None
    return tuple(structs.replace(row, outcome=outcome_of(row, basis)) for row in rows), basis


def _row(one: Comparison, named: Mapping[str, TraceFigures]) -> Row:
    plain, speculative = named[one.baseline], named[one.speculative]
    break_even, predicted, measured = one.break_even_accept_len, one.predicted_speedup, one.measured_speedup
    accept_len = speculative.cycle.accept_len
    interval = _scaled(break_even, spread_of_ratio(plain.cycle.period_ns, speculative.cycle.period_ns))
    return Row(
        batch_size=one.batch_size,
        basis=_basis([timed_ns(plain), timed_ns(speculative)]),
        plain=decoding_of(plain),
        speculative=decoding_of(speculative),
        break_even=break_even,
        break_even_ci95=interval,
        headroom=accept_len - break_even if accept_len else None,
        headroom_share=accept_len / break_even - 1 if accept_len else None,
        predicted_speedup=predicted,
        predicted_ci95=_over(accept_len, interval),
        measured_speedup=measured,
        prediction_error=predicted / measured - 1 if predicted and measured else None,
        measured_break_even=accept_len / measured if accept_len and measured else None,
        measured_range=one.measured_range,
        measured_break_even_range=_over(accept_len, one.measured_range),
        error_off_range=_off_range(predicted, one.measured_range),
    )


def _over(accept_len: float | None, ends: Range | None) -> Range | None:
    """From break-evens to speed-ups, and back."""
    return (accept_len / ends[1], accept_len / ends[0]) if accept_len and ends else None


def _off_range(predicted: float | None, ends: Range | None) -> float | None:
    """How far ``predicted`` lies off the nearest end of a range, relative to that; 0 inside."""
    if predicted is None or ends is None:
        return None
    return predicted / min(max(predicted, ends[0]), ends[1]) - 1


def _basis(timed: Sequence[int | None]) -> Basis:
    known = sum(times is not None for times in timed)
    return "unrecorded" if known == len(timed) else "mixed" if known else "recorded"


def _scaled(value: float, factors: Range | None) -> Range | None:
    return (value * factors[0], value * factors[1]) if factors else None


def _crossover(rows: Sequence[Row]) -> Crossover:
    """Where the break-even line, and either end of its interval, meets the accept length."""
    batch_sizes = [row.batch_size for row in rows]
    estimate = crossing(batch_sizes, [row.headroom for row in rows])
    low, high = (crossing(batch_sizes, [_margin(row, end) for row in rows]) for end in (1, 0))
    measured = crossing(batch_sizes, [math.log(row.measured_speedup) if row.measured_speedup else None for row in rows])
    text = crossover_text(batch_sizes, estimate, (low, high, recorded_steps(rows)), _again(rows))
    return Crossover(estimate, low, high, measured, text)


def _again(rows: Sequence[Row]) -> list[int]:
    """Batch sizes at which it pays though it does not at a lower one."""
    lost = next((place for place, row in enumerate(rows) if (row.headroom or 0.0) < 0), len(rows))
    return [row.batch_size for row in rows[lost:] if (row.headroom or 0.0) >= 0]


def _margin(row: Row, end: int) -> float | None:
    if row.speculative.accept_len is None or row.break_even_ci95 is None:
        return None
    return row.speculative.accept_len - row.break_even_ci95[end]
