"""Figures of a sweep, written down by hand: plain and speculative decoding at given batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import structs

from profkit.analyzers import Recording, TraceFigures, analyze
from profkit.analyzers.comparison import compare
from profkit.analyzers.device_result import Window
from profkit.analyzers.economics.build import economics
from profkit.analyzers.economics.result import Economics
from profkit.analyzers.inflation_result import Inflation
from profkit.analyzers.result import Analysis, Cycle
from profkit.analyzers.unpaired import unpaired
from profkit.analyzers.vocabulary import PARTS
from profkit.traces import StepTimes
from tests.analyzers.engine import Plan, run

MS = 1_000_000
Cells = dict[tuple[str, str], int]


def step(
    kind: Literal["plain", "speculative"],
    batch: int,
    periods: Sequence[int],
    cells: Cells,
    accept_len: float | None = None,
    rate: float | None = None,
) -> TraceFigures:
    """A trace of one rank: its periods, the nanoseconds of each (phase, part) per step, and what the run measured."""
    name = "plain" if kind == "plain" else "draft"
    blank = _blank()
    device = structs.replace(
        next(iter(blank.devices.values())),
        rank=0,
        steps=len(periods) + 1,
        window=Window(0, 1, 1),
        phase_partition_ns={
            phase: {part: cells.get((phase, part), 0) * (len(periods) + 1) for part in PARTS}
            for phase in dict.fromkeys(phase for phase, _ in cells)
        },
    )
    cycle = Cycle(
        kind=kind, batch_size=batch, steps=len(periods) + 1, period_ns_median=sorted(periods)[len(periods) // 2],
        period_ns=tuple(periods), phase_ns_median={}, accept_len=1.0 if kind == "plain" else accept_len,
        accept_len_source="", us_per_token=None, phases_source="", phases_inferred=False, rank=0,
    )  # fmt: skip
    run_of = structs.replace(
        blank.provenance, config=name, concurrency=batch, graphs=True, tokens_per_s=rate,
        block_size=8 if kind == "speculative" else None,
    )  # fmt: skip
    return structs.replace(blank, name=f"{name}/c{batch}", devices={"0": device}, cycle=cycle, provenance=run_of)


def _blank() -> TraceFigures:
    return analyze([Recording("blank", "", run(Plan()))])[0].traces[0]


def even(ns: int, steps: int = 7) -> list[int]:
    """Steps that all take equally long."""
    return [ns] * steps


def economics_of(traces: Sequence[TraceFigures], timed: dict[str, StepTimes] | None = None) -> Economics:
    """The one pair of ``traces``, of which some had steps ``timed`` without a recorder."""
    known = [_timed(trace, (timed or {}).get(trace.name)) for trace in traces]
    (found,) = economics(known, compare(known))
    return found


def _timed(trace: TraceFigures, times: StepTimes | None) -> TraceFigures:
    if times is None:
        return trace
    return structs.replace(
        trace, inflation=Inflation("nsys", trace.cycle.period_ns_median, measured_ns=times.median_ns)
    )


def analysis_of(traces: Sequence[TraceFigures], timed: dict[str, StepTimes] | None = None) -> Analysis:
    """An analysis that holds the verdict of ``traces``, of which some had steps ``timed`` without a recorder."""
    traces = [_timed(trace, (timed or {}).get(trace.name)) for trace in traces]
    comparisons = compare(traces)
    return Analysis(
        "profkit.analysis/1",
        tuple(traces),
        None,
        comparisons,
        economics=economics(traces, comparisons),
        unpaired=unpaired(traces),
    )


def by_hand() -> list[TraceFigures]:
    """Plain steps of 4, 5 and 8 ms at 1, 4 and 16 requests; cycles of 6, 12 and 36 ms; accept length 3.

    Of a cycle, 1 ms is draft's kernels, 1 ms the GPU waiting for draft's host, the rest verify's kernels: 4, 10, 34 ms.
    """
    traces = []
    for batch, plain, cycle, rates in ((1, 4, 6, (250, 500)), (4, 5, 12, (800, 960)), (16, 8, 36, (2000, 1600))):
        verify: Cells = {("verify", "compute"): (cycle - 2) * MS, ("draft", "compute"): MS, ("draft", "gap_host"): MS}
        traces.append(step("plain", batch, even(plain * MS), {("decode", "compute"): plain * MS}, rate=rates[0]))
        traces.append(step("speculative", batch, even(cycle * MS), verify, 3.0, rates[1]))
    return traces


def unmeasured() -> list[TraceFigures]:
    """The sweep by hand, of which no throughput is known."""
    return [structs.replace(t, provenance=structs.replace(t.provenance, tokens_per_s=None)) for t in by_hand()]


def counted_twice(trace: TraceFigures, before: float, after: float) -> TraceFigures:
    """``trace``, whose throughput was counted before and after the recording."""
    mean = (before + after) / 2
    twice = structs.replace(trace.provenance, tokens_per_s=mean, tokens_per_s_before=before, tokens_per_s_after=after)
    return structs.replace(trace, provenance=twice)
