"""Coverage of CUDA graphs: small traces, and the tables worked out by hand beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from profkit import Recording, analyze
from profkit.analyzers import attribute
from profkit.analyzers.graph_result import Boundary, GraphFigures, OutsideOps, Synchronisation
from profkit.analyzers.result import TraceFigures
from profkit.traces import Trace
from tests.analyzers.engine import Plan, run
from tests.analyzers.random_traces import traces
from tests.builders import TraceBuilder


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("case", "", trace)])[0].traces[0]


def graphs_of(trace: Trace, device: int = 0) -> GraphFigures:
    return figures_of(trace).graphs[str(device)]


def two_cycles() -> TraceBuilder:
    """Two steps of 1,000 ns: a draft graph of two nodes, one of verify with three, a copy and an accept outside.

    On the GPU of each step: copy 60-80, draft 110-140 and 150-190, verify 320-400, 410-500 and 500-520 (a gap of 10
    in each graph), accept 620-630.
    """
    builder = TraceBuilder()
    for at in (1_000, 2_000):
        builder.range(at, at + 900, "step:decode bs=3")
        builder.range(at + 10, at + 180, "draft").range(at + 20, at + 60, "prepare")
        builder.call(at + 30, at + 50, "cudaMemcpyAsync").op("HtoD", at + 60, at + 80)
        builder.graph(at + 70, at + 100, ("gemm", at + 110, at + 140), ("gemm", at + 150, at + 190))
        builder.range(at + 200, at + 300, "target")
        nodes = ("gemm", at + 320, at + 400), ("attention", at + 410, at + 500), ("gemm", at + 500, at + 520)
        builder.graph(at + 210, at + 290, *nodes)
        builder.range(at + 530, at + 600, "accept").launch(at + 540, at + 570, "argmax", at + 620, at + 630)
        builder.call(at + 575, at + 635, "cudaStreamSynchronize")
    return builder


def test_ops_and_time_inside_and_outside() -> None:
    phases = graphs_of(two_cycles().trace()).phases
    table = {
        name: (p.ops_in_graphs, p.in_graphs_ns, p.ops_outside, p.outside_ns, p.launches) for name, p in phases.items()
    }
    assert table == {
        "draft": (4, 2 * (30 + 40), 2, 2 * 20, 2),
        "verify": (6, 2 * (80 + 90 + 20), 0, 0, 2),
        "accept": (0, 0, 2, 2 * 10, 0),
    }


def test_launches_and_first_ops() -> None:
    """Draft's first op waits 10 ns behind its call's start at 70 and the copy's end at 80; verify's for 110 ns."""
    phases = graphs_of(two_cycles().trace()).phases
    draft, verify, accept = (phases[name] for name in ("draft", "verify", "accept"))
    assert (draft.nodes_per_launch, verify.nodes_per_launch, accept.nodes_per_launch) == (2, 3, None)
    assert (draft.launch_call_ns_median, verify.launch_call_ns_median) == (30, 80)
    assert (draft.first_op_latency_ns_median, verify.first_op_latency_ns_median) == (40, 110)
    assert (draft.first_op_after_free_ns_median, verify.first_op_after_free_ns_median) == (30, 110)
    assert (draft.gap_in_graph_ns, verify.gap_in_graph_ns, accept.gap_in_graph_ns) == (20, 20, 0)
    assert (draft.gap_ns_per_node, accept.gap_ns_per_node) == (5.0, None)
    assert verify.gap_ns_per_node == pytest.approx(20 / 6)


def test_what_stays_outside_and_what_launched_it() -> None:
    assert graphs_of(two_cycles().trace()).outside == (
        OutsideOps("draft", "memcpy HtoD", "prepare", "cudaMemcpyAsync", 2, 40, 2, 40),
        OutsideOps("accept", "argmax", "accept", "cudaLaunchKernel", 2, 20, 2, 60),
    )


def test_ranges_of_libraries_and_batch_sizes_set_nothing_apart() -> None:
    """A collective is launched inside the range that its library pushed: the engine's own range around it counts."""
    builder = TraceBuilder()
    for at, batch in ((0, 1), (1_000, 2)):
        builder.range(at, at + 900, f"step:decode bs={batch}").range(at + 10, at + 50, "ncclAllReduce", "NCCL")
        builder.launch(at + 20, at + 30, "all_reduce", at + 40, at + 100)
    (row,) = graphs_of(builder.trace()).outside
    assert (row.range, row.api, row.ops, row.calls, row.host_ns) == ("step:decode", "cudaLaunchKernel", 2, 2, 20)


