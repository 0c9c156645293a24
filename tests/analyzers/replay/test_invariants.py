"""What holds for every recording: it plays back as it was, and nothing that gets shorter makes anything later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from profkit.analyzers import attribute
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.replay import ContradictionError, Model, build_model, predict, simulate
from profkit.analyzers.replay.costs import HIGH, LOW, USUAL, GraphCosts
from profkit.analyzers.replay.forwards import forwards_of
from profkit.analyzers.replay.graphing import with_graphs
from profkit.analyzers.replay.predict import predict_graphs
from profkit.analyzers.replay.simulate import Order
from profkit.analyzers.replay.steps import periods, step_ns
from profkit.analyzers.replay.transform import scaled_hosts, scaled_work, without_delays
from profkit.traces import Trace
from tests.analyzers.engine import Plan, run
from tests.analyzers.random_traces import traces
from tests.analyzers.replay.steps import model_of, off_by

few = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)

STEPS = 5


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """An eager rank: its pace, lateness, GPU, transfers and synchronisation."""
    return Plan(
        eager=True,
        layers=4,
        python_per_launch=draw(st.sampled_from([0, 2_000, 30_000, 150_000])),
        late_before_target=draw(st.sampled_from([0, 50_000, 2_000_000])),
        speed=draw(st.sampled_from([0.1, 1.0, 1.7])),
        block_after_draft=draw(st.booleans()),
    )


recordings = st.lists(plans(), min_size=2, max_size=3).map(lambda ranks: run(*ranks, steps=STEPS))


def all_within(earlier: Model, later: Model) -> bool:
    """Whether nothing in the first model comes later than in the second one."""
    first, second = simulate(earlier), simulate(later)
    return bool(np.all(first.start <= second.start) and np.all(first.end <= second.end))


@few
@given(recordings)
def test_plays_back_as_recorded(trace: Trace) -> None:
    assert off_by(trace) == 0


@settings(few, max_examples=150)
@given(traces(ranks=3))
def test_any_rows_play_back_or_contradict_each_other(trace: Trace) -> None:
    try:
        off = off_by(trace)
    except ContradictionError:
        assume(False)
    assert off == 0


@few
@given(recordings, st.integers(0, 10**6), st.floats(0, 1))
def test_shorter_ops_make_nothing_later(trace: Trace, chosen: int, factor: float) -> None:
    model = model_of(trace)
    one = np.arange(len(model.work)) == chosen % len(model.work)
    assert all_within(scaled_work(model, one, factor), model)


@few
@given(recordings, st.floats(0, 1))
def test_faster_hosts_make_nothing_later(trace: Trace, factor: float) -> None:
    model = model_of(trace)
    assert all_within(scaled_hosts(model, np.full(int(model.calls.thread.max()) + 1, factor)), model)
    assert all_within(without_delays(model), model)


@few
@given(recordings, st.floats(0.1, 1))
def test_cheaper_launches_make_nothing_later(trace: Trace, factor: float) -> None:
    attribution = attribute(trace)
    model = build_model(attribution, match_collectives(attribution))
    forwards = forwards_of(attribution, model)
    host = np.ones(int(model.calls.thread.max()) + 1)
    cheap = replace(USUAL, call=USUAL.call * factor, call_per_node=USUAL.call_per_node * factor, lead_in=factor)
    cheap = replace(cheap, first_op=USUAL.first_op * factor, node_gap=USUAL.node_gap * factor)
    models = [with_graphs(model, forwards, costs, host) for costs in (LOW, cheap, USUAL, HIGH)]
    assert all_within(models[1], models[2]) and all_within(models[0], models[3])


@few
@given(recordings)
def test_graphs_that_cost_no_more_do_not_lengthen_the_step(trace: Trace) -> None:
    attribution = attribute(trace)
    model = build_model(attribution, match_collectives(attribution))
    forwards = forwards_of(attribution, model)
    free = GraphCosts(call=0, call_per_node=0, lead_in=0, first_op=0, node_gap=0, kernels=1)
    launched = with_graphs(model, forwards, free, np.ones(int(model.calls.thread.max()) + 1))
    assert all_within(launched, model)


@few
@given(recordings)
def test_prediction_lies_within_its_bounds(trace: Trace) -> None:
    attribution = attribute(trace)
    found = predict_graphs(attribution, match_collectives(attribution))
    assert found.step_ns is not None and found.low_ns is not None and found.high_ns is not None
    assert found.low_ns <= found.step_ns <= found.high_ns
    assert found.as_recorded_ns == found.recorded_ns


ENGINES = {
    "GPU-bound": (Plan(),) * 2,
    "host-bound": (Plan(python_per_launch=150_000),) * 2,
    "late host": (Plan(), Plan(python_per_launch=100_000)),
    "slow GPU": (Plan(), Plan(speed=1.5)),
    "late before each target": (Plan(late_before_target=4_000_000),) * 2,
    "synchronised": (Plan(late_before_target=500_000, block_after_draft=True),) * 2,
}


@pytest.mark.parametrize("engine", ENGINES)
def test_graph_step_of_a_pretend_engine(engine: str) -> None:
    eager, graphs = (run(*(replace(plan, eager=eager) for plan in ENGINES[engine])) for eager in (True, False))
    attribution = attribute(eager)
    found = predict_graphs(attribution, match_collectives(attribution))
    model = model_of(graphs)
    step = step_ns(periods(model.work, model.work.origin))
    assert found.step_ns == pytest.approx(step, rel=0.05)


def test_replays_of_the_same_dependencies_share_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    of = Order.of
    monkeypatch.setattr(Order, "of", lambda *edges: made.append(edges) or of(*edges))
    attribution = attribute(run(Plan(eager=True), Plan(eager=True), steps=STEPS))
    predict_graphs(attribution, match_collectives(attribution))
    assert len(made) == 2


def test_only_the_first_steps_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(predict, "forwards_of", lambda *given: built.append(given[1]) or forwards_of(*given))
    attribution = attribute(run(Plan(eager=True, layers=4), Plan(eager=True, layers=4), steps=40))
    found = predict_graphs(attribution, match_collectives(attribution))
    assert found.steps == predict.MOST_STEPS and found.self_check_error == 0
    assert len(built[0].work) < len(attribution.trace.ops) / 2
