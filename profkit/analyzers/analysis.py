"""From traces to ``Analysis``: the figures of each, and plain against speculative decoding."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from msgspec import structs

from profkit.traces import Trace

from .accept_length import check_accept_len
from .attribution import Attribution, attribute
from .borrowed import with_borrowed_modules
from .comparison import GIVEN, compare
from .counter_clock import with_counters_on_clock_of_ops
from .cycle import cycle_of, slowest_device, without_recorder
from .device_result import DeviceFigures
from .devices import device_figures
from .eager_to_graphs import graph_savings, is_partner, launched_eagerly
from .economics.build import economics
from .gain import gains
from .graph_result import GraphFigures, GraphPrediction
from .graphs import graph_figures, graph_nodes_missing
from .health import health_of
from .inflation import inflation_of
from .inflation_recorders import cross_check
from .matching import match_collectives
from .other_work import neighbours
from .outliers import Outliers, outliers_of
from .ranks import lost_steps, rank_of_device
from .replay import predict_graphs
from .result import Analysis, Cause, Cycle, Health, Provenance, TraceFigures
from .rules import Rules
from .unpaired import unpaired
from .verdict import FAULTS, verdict_of
from .view import View
from .vocabulary import HOST_PARTS
from .words import duration, listed, share

SCHEMA = "profkit.analysis/1"

MINOR = 0.1
"""A plain step in which no cause costs so much of it is first of all the model's own work."""

MOSTLY = 0.5
"""A cause of which long steps explain so much may be theirs alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A trace with the name and path under which it is shown."""

    name: str
    path: str
    trace: Trace


def analyze(
    recordings: Sequence[Recording], rules: Rules | None = None, accept_len: float | None = None
) -> tuple[Analysis, tuple[Attribution, ...]]:
    """Analyse recordings; returns the figures and, in the same order, the attributions they rest on.

    ``accept_len`` overrides what the recordings' own runs say. Raises ``UsageError`` where a block cannot yield it.
    """
    check_accept_len(((recording.name, recording.trace.run) for recording in recordings), accept_len)
    attributed = (with_counters_on_clock_of_ops(attribute(recording.trace, rules)) for recording in recordings)
    attributions = with_borrowed_modules(list(attributed))
    traces = tuple(
        trace_figures(recording, attribution, accept_len)
        for recording, attribution in zip(recordings, attributions, strict=True)
    )
    traces = tuple(_with_graphs_beside(trace, traces) for trace in traces)
    checks = cross_check(traces)
    comparisons = compare(traces)
    first = comparisons[0] if comparisons else None
    found = Analysis(
        SCHEMA,
        traces,
        first,
        comparisons,
        gains(traces, comparisons),
        graph_savings(traces, attributions),
        checks,
        economics(traces, comparisons),
        unpaired(traces),
    )
    return found, attributions


def trace_figures(recording: Recording, attribution: Attribution, accept_len: float | None = None) -> TraceFigures:
    """All figures of one recording."""
    trace = recording.trace
    ranks = rank_of_device(trace)
    matched = match_collectives(attribution)
    given = accept_len if accept_len is not None else trace.run.accept_len
    source = GIVEN if accept_len is not None else trace.run.accept_len_source
    cycle = cycle_of(attribution, given, source)
    idle_known = graph_nodes_missing(trace, attribution.launch) is None
    order = sorted(attribution.devices, key=lambda device: ranks[device])
    lost = lost_steps(attribution)
    devices = {d: device_figures(attribution, matched, d, ranks[d], idle_known and d not in lost) for d in order}
    graphs = {d: graph_figures(attribution, d, devices[d]) for d in order}
    slowest = slowest_device(attribution)
    far = outliers_of(attribution, slowest) if slowest is not None else None
    health = health_of(attribution, matched, cycle, far)
    verdict: tuple[Cause, ...] = ()
    if slowest is not None and idle_known and not lost:
        stepping = {d: figures for d, figures in devices.items() if figures.window is not None}
        verdict = verdict_of(View(attribution, matched, stepping, graphs, cycle, slowest, neighbours(attribution)))
    inflation = inflation_of(attribution, matched, cycle, parts_known=idle_known and not lost)
    return TraceFigures(
        name=recording.name,
        source=trace.source.format,
        path=recording.path,
        health=health,
        devices={str(d): figures for d, figures in devices.items()},
        graphs={str(d): figures for d, figures in graphs.items()},
        cycle=without_recorder(cycle, inflation.unrecorded_ns if inflation else None),
        verdict=verdict,
        summary=_summary(cycle, verdict, health, devices.get(slowest) if slowest is not None else None)
        + _exception(verdict, far),
        provenance=_provenance(trace),
        with_graphs=predict_graphs(attribution, matched) if cycle.steps and _any_eager(graphs.values()) else None,
        inflation=inflation,
    )