def test_a_call_that_owns_two_ops_counts_once() -> None:
    builder = TraceBuilder().range(0, 100, "step:decode bs=1").call(10, 30, "cudaLaunchKernel")
    builder.op("gemm", 40, 50).op("memset", 60, 65)
    rows = {row.name: (row.ops, row.calls, row.host_ns) for row in graphs_of(builder.trace()).outside}
    assert rows == {"nvjet_tst_64x8_64x16": (1, 1, 20), "memset": (1, 0, 0)}


def test_leads_at_each_boundary() -> None:
    """Verify's call at 210 comes 20 ns behind draft's end at 190; the next draft's first one at 1,030 behind 630."""
    assert graphs_of(two_cycles().trace()).boundaries == (
        Boundary("draft", "verify", False, 2, 190 - 210, 0.0),
        Boundary("verify", "draft", True, 1, 630 - 1_030, 0.0),
    )


def test_plain_steps_follow_each_other() -> None:
    """The second call comes 40 ns before the first step's work ends, the third 30 ns behind the second's."""
    builder = TraceBuilder()
    for at, op in ((0, 50), (60, 110), (190, 240)):
        builder.range(at, at + 40, "step:decode bs=1").range(at + 5, at + 30, "target")
        builder.graph(at + 10, at + 20, ("gemm", op, op + 60), ("gemm", op + 60, op + 60))
    builder.rank(0)
    assert graphs_of(builder.trace()).boundaries == (Boundary("decode", "decode", True, 2, 5, 0.5),)


def test_no_boundary_across_a_prefill() -> None:
    builder = TraceBuilder()
    for at in (0, 1_000, 3_000):
        builder.range(at, at + 90, "step:decode bs=1").range(at + 5, at + 80, "target")
        builder.launch(at + 10, at + 20, "gemm", at + 30, at + 60)
    builder.range(2_000, 2_500, "step:prefill bs=1").launch(2_010, 2_020, "gemm", 2_030, 2_400)
    builder.call(2_600, 2_700, "cudaDeviceSynchronize")
    found = graphs_of(builder.trace())
    assert [(row.before, row.after, row.count) for row in found.boundaries] == [("decode", "decode", 1)]
    # Across the prefill only what the GPU idles for is told: from 2,600 to 2,700.
    assert found.synchronisations == (Synchronisation(None, None, False, "cudaDeviceSynchronize", None, 1, 100, 100),)


def test_blocking_calls_between_phases() -> None:
    """The GPU is idle from 630 on; the call that began at 575 ends at 635: 5 ns of its 60 behind the first verify.

    Behind the last verify nothing follows: that call leads nowhere, and the GPU idles for nothing.
    """
    figures = figures_of(two_cycles().trace())
    assert figures.graphs["0"].synchronisations == (
        Synchronisation("verify", "draft", True, "cudaStreamSynchronize", "accept", 1, 60, 5),
    )
    assert figures.devices["0"].partition_ns["gap_sync"] == 5


