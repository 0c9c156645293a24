"""The recordings made for this project: every figure of ``expected.json``, exactly, and the answers they must give."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from profkit import Recording, analyze, open_trace
from profkit.analyzers.result import Cause, TraceFigures
from tests.shared_files import shared

NSYS = ("ep2-dflash-graph-c1", "ep2-dflash-eager-c1", "ep2-ar-graph-c1")


@cache
def expected() -> dict[str, Any]:
    return msgspec.json.decode(shared("captures/expected.json").read_bytes())  # type: ignore[no-any-return]


@cache
def figures_of(name: str) -> TraceFigures:
    file = shared(f"captures/{name}")
    return analyze([Recording(name, str(file), open_trace(file))])[0].traces[0]


@pytest.mark.parametrize("device", ["0", "1"])
@pytest.mark.parametrize("name", NSYS)
def test_every_figure(name: str, device: str) -> None:
    found = msgspec.to_builtins(figures_of(f"{name}.sqlite.xz").devices[device])
    assert _wrong(expected()[name][device], found) == []


def _wrong(table: Any, found: Any, where: str = "") -> list[str]:
    if isinstance(table, dict):
        return [line for key, value in table.items() for line in _wrong(value, found[key], f"{where}.{key}")]
    return [] if table == found else [f"{where}: {found}, not {table}"]


def test_nothing_beside_the_expected_phases() -> None:
    for name in NSYS:
        for device, table in expected()[name].items():
            assert set(figures_of(f"{name}.sqlite.xz").devices[device].phases) == set(table["phases"])


@pytest.mark.parametrize(
    ("name", "walls"), [("ep2-dflash-graph-c1", (7_420, 7_362)), ("ep2-dflash-eager-c1", (129_253, 129_470))]
)
def test_wall_per_step(name: str, walls: tuple[int, int]) -> None:
    for device, microseconds in zip(("0", "1"), walls, strict=True):
        figures = figures_of(f"{name}.sqlite.xz").devices[device]
        assert figures.window is not None
        assert figures.window.wall_ns // figures.steps // 1000 in (microseconds - 1, microseconds)


def test_eager_waiting_is_the_other_ranks_python() -> None:
    eager = figures_of("ep2-dflash-eager-c1.sqlite.xz")
    waiting, late = eager.devices["0"].collectives, eager.devices["1"]
    steps = eager.devices["0"].steps
    assert waiting.exposed_ns is not None and waiting.skew_ns is not None and waiting.transfer_ns is not None
    assert round(waiting.exposed_ns / steps / 1e6, 1) == 104.6
    assert round(waiting.skew_ns / steps / 1e6, 1) == 103.5
    assert round(waiting.transfer_ns / steps / 1e6, 2) == 1.24
    assert round((late.partition_ns["gap_host"] or 0) / late.steps / 1e6, 1) == 102.7
    blame = waiting.skew_blame_ns
    host = sum(blame[part] or 0 for part in ("gap_host", "gap_launch", "gap_api", "gap_sync"))
    assert host > 0.9 * waiting.skew_ns


def causes(name: str) -> tuple[Cause, ...]:
    return figures_of(name).verdict


def test_eager_verdict() -> None:
    figures = figures_of("ep2-dflash-eager-c1.sqlite.xz")
    first = figures.verdict[0]
    assert (first.cause, first.rank) == ("straggler_host", 1)
    assert 100e6 < first.ns_per_step < 106e6
    assert "rank 0 waits 103 ms of a 129 ms step" in figures.summary.lower()
    assert "CUDA graphs" in figures.summary


def test_eager_transfer_is_no_first_cause() -> None:
    link = next(cause for cause in causes("ep2-dflash-eager-c1.sqlite.xz") if cause.cause == "link_bound")
    assert link.ns_per_step < 1.3e6


def test_graph_verdict_is_the_steps_own_work() -> None:
    found = causes("ep2-dflash-graph-c1.sqlite.xz")
    assert [cause.cause for cause in found[:3]] == ["verify_cost", "link_bound", "drafter_cost"]
    assert all(cause.ns_per_step < 0.05 * 7.4e6 for cause in found if cause.cause.startswith("straggler"))


def test_plain_verdict_has_no_drafter() -> None:
    found = {cause.cause for cause in causes("ep2-ar-graph-c1.sqlite.xz")}
    assert "drafter_cost" not in found and "verify_cost" not in found
    cycle = figures_of("ep2-ar-graph-c1.sqlite.xz").cycle
    assert (cycle.kind, cycle.steps, cycle.accept_len) == ("plain", 10, 1.0)


def test_graphs_of_the_recordings() -> None:
    graphs = figures_of("ep2-dflash-graph-c1.sqlite.xz").graphs["0"]
    # The second rank's drafter graph has one node more: 952 ops of draft against 960 in 8 steps.
    assert graphs.nodes_per_launch == {"draft": 105, "verify": 1071}
    assert figures_of("ep2-dflash-graph-c1.sqlite.xz").graphs["1"].nodes_per_launch == {"draft": 106, "verify": 1071}
    assert (graphs.launches_per_step, graphs.ops_outside_graphs_per_step) == (2.0, 55.0)
    eager = figures_of("ep2-dflash-eager-c1.sqlite.xz").graphs
    assert [rank.launches_per_step for rank in eager.values()] == [0.0, 0.0]
    # The rank that the other waits for has no run-ahead; the waiting one has all it wants.
    assert (eager["1"].run_ahead_share or 1.0) < 0.2 < 0.8 < (eager["0"].run_ahead_share or 0.0)


def test_comparison_of_plain_and_speculative() -> None:
    recordings = [
        Recording(name, name, open_trace(shared(f"captures/{name}.sqlite.xz")))
        for name in ("ep2-ar-graph-c1", "ep2-dflash-graph-c1")
    ]
    comparison = analyze(recordings, accept_len=3.5)[0].comparison
    assert comparison is not None
    assert (comparison.baseline, comparison.speculative) == ("ep2-ar-graph-c1", "ep2-dflash-graph-c1")
    # 7,031,205 ns a cycle over 4,828,521 ns a plain step.
    assert round(comparison.break_even_accept_len, 4) == 1.4562
    assert round(comparison.predicted_speedup or 0, 3) == 2.404


def test_the_comparison_alike_in_graphs_comes_first() -> None:
    """Raw exports do not say whether a run had graphs; the steps do."""
    names = ("ep2-dflash-eager-c1", "ep2-dflash-graph-c1", "ep2-ar-graph-c1")
    found = analyze([Recording(n, n, open_trace(shared(f"captures/{n}.sqlite.xz"))) for n in names])[0].comparisons
    assert [(one.speculative, one.same_graphs) for one in found] == [
        ("ep2-dflash-graph-c1", True), ("ep2-dflash-eager-c1", False),
    ]  # fmt: skip


def test_kineto_drafter_and_verify_told_apart() -> None:
    """All 38 forwards are called TARGET_VERIFY; 19 graphs of 81 nodes alternate with 19 of 551."""
    figures = figures_of("dense8b-dflash-graph-c1.kineto.json.gz")
    device = figures.devices["0"]
    assert (device.steps, figures.cycle.steps, figures.cycle.kind) == (19, 19, "speculative")
    assert figures.graphs["0"].nodes_per_launch == {"draft": 81, "verify": 551}
    draft, verify = device.phases["draft"], device.phases["verify"]
    assert (draft.graph_ops, verify.graph_ops) == (19 * 81, 19 * 551)
    assert (draft.union_ns, verify.union_ns) == (19_627_004, 104_787_058)
    assert draft.inferred and verify.inferred and device.phases["step_other"].inferred
    assert figures.cycle.phases_inferred
    assert {check.id: check.status for check in figures.health.checks}["phases"] == "warn"


def test_kineto_prefill_comes_from_a_label() -> None:
    prefill = figures_of("dense8b-dflash-graph-c1.kineto.json.gz").devices["0"].phases["prefill"]
    assert not prefill.inferred
