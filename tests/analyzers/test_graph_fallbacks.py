"""Padding, fallbacks to eager, and ranks without the graphs of others: small traces and figures worked out by hand."""

from __future__ import annotations

import pytest

from profkit.analyzers.graph_result import Fallback, PaddedBatch
from profkit.traces import Run, Trace
from tests.analyzers.engine import Plan, run
from tests.analyzers.test_graph_coverage import figures_of, graphs_of
from tests.builders import TraceBuilder


def plain_steps(*steps: tuple[int, bool, int], sizes: tuple[int, ...] = ()) -> Trace:
    """Steps of 1,000 ns of a batch, in a graph or not, whose two kernels take as long as given together."""
    builder = TraceBuilder().run(Run(graph_batch_sizes=sizes))
    for number, (batch, graphed, length) in enumerate(steps):
        at = number * 1_000
        builder.range(at, at + 500, f"step:decode bs={batch}").range(at + 5, at + 400, "target")
        first, second = ("gemm", at + 30, at + 40), ("attention", at + 40, at + 30 + length)
        if graphed:
            builder.graph(at + 10, at + 20, first, second)
        else:
            builder.launch(at + 10, at + 20, *first).launch(at + 21, at + 25, *second)
    return builder.trace()


def test_padding_by_the_sizes_of_the_run() -> None:
    """Batch 3 replays the graph for 4, batch 5 the one for 8: at most 1/4 of 100 ns and 3/8 of 80 ns, twice."""
    steps = ((3, True, 100), (5, True, 80), (5, True, 80), (8, True, 90))
    decode = graphs_of(plain_steps(*steps, sizes=(1, 2, 4, 8))).phases["decode"]
    assert (decode.batch_size, decode.captured_batch_size) == (5, 8)
    assert (decode.padded_steps, decode.padding_ns) == (3, 25 + 60)


def test_padding_by_a_replay_for_a_larger_batch() -> None:
    """Nobody says what was captured, but the nodes of batch 5 served 8 too; what 8 was captured for is unknown."""
    decode = graphs_of(plain_steps((5, True, 80), (5, True, 80), (8, True, 90))).phases["decode"]
    assert (decode.captured_batch_size, decode.padded_steps, decode.padding_ns) == (8, 2, 60)


def replays(batches: tuple[int, ...], graphs: tuple[int, ...]) -> Trace:
    """Steps of draft and target, 100 and 400 ns of graph each, that replay graphs of these numbers."""
    builder = TraceBuilder()
    for step, (batch, graph) in enumerate(zip(batches, graphs, strict=True)):
        at = 1_000 * step
        builder.range(at, at + 900, f"step:decode bs={batch}").range(at + 10, at + 100, "draft")
        builder.call(at + 20, at + 50, "cudaGraphLaunch").node("gemm", at + 60, at + 160, node=10 * graph)
        builder.range(at + 200, at + 300, "target")
        builder.call(at + 210, at + 290, "cudaGraphLaunch").node("gemm", at + 320, at + 720, node=10 * graph + 1)
    return builder.trace()


def test_padding_of_one_batch_size_in_two_graphs() -> None:
    """Batch 3 runs once in the graph of 4 and once in that of 8: 1/4 and 5/8 of 100 ns, and of 400 ns."""
    figures = figures_of(replays((3, 3, 4, 8), (1, 2, 1, 2)))
    draft, verify = (figures.graphs["0"].phases[name] for name in ("draft", "verify"))
    assert draft.padded == (PaddedBatch(3, 4, 1, 25), PaddedBatch(3, 8, 1, 62))
    assert (draft.batch_size, draft.padded_steps, draft.padding_ns) == (3, 2, 25 + 62)
    assert verify.padded == (PaddedBatch(3, 4, 1, 100), PaddedBatch(3, 8, 1, 250))
    text = next(cause.text for cause in figures.verdict if cause.cause == "padding")
    assert (
        "2 of 4 steps replay graphs for a larger batch (batch 3 in a graph for 4 and batch 3 in a graph for 8)" in text
    )


def test_padding_of_a_batch_that_is_not_the_usual_one() -> None:
    """The usual batch fills its graph, and one step of four does not: 1/4 of its 100 and 400 ns."""
    figures = figures_of(replays((3, 4, 4, 4), (1, 1, 1, 1)))
    draft = figures.graphs["0"].phases["draft"]
    assert (draft.batch_size, draft.captured_batch_size, draft.padded_steps, draft.padding_ns) == (4, 4, 1, 25)
    cause = next(cause for cause in figures.verdict if cause.cause == "padding")
    assert cause.ns_per_step == (25 + 100) // 4
    assert cause.text.endswith("capture graphs for batch 3")