def test_a_call_inside_another_one_is_part_of_it() -> None:
    """One wait seen twice: by the runtime from 100 to 200, by the driver from 110 to 190."""
    builder = TraceBuilder()
    for at in (0, 300):
        builder.range(at, at + 90, "step:decode bs=1").range(at + 5, at + 80, "target")
        builder.launch(at + 10, at + 20, "gemm", at + 30, at + 60)
    builder.range(95, 210, "read tokens", "").call(100, 200, "cudaStreamSynchronize").call(
        110, 190, "cuStreamSynchronize"
    )
    found = graphs_of(builder.trace())
    assert found.synchronisations == (
        Synchronisation("decode", "decode", True, "cudaStreamSynchronize", "read tokens", 1, 100, 100),
    )


def test_whole_graphs_leave_unknown_what_is_inside() -> None:
    builder = TraceBuilder()
    for at in (0, 1_000):
        builder.range(at, at + 500, "step:decode bs=1").range(at + 5, at + 400, "target")
        builder.call(at + 10, at + 20, "cudaGraphLaunch").node("whole_graph", at + 30, at + 300)
        builder.launch(at + 310, at + 320, "gemm", at + 330, at + 340)
    decode = graphs_of(builder.trace()).phases["decode"]
    assert (decode.ops_in_graphs, decode.in_graphs_ns, decode.launches, decode.nodes_per_launch) == (None,) * 4
    assert (decode.gap_in_graph_ns, decode.padding_ns) == (None, None)
    assert (decode.ops_outside, decode.outside_ns, decode.launch_call_ns_median) == (2, 20, 10)


# -- What holds of any trace -----------------------------------------------------------------------------------------


def check_sums(trace: Trace, figures: TraceFigures) -> None:
    """No op lost, and idle time that sums to the partition's."""
    attribution = attribute(trace)
    for name, graphs in figures.graphs.items():
        rows = np.flatnonzero((trace.ops.device == int(name)) & attribution.in_decode)
        spent = int((trace.ops.end - trace.ops.start)[rows].sum())
        phases, device = graphs.phases.values(), figures.devices[name]
        assert sum((p.ops_in_graphs or 0) + p.ops_outside for p in phases) == len(rows)
        assert sum((p.in_graphs_ns or 0) + p.outside_ns for p in phases) == spent
        assert sum(row.ops for row in graphs.outside) == sum(p.ops_outside for p in phases)
        assert sum(row.gpu_ns for row in graphs.outside) == sum(p.outside_ns for p in phases)
        calls = np.unique(attribution.launch[rows[trace.ops.graph_launch[rows] < 0]])
        launches = trace.launches
        assert sum(row.host_ns for row in graphs.outside) == int((launches.end - launches.start)[calls].sum())
        if device.partition_ns["gap_sync"] is not None:
            assert sum(row.gap_sync_ns or 0 for row in graphs.synchronisations) == device.partition_ns["gap_sync"]
            inside = sum(device.phase_partition_ns.get(phase, {}).get("gap_in_graph") or 0 for phase in graphs.phases)
            assert sum(p.gap_in_graph_ns or 0 for p in phases) == inside


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(traces())
def test_any_trace_adds_up(trace: Trace) -> None:
    check_sums(trace, figures_of(trace))


@pytest.mark.parametrize("plan", [Plan(), Plan(eager=True), Plan(block_after_draft=True)], ids=str)
def test_the_engine_adds_up(plan: Plan) -> None:
    trace = run(plan, replace(plan, late_before_target=300_000))
    check_sums(trace, figures_of(trace))


def test_a_planted_block_stands_between_draft_and_verify() -> None:
    plan = Plan(block_after_draft=True)
    found = graphs_of(run(plan, plan))
    row = next(row for row in found.synchronisations if (row.before, row.after) == ("draft", "verify"))
    assert (row.api, row.calls) == ("cudaStreamSynchronize", 8)
    lead = {(row.before, row.after): row for row in found.boundaries}["draft", "verify"]
    assert lead.run_ahead_share == 0.0 and (lead.launch_lead_ns_median or 0) < 0
    calm = graphs_of(run(Plan(), Plan()))
    assert {row.run_ahead_share for row in calm.boundaries if not row.next_step} == {1.0}
