"""Coverage of CUDA graphs in real recordings: no op lost, sums that are the partition's, and what is known of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from profkit import Recording, analyze, open_trace
from profkit.analyzers.graph_result import GraphFigures
from profkit.analyzers.result import TraceFigures
from profkit.traces import Trace
from tests.analyzers.test_graph_coverage import check_sums
from tests.shared_files import shared

TRACES = Path(__file__).parents[2] / "traces"
CAPTURES = ("ep2-dflash-graph-c1", "ep2-dflash-eager-c1", "ep2-ar-graph-c1")
SWEPT = [f"ep2-dflash/{name}" for name in ("c1", "c1-eager", "c32", "c32-eager", "c128", "c128-eager")]


@cache
def recorded(name: str) -> tuple[Trace, TraceFigures]:
    place = TRACES / name if "/" in name else shared(f"captures/{name}")
    trace = open_trace(place)
    return trace, analyze([Recording(name, str(place), trace)])[0].traces[0]


def ranks(name: str) -> list[GraphFigures]:
    return list(recorded(name)[1].graphs.values())


@pytest.mark.parametrize("name", [*(f"{capture}.sqlite.xz" for capture in CAPTURES), *SWEPT])
def test_no_op_is_lost(name: str) -> None:
    check_sums(*recorded(name))


def test_eight_launches_of_each_forward_in_eight_steps() -> None:
    """The second rank's drafter graph has one node more."""
    for graphs, nodes in zip(ranks("ep2-dflash-graph-c1.sqlite.xz"), (105, 106), strict=True):
        draft, verify = graphs.phases["draft"], graphs.phases["verify"]
        assert (draft.launches, draft.nodes_per_launch, draft.ops_in_graphs) == (8, nodes, 8 * nodes)
        assert (verify.launches, verify.nodes_per_launch, verify.ops_in_graphs) == (8, 1071, 8 * 1071)
        assert (verify.ops_outside, graphs.eager_phases, graphs.fallbacks) == (16, (), ())
        assert sum(row.ops for row in graphs.outside) == 8 * 55


def test_a_launch_without_a_graph_is_outside() -> None:
    graphs = ranks("ep2-dflash-eager-c1.sqlite.xz")[0]
    assert not any(phase.launches or phase.ops_in_graphs for phase in graphs.phases.values())
    assert graphs.findings[0].startswith("no graph is launched: ")
    assert {row.range for row in graphs.outside if row.phase == "verify"} == {"target"}


@pytest.mark.parametrize("name", SWEPT)
def test_boundaries_of_a_cycle(name: str) -> None:
    for graphs in ranks(name):
        found = [(row.before, row.after, row.next_step, row.count) for row in graphs.boundaries]
        assert found == [("draft", "verify", False, 8), ("verify", "draft", True, 7)]
        if "eager" in name:
            assert graphs.synchronisations[0].before == "verify"
        assert {row.api for row in graphs.synchronisations} == {"cudaEventSynchronize"}


@pytest.mark.parametrize(("name", "batch"), [("c1", 1), ("c32", 32), ("c128", 128)])
def test_the_sweeps_ran_at_captured_sizes(name: str, batch: int) -> None:
    for graphs in ranks(f"ep2-dflash/{name}"):
        for phase in ("draft", "verify"):
            found = graphs.phases[phase]
            assert (found.batch_size, found.captured_batch_size) == (batch, batch)
            assert (found.padded_steps, found.padding_ns) == (0, 0)


def test_inferred_phases_have_coverage_too() -> None:
    """A Kineto recording: 19 cycles, and nobody says for which sizes its graphs were captured."""
    (graphs,) = ranks("dense8b-dflash-graph-c1.kineto.json.gz")
    launches = {name: phase.launches for name, phase in graphs.phases.items()}
    assert launches == {"draft": 19, "verify": 19, "step_other": 0}
    assert graphs.phases["verify"].padded_steps is None
    assert [(row.before, row.after, row.count) for row in graphs.boundaries] == [
        ("draft", "verify", 19),
        ("verify", "draft", 18),
    ]