def test_padding_is_unknown_where_nothing_tells() -> None:
    decode = graphs_of(plain_steps((5, True, 80), (5, True, 80))).phases["decode"]
    assert (decode.batch_size, decode.captured_batch_size) == (5, None)
    assert (decode.padded_steps, decode.padding_ns) == (None, None)


def test_no_padding_at_a_captured_size() -> None:
    decode = graphs_of(plain_steps((8, True, 80), (8, True, 80), sizes=(4, 8))).phases["decode"]
    assert (decode.captured_batch_size, decode.padded_steps, decode.padding_ns) == (8, 0, 0)


def test_steps_that_fall_back() -> None:
    """Walls: 1,000 ns from first op to first op; that of the last step, which has no graph either, is not known."""
    found = graphs_of(plain_steps((1, True, 100), (9, False, 300), (1, True, 100), (9, False, 600), sizes=(1, 8)))
    assert found.fallbacks == (Fallback("decode", (1, 3), (9, 9), 0),)
    assert found.fallback_ns == 0
    assert found.eager_phases == ()


def target_steps(*eager: int, prefill_behind: int | None = None, graphs: int = 1, steps: int = 6) -> Trace:
    """Steps of 1,000 ns with ``graphs`` graphs of two kernels, of which those ``eager`` lack the first one.

    Such a step takes 30 ns longer; 51,000 ns of prefill stand behind step ``prefill_behind``.
    """
    builder, at = TraceBuilder(), 0
    for step in range(steps):
        builder.range(at, at + 900, "step:decode bs=1").range(at + 10, at + 300, "target")
        for number in range(graphs):
            call, first = at + 20 + 40 * number, at + 70 + 200 * number
            nodes = ("gemm", first, first + 60), ("attention", first + 70, first + 150)
            if step in eager and number == 0:
                builder.launch(call, call + 10, *nodes[0]).launch(call + 15, call + 25, *nodes[1])
            else:
                builder.graph(call, call + 30, *nodes)
        at += 1_030 if step in eager else 1_000
        if step == prefill_behind:
            builder.range(at, at + 50_000, "step:prefill bs=1")
            builder.launch(at + 10, at + 20, "gemm", at + 30, at + 49_000)
            at += 51_000
    return builder.trace()


def test_a_fallback_is_not_charged_with_the_prefill_behind_it() -> None:
    alone = graphs_of(target_steps(2, prefill_behind=2))
    assert alone.fallbacks == (Fallback("decode", (2,), (1,), None),)
    assert alone.fallback_ns is None
    assert alone.findings[1] == "decode runs without its graph in 1 of 6 steps (step 2 from 0, at batch 1)"
    beside = graphs_of(target_steps(2, 4, prefill_behind=2))
    assert beside.fallbacks == (Fallback("decode", (2, 4), (1, 1), 30),)
    assert beside.fallback_ns == 2 * 30


def test_the_last_step_has_no_wall() -> None:
    assert graphs_of(target_steps(5)).fallbacks == (Fallback("decode", (5,), (1,), None),)


@pytest.mark.parametrize("graphs", [2, 4])
def test_a_fallback_of_a_part(graphs: int) -> None:
    """One of the step's graphs is missing, and its two kernels run outside."""
    trace = target_steps(2, graphs=graphs)
    found = graphs_of(trace)
    assert found.fallbacks == (Fallback("decode", (2,), (1,), 30, partial=True),)
    assert (found.fallback_ns, found.eager_phases) == (30, ())
    assert "decode runs partly outside of its graphs in 1 of 6 steps (step 2 from 0, at batch 1)" in found.findings[1]


def test_a_smaller_graph_is_no_fallback() -> None:
    """Batch 2 replays a graph of one node, and nothing more runs outside."""
    builder = TraceBuilder()
    for at, batch in ((0, 1), (1_000, 2), (2_000, 1), (3_000, 1)):
        builder.range(at, at + 500, f"step:decode bs={batch}").range(at + 5, at + 400, "target")
        nodes = ("gemm", at + 30, at + 40), ("attention", at + 40, at + 90)
        builder.graph(at + 10, at + 20, *nodes[: 1 if batch == 2 else 2])
    assert graphs_of(builder.trace()).fallbacks == ()


