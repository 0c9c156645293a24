"""The costs of graphs hold for the recordings they come from; ``ep2-dflash``, which is predicted, is not among them."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.analyzers.graphs import graph_launch_rows
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.replay import build_model
from profkit.analyzers.replay.costs import HIGH, LOW, USUAL
from profkit.analyzers.replay.pace import launch_call_ns
from tests.analyzers.replay.test_recorded import attributed

SOURCES = [f"{sweep}/{name}" for sweep in ("tp1", "tp1-dflash", "ep2") for name in ("c1", "c32", "c128")]


def graphs_of(name: str) -> tuple[float, list[tuple[int, int, float, float]]]:
    """A launch call in ns; per graph launch: nodes, ns of its call, of the pause before it, and of gaps per node."""
    attribution = attributed(name)
    trace, launch = attribution.trace, attribution.launch
    model = build_model(attribution, match_collectives(attribution))
    found = []
    for row in graph_launch_rows(trace).tolist():
        ops = np.flatnonzero(launch == row)
        call = np.flatnonzero(model.calls.row == row)
        if not len(ops) or not len(call):
            continue
        ops = ops[np.argsort(trace.ops.start[ops], kind="stable")]
        gaps = trace.ops.start[ops][1:] - np.maximum.accumulate(trace.ops.end[ops])[:-1]
        length = int(trace.launches.end[row] - trace.launches.start[row])
        found.append((len(ops), length, float(model.calls.before[call[0]]), float(np.clip(gaps, 0, None).mean())))
    return launch_call_ns(model), found


@pytest.mark.parametrize("name", SOURCES)
def test_costs_of_recorded_graphs(name: str) -> None:
    launch, graphs = graphs_of(name)
    nodes, call, pause, gap = (np.array(column, np.float64) for column in zip(*graphs, strict=True))
    for size in sorted({int(count) // 300 for count in nodes}):
        own = nodes // 300 == size
        low, high = (costs.call + costs.call_per_node * np.median(nodes[own]) for costs in (LOW, HIGH))
        assert low <= np.median(call[own]) / launch <= high
        assert LOW.lead_in <= np.median(pause[own]) / launch <= HIGH.lead_in
        assert LOW.node_gap <= np.median(gap[own]) <= HIGH.node_gap


def test_the_usual_lies_between() -> None:
    for name in USUAL.__slots__:
        assert getattr(LOW, name) < getattr(USUAL, name) < getattr(HIGH, name)
