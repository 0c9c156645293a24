"""Recordings that begin or end inside a step, also on one rank only: what is whole is matched, and it is said."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from profkit import Recording, Trace, analyze
from profkit.analyzers.attribution import attribute
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.result import TraceFigures
from tests.analyzers.engine import run
from tests.analyzers.test_verdict import CALM
from tests.builders import TraceBuilder

SLOW = replace(CALM, speed=1.5)


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("cut", "cut", trace)])[0].traces[0]


def told(figures: TraceFigures, check: str) -> list[str]:
    return [one.detail for one in figures.health.checks if one.id == check and one.status == "warn"]


def without(trace: Trace, pid: int, start: float, end: float) -> Trace:
    """The trace without the ops of a process that begin between two shares of the recording."""
    ops = trace.ops
    share = (ops.start - ops.start[0]) / (ops.end.max() - ops.start[0])
    return replace(trace, ops=ops.take(np.flatnonzero((ops.pid != pid) | (share < start) | (share >= end))))


@pytest.fixture(scope="module")
def whole() -> Trace:
    return run(CALM, SLOW, steps=12)


@pytest.mark.parametrize(("pid", "start", "end"), [(101, -1, 0.03), (101, 0.96, 2), (100, -1, 0.2), (100, 0.8, 2)])
def test_one_rank_is_cut_off(whole: Trace, pid: int, start: float, end: float) -> None:
    figures = figures_of(without(whole, pid, start, end))
    assert told(figures, "collectives") == [] and told(figures, "edge_steps")
    usual, found = figures_of(whole).verdict[0], figures.verdict[0]
    assert (found.cause, found.rank, found.phase) == (usual.cause, usual.rank, usual.phase)
    assert found.ns_per_step == pytest.approx(usual.ns_per_step, rel=0.05)


def test_both_ranks_are_cut_off(whole: Trace) -> None:
    cut = without(without(whole, 100, 0.96, 2), 101, 0.96, 2)
    figures = figures_of(cut)
    assert [detail.split(" with ")[0] for detail in told(figures, "cut_steps")] == [
        "the recording of rank 0 ends", "the recording of rank 1 ends",
    ]  # fmt: skip
    assert told(figures, "graph_node_counts") == []
    assert told(figures_of(whole), "cut_steps") == []


@pytest.mark.parametrize("kept", [0, 2, 20])
def test_a_graph_that_the_recording_cuts_off_is_no_loss(whole: Trace, kept: int) -> None:
    """Only its last few kernels are there, or a few are missing: the step has nearly all its ops."""
    ops = whole.ops
    mine = np.flatnonzero((ops.pid == 101) & (ops.graph_launch >= 0))
    first = np.flatnonzero((ops.pid == 101) & (ops.graph_launch == ops.graph_launch[mine[0]]))
    begins = first[len(first) - 1 - kept] if kept < len(first) else first[1]
    gone = np.flatnonzero((ops.pid == 101) & (ops.start < ops.start[begins]))
    figures = figures_of(replace(whole, ops=ops.take(np.setdiff1d(np.arange(len(ops)), gone))))
    assert told(figures, "graph_node_counts") == []


@pytest.mark.parametrize(("start", "end"), [(0.47, 0.52), (0.515, 0.53)])
def test_records_lost_in_the_middle_are_no_cut(whole: Trace, start: float, end: float) -> None:
    figures = figures_of(without(whole, 101, start, end))
    assert told(figures, "collectives") and told(figures, "graph_node_counts")
    assert figures.devices["0"].collectives.skew_ns is None


def test_a_graph_without_its_first_kernels_is_uneven(whole: Trace) -> None:
    ops = whole.ops
    first = np.flatnonzero((ops.pid == 101) & (ops.graph_node >= 5000) & (ops.graph_node < 5010))
    lost = first[len(first) // 2 :][:10]
    figures = figures_of(replace(whole, ops=ops.take(np.setdiff1d(np.arange(len(ops)), lost))))
    assert told(figures, "graph_node_counts")


def test_clocks_are_compared_where_no_record_is_lost(whole: Trace) -> None:
    """Of the steps with lost collectives, others meet in the wrong order: as if the clocks were far apart."""
    source = np.random.default_rng(1)
    ops = whole.ops
    share = (ops.start - ops.start[0]) / (ops.end.max() - ops.start[0])
    lost = (ops.pid == 101) & (share > 0.2) & (source.random(len(ops)) < 0.3)
    matched = match_collectives(attribute(replace(whole, ops=ops.take(np.flatnonzero(~lost)))))
    assert matched.mismatches and set(matched.clock_offset.values()) == {0}


DIFFER = "all_reduce differs in 2 of 5 steps (first in step 0: 2 on device 0, 1 on device 1)"


@pytest.mark.parametrize(("lost", "edge", "told"), [([(0, 0)], 1, []), ([(0, 0), (2, 1)], 0, [DIFFER])])
def test_no_step_is_cut_off_where_another_lacks_records(
    lost: list[tuple[int, int]], edge: int, told: list[str]
) -> None:
    """Of five steps with two all-reduces each, rank 1 lacks the first of all; then one in the middle as well."""
    builder = TraceBuilder()
    for rank, step in product((0, 1), range(5)):
        at = 100 * step
        builder.rank(rank).range(at, at + 90, "step:decode bs=1")
        for place in (0, 1):
            if rank == 0 or (step, place) not in lost:
                call, start = at + 10 + 10 * place, at + 40 + 30 * place
                builder.launch(call, call + 5, "all_reduce", start, start + 20)
    matched = match_collectives(attribute(builder.trace()))
    assert (matched.edge_steps, list(matched.mismatches)) == (edge, told)