def test_a_rank_without_the_graphs_of_another() -> None:
    """Said on both ranks; a cause where the eager host is so slow that its GPU waits for it."""
    for python_ns, costs in ((2_000, False), (200_000, True)):
        figures = figures_of(run(Plan(), Plan(eager=True, python_per_launch=python_ns)))
        said = "draft and verify run in graphs on rank 0, but not on rank 1: ranks should run alike"
        assert [graphs.findings[-1] for graphs in figures.graphs.values()] == [said] * 2
        causes = [cause for cause in figures.verdict if cause.cause == "eager_fallback"]
        assert [cause.rank for cause in causes] == [1] * costs
        for cause in causes:
            assert "rank 1 runs draft and verify without the graphs that other ranks have" in cause.text
            waits = [
                sum(
                    figures.devices[device].phase_partition_ns[phase].get(part) or 0
                    for phase in ("draft", "verify")
                    for part in ("gap_sync", "gap_api", "gap_host", "gap_launch", "gap_graph_launch")
                )
                for device in ("1", "0")
            ]
            assert cause.ns_per_step == round((waits[0] - waits[1]) / 8)


def test_ranks_alike_are_not_spoken_of() -> None:
    for plan in (Plan(), Plan(eager=True)):
        assert not any(" on rank " in text for text in graphs_of(run(plan, plan)).findings)


def test_lost_kernels_are_no_missing_graphs() -> None:
    """Rank 1 launches its second graph without a recorded kernel: nobody knows that its verify was eager."""
    builder = TraceBuilder()
    for rank in (0, 1):
        builder.rank(rank)
        for at in (0, 1_000):
            builder.range(at, at + 900, "step:decode bs=1").range(at + 10, at + 100, "draft")
            builder.graph(at + 20, at + 30, ("gemm", at + 40, at + 60)).range(at + 110, at + 300, "target")
            builder.call(at + 120, at + 130, "cudaGraphLaunch")
            if rank == 0:
                builder.node("gemm", at + 140, at + 200, node=9)
            builder.launch(at + 210, at + 220, "argmax", at + 230, at + 240)
    assert not any(" on rank " in text for text in graphs_of(builder.trace()).findings)


def test_few_ops_are_not_rounded_away() -> None:
    found = graphs_of(target_steps(2)).findings[0]
    assert "0.3 ops per step stay outside and cost the GPU" in found
    assert graphs_of(target_steps()).findings[0] == "all GPU work of a step runs in graphs"


def test_a_fallback_that_costs_is_a_cause() -> None:
    """A batch beyond the captured ones runs eagerly, and the next step comes 4,000 ns later for it."""
    builder = TraceBuilder().run(Run(graph_batch_sizes=(1, 8)))
    for at, batch in ((0, 8), (1_000, 8), (2_000, 9), (7_000, 8), (8_000, 8)):
        builder.range(at, at + 900, f"step:decode bs={batch}").range(at + 5, at + 800, "target")
        if batch == 8:
            builder.graph(at + 10, at + 20, ("gemm", at + 30, at + 900))
        else:
            builder.launch(at + 10, at + 20, "gemm", at + 30, at + 900)
    figures = figures_of(builder.trace())
    assert figures.graphs["0"].fallback_ns == 4_000
    cause = next(cause for cause in figures.verdict if cause.cause == "eager_fallback")
    assert (cause.ns_per_step, cause.rank, cause.phase) == (800, None, "decode")
    assert cause.text.endswith("capture graphs for batch 9")
    assert "decode runs without its graph in 1 of 5 steps (step 2 from 0, at batch 9)" in " ".join(
        figures.graphs["0"].findings
    )


def test_a_phase_that_never_has_a_graph() -> None:
    builder = TraceBuilder()
    for at in (0, 1_000):
        builder.range(at, at + 900, "step:decode bs=1").range(at + 5, at + 100, "draft")
        builder.launch(at + 10, at + 20, "gemm", at + 30, at + 60)
        builder.range(at + 110, at + 200, "target").graph(at + 120, at + 130, ("gemm", at + 140, at + 300))
    found = graphs_of(builder.trace())
    assert (found.eager_phases, found.fallbacks, found.fallback_ns) == (("draft",), (), 0)
    assert "draft never runs in a graph, though verify does" in found.findings
