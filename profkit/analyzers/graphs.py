"""CUDA graphs of the decode steps: how many, how large, how long to launch, and whether the host runs ahead."""

from __future__ import annotations

import numpy as np
from msgspec import structs

from profkit.traces import I64, Index, OpKind, Trace

from .attribution import Attribution
from .device_result import DeviceFigures
from .graph_boundaries import boundaries, crossings
from .graph_fallbacks import PhaseSteps, eager_phases, fallback_ns, fallbacks
from .graph_launches import GraphLaunches, decode_rows, graph_launch_rows, graph_launches, launch_leads, median
from .graph_outside import outside_ops
from .graph_padding import padding_of
from .graph_phases import graph_phases
from .graph_ranks import disagreements
from .graph_result import GraphFigures
from .graph_syncs import synchronisations
from .graph_words import graph_findings, graphs_on_ranks
from .ranks import rank_of_device
from .vocabulary import PHASES


def graph_nodes_missing(trace: Trace, launch: I64) -> str | None:
    """Why the kernels of graphs are not in the recording, or ``None`` if they are.

    ``launch`` is the row of the launch of each op.
    """
    whole = int(np.count_nonzero(trace.ops.kind == OpKind.GRAPH))
    rows = graph_launch_rows(trace)
    with_ops = int(np.isin(rows, launch).sum())
    if whole:
        return f"{whole} graph launches were recorded whole, without their kernels (--cuda-graph-trace=graph)"
    if len(rows) and with_ops < len(rows) / 2:
        return f"{len(rows) - with_ops} of {len(rows)} graph launches have no recorded kernel"
    return None


def graph_figures(attribution: Attribution, device: int, figures: DeviceFigures) -> GraphFigures:
    """The graph figures of one device over its decode steps; ``figures`` are its other ones."""
    trace = attribution.trace
    rows = decode_rows(attribution, device)
    in_graphs = rows[trace.ops.graph_launch[rows] >= 0]
    found = graph_launches(attribution, device)
    lead = launch_leads(attribution, device, found.first if len(found.first) else _first_of_launch(attribution, rows))
    nodes_known = graph_nodes_missing(trace, attribution.launch) is None
    idle_known = figures.partition_ns["gap_sync"] is not None
    steps, crossed = PhaseSteps.of(attribution, device), crossings(attribution, device)
    start = trace.launches.start[found.call]
    graphs = GraphFigures(
        launches_per_step=_per_step(len(found.first), figures.steps),
        nodes_per_launch=_nodes_by_phase(found),
        ops_outside_graphs_per_step=_per_step(len(rows) - len(in_graphs), figures.steps),
        launch_call_ns_median=median(trace.launches.end[found.call] - start),
        first_op_latency_ns_median=median(trace.ops.start[found.first] - start),
        launch_lead_ns_median=median(lead),
        run_ahead_share=float((lead > 0).mean()) if len(lead) else None,
        captured_batch_size=padding_of(attribution, in_graphs).captured,
        phases=graph_phases(attribution, device, figures, found, nodes_known),
        outside=outside_ops(attribution, device),
        fallbacks=fallbacks(steps, idle_known),
        fallback_ns=fallback_ns(steps, idle_known),
        eager_phases=eager_phases(steps),
        boundaries=boundaries(attribution, device, crossed),
        synchronisations=synchronisations(attribution, device, crossed, idle_known),
    )
    ranks = graphs_on_ranks(disagreements(attribution), rank_of_device(trace)) if nodes_known else ()
    return structs.replace(graphs, findings=(*graph_findings(graphs, figures.steps), *ranks))


def _first_of_launch(attribution: Attribution, rows: Index) -> Index:
    """Ops of ``rows`` that have a launch, the earliest of each."""
    launched = rows[attribution.launch[rows] >= 0]
    order = launched[np.argsort(attribution.trace.ops.start[launched], kind="stable")]
    _, first = np.unique(attribution.launch[order], return_index=True)
    return order[np.sort(first)]


def _nodes_by_phase(found: GraphLaunches) -> dict[str, int]:
    codes = np.unique(found.phase).tolist()
    return {PHASES[code]: int(np.median(found.size[found.phase == code])) for code in codes}


def _per_step(count: int, steps: int) -> float | None:
    return count / steps if steps else None