def _summary(cycle: Cycle, verdict: Sequence[Cause], health: Health, slowest: DeviceFigures | None) -> str:
    """The sentence that terminal and page end in; ``slowest`` are the figures of the rank that sets the pace."""
    if not verdict:
        reason = next((check.detail for check in health.checks if check.status == "abstain"), None)
        return f"No verdict: {reason}." if reason else "Nothing in the recording holds the step back."
    sentence = verdict[0].text
    if verdict[0].cause.startswith("straggler") and (transfer := _of(verdict, "link_bound")):
        head, _, advice = sentence.partition(": ")
        sentence = f"{head}; the transfers themselves take {duration(transfer.ns_per_step)}: {advice}"
    if cycle.kind == "plain" and slowest and slowest.window:
        step = slowest.window.wall_ns / max(slowest.steps, 1)
        if verdict[0].ns_per_step < MINOR * step:
            work = share(slowest.partition_ns["compute"] or 0, slowest.window.wall_ns)
            sentence = f"{work} of the {duration(step)} step is the model's own GPU work; beyond it, {sentence}"
    if cycle.steps == 1:
        sentence = f"from a single step, so with caution: {sentence}"
    return f"{sentence[0].upper()}{sentence[1:]}."


def _exception(verdict: Sequence[Cause], far: Outliers | None) -> str:
    """A second sentence where the first one's cause is mostly that of a few steps."""
    if not verdict or far is None or verdict[0].cause not in FAULTS:
        return ""
    if sum(max(far.excess_ns[part], 0) for part in _parts_of(verdict[0])) < MOSTLY * verdict[0].ns_per_step * far.of:
        return ""
    few = "that step" if len(far.steps) == 1 else "those steps"
    return f" But {far.text}: look at what happened in {few}, as the average hides it."


def _parts_of(cause: Cause) -> set[str]:
    """The parts in which a cause lies; a rank at fault makes the others wait in collectives."""
    own = set(HOST_PARTS) if cause.part in HOST_PARTS else {cause.part or "compute"}
    return own | ({"collective"} if cause.rank is not None else set())


def _any_eager(graphs: Collection[GraphFigures]) -> bool:
    return launched_eagerly(graphs) or any(one.eager_phases for one in graphs)


def _with_graphs_beside(trace: TraceFigures, traces: Sequence[TraceFigures]) -> TraceFigures:
    """An eager step's sentence also says how long the step takes with CUDA graphs, if that is recorded beside it."""
    if not launched_eagerly(trace.graphs.values()):
        return trace
    partner = next((other for other in traces if is_partner(trace, other)), None)
    if partner is not None:
        recorded = f"with CUDA graphs ({partner.name}) the step takes {duration(_step_ns(partner))}"
        return structs.replace(trace, summary=f"{trace.summary.removesuffix('.')}; {recorded}.")
    if (said := prediction_in_words(trace.with_graphs)) is not None:
        return structs.replace(trace, summary=f"{trace.summary.removesuffix('.')}; {said}.")
    return trace


def prediction_in_words(found: GraphPrediction | None) -> str | None:
    """What the replay says, or ``None`` where it says nothing."""
    if found is None or found.step_ns is None or found.low_ns is None or found.high_ns is None:
        return None
    bounds = f"{duration(found.low_ns)} to {duration(found.high_ns)}"
    which = f"{listed(list(found.phases))} in CUDA graphs" if found.phases else "CUDA graphs"
    return f"re-played with {which} the step takes about {duration(found.step_ns)} ({bounds})"


def _step_ns(trace: TraceFigures) -> float:
    return max((d.window.wall_ns / max(d.steps, 1) for d in trace.devices.values() if d.window), default=0.0)


def _of(verdict: Sequence[Cause], cause: str) -> Cause | None:
    return next((found for found in verdict if found.cause == cause), None)


def _provenance(trace: Trace) -> Provenance:
    source, run = trace.source, trace.run
    return Provenance(
        tool=source.tool,
        tool_version=source.tool_version,
        schema_version=source.schema_version,
        driver=source.driver,
        engine=run.engine,
        config=run.config,
        concurrency=run.concurrency,
        graphs=run.graphs,
        tokens_per_s=run.tokens_per_s,
        note=run.note,
        block_size=run.block_size,
        tokens_per_s_before=run.tokens_per_s_before,
        tokens_per_s_after=run.tokens_per_s_after,
        timed_steps=run.step_times.steps if run.step_times else None,
        model=run.model,
    )
