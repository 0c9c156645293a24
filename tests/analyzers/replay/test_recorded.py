"""The what-if of the recorded eager runs against the recorded runs with graphs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from profkit.analyzers import Attribution, attribute
from profkit.analyzers.cycle import cycle_of
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.replay import build_model, predict_graphs, simulate
from profkit.analyzers.replay.costs import USUAL
from profkit.analyzers.replay.forwards import forwards_of
from profkit.analyzers.replay.graphing import with_graphs
from profkit.analyzers.replay.pace import host_pace, host_times, paces_of, unrecorded_step_ns
from profkit.analyzers.replay.steps import periods, step_ns
from profkit.analyzers.replay.transform import scaled_work
from profkit.analyzers.vocabulary import CLASS
from profkit.traces import open_recordings, open_trace
from tests.analyzers.replay.steps import off_by
from tests.analyzers.test_sweeps import RECORDINGS
from tests.resources import calls_of
from tests.shared_files import shared

TRACES = Path(__file__).parents[3] / "traces"
CONCURRENCIES = ("c1", "c32", "c128")


@cache
def attributed(name: str) -> Attribution:
    return attribute(open_recordings(TRACES / name)[0].trace)


def recorded(name: str) -> int:
    period = cycle_of(attributed(name), None, "").period_ns_median
    assert period is not None
    return period


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recording_plays_back_to_the_nanosecond(name: str) -> None:
    assert off_by(attributed(name).trace) == 0


@pytest.mark.parametrize("concurrency", ("c1", "c32"))
def test_graph_step_is_predicted_within_10_percent(concurrency: str) -> None:
    eager = attributed(f"ep2-dflash/{concurrency}-eager")
    found = predict_graphs(eager, match_collectives(eager))
    step = recorded(f"ep2-dflash/{concurrency}")
    assert found.unknown is None and found.self_check_error == 0
    assert found.step_ns == pytest.approx(step, rel=0.1)
    assert found.low_ns is not None and found.high_ns is not None
    assert found.low_ns <= step <= found.high_ns


@pytest.mark.parametrize(
    "name, predicted, inside",
    [
        ("eager/c1", [8.35, 8.61, 8.88], False),
        ("eager/c1-cupti", [8.12, 8.38, 8.64], False),
        ("eager/c1-torch", [8.11, 8.37, 8.64], False),
        ("eager-2/c1", [7.87, 8.20, 8.53], True),
        ("eager-2/c1-cupti", [7.92, 8.25, 8.57], True),
        ("eager-2/c1-torch", [7.81, 8.11, 8.42], True),
    ],
)
def test_graph_step_from_an_eager_run_under_three_recorders(name: str, predicted: list[float], inside: bool) -> None:
    """Recorded with graphs: 8.05 ms, and 8.02 without a recorder: one eager run misses both, the later meets them."""
    eager, graphs = attributed(f"tp1-dflash-{name}"), recorded("tp1-dflash/c1")
    found = predict_graphs(eager, match_collectives(eager))
    timed = attributed("tp1-dflash/c1").trace.run.step_times
    assert found.low_ns is not None and found.step_ns is not None and found.high_ns is not None and timed is not None
    assert [round(ns / 1e6, 2) for ns in (found.low_ns, found.step_ns, found.high_ns)] == predicted
    assert [round(ns / 1e6, 2) for ns in (graphs, timed.median_ns)] == [8.05, 8.02]
    assert [found.low_ns <= step <= found.high_ns for step in (graphs, timed.median_ns)] == [inside, inside]


@pytest.mark.parametrize("concurrency", CONCURRENCIES)
def test_graph_step_at_the_context_of_the_graph_run(concurrency: str) -> None:
    # The runs were recorded at other context lengths, which only attention kernels notice; at 128 they differ by 1.4.
    eager, graphs = attributed(f"ep2-dflash/{concurrency}-eager"), attributed(f"ep2-dflash/{concurrency}")
    model = build_model(eager, match_collectives(eager))
    forwards = forwards_of(eager, model)
    times = host_times(with_graphs(model, forwards, USUAL, np.ones(2)).calls)
    host = host_pace(model, unrecorded_step_ns(eager)).factor * paces_of(times).usual
    launched = with_graphs(model, forwards, USUAL, host)
    attention = launched.work.kernel_class == CLASS["attention"]
    alike = scaled_work(launched, attention, attention_ns(graphs) / attention_ns(eager))
    step = step_ns(periods(alike.work, simulate(alike).start))
    assert step == pytest.approx(recorded(f"ep2-dflash/{concurrency}"), rel=0.1)


def attention_ns(attribution: Attribution) -> int:
    ops = attribution.trace.ops
    counted = attribution.in_decode & (attribution.kernel_class == CLASS["attention"])
    return int((ops.end - ops.start)[counted].sum())


def test_what_the_host_waits_for_is_found() -> None:
    eager = attributed("ep2-dflash/c1-eager")
    model = build_model(eager, match_collectives(eager))
    # Seven boundaries between eight steps, at each of which two ranks meet; the first waits have nothing before them.
    assert (np.bincount(model.calls.meeting[model.calls.meeting >= 0]) == 2).sum() == 7
    assert (model.calls.awaited >= 0).sum() == 12
    assert any("the step before" in sentence for sentence in model.assumptions)


def test_forwards_are_those_that_the_graph_run_captured() -> None:
    eager = attributed("ep2-dflash/c1-eager")
    nodes = forwards_of(eager, build_model(eager, match_collectives(eager))).nodes
    # The graph run's graphs have 105 or 106, and 1,071 nodes.
    assert sorted(set(nodes.tolist())) == [107, 1071] and len(nodes) == 2 * 2 * 8


@pytest.mark.parametrize("name", ["ep2-dflash/c1", "tp1/c128", "tp1-dflash-torch/c1"])
def test_nothing_to_predict_where_graphs_run_already(name: str) -> None:
    attribution = attributed(name)
    found = predict_graphs(attribution, match_collectives(attribution))
    assert found.unknown == "no forward of a decode step is launched kernel by kernel" and found.step_ns is None


def test_an_earlier_recording_on_another_machine() -> None:
    eager = attribute(open_trace(shared("captures/ep2-dflash-eager-c1.sqlite.xz")))
    graphs = attribute(open_trace(shared("captures/ep2-dflash-graph-c1.sqlite.xz")))
    found = predict_graphs(eager, match_collectives(eager))
    step = cycle_of(graphs, None, "").period_ns_median
    assert found.low_ns is not None and found.high_ns is not None and step is not None
    assert found.low_ns <= step <= found.high_ns
    assert found.step_ns == pytest.approx(step, rel=0.15)


def test_a_replay_looks_at_each_op_a_few_times() -> None:
    eager = attributed("ep2-dflash/c1-eager")
    model = build_model(eager, match_collectives(eager))
    assert calls_of(lambda: simulate(model)) < 10 * len(eager.trace.ops)
