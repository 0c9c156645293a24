"""What-ifs of recorded runs against other recorded runs; docs/whatif.md has the table."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from profkit.analyzers import attribute
from profkit.analyzers.analysis import Recording
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.replay import predict_graphs
from profkit.analyzers.replay.pace import host_times
from profkit.analyzers.vocabulary import CLASSES, PHASE
from profkit.analyzers.whatif import Request, what_if
from profkit.analyzers.whatif.answer import LEVERS
from profkit.analyzers.whatif.case import Case, alike, case_of
from profkit.analyzers.whatif.result import Outcome, RecordingWhatIf
from profkit.analyzers.whatif.tokens import factors_at, times_at
from profkit.traces import F64, open_recordings

TRACES = Path(__file__).parents[3] / "traces"


@cache
def recordings(*names: str) -> tuple[Recording, ...]:
    opened = [one for name in names for one in open_recordings(TRACES / name)]
    return tuple(Recording(one.name, str(one.path), one.trace) for one in opened)


@cache
def case(name: str) -> Case:
    (recording,) = recordings(name)
    found = case_of(recording, attribute(recording.trace), ())
    assert isinstance(found, Case)
    return found


def said(request: Request, *names: str) -> dict[str, RecordingWhatIf]:
    return {one.name: one for one in what_if(recordings(*names), request).recordings}


@pytest.mark.parametrize("concurrency", ("c1", "c32", "c128"))
def test_graphs_are_those_of_the_replay(concurrency: str) -> None:
    name = f"ep2-dflash/{concurrency}-eager"
    (outcome,) = said(Request(graphs=True), name)[name].alone
    attribution = case(name).attribution
    found = predict_graphs(attribution, match_collectives(attribution))
    step = outcome.then.step_ns
    assert (step.low, step.usual, step.high) == (found.low_ns, found.step_ns, found.high_ns)


def hosts_with(found: Case, request: Request) -> F64:
    """Host time of each rank and step, in ns, with the usual changes of ``request``."""
    model = found.model
    for lever, make in LEVERS.items():
        if lever in request.levers:
            model = make(found, request, [found]).usual.change(model)
    return host_times(model.calls)


def test_graphs_and_alignment_do_not_both_take_the_same_host_time_away() -> None:
    """Graphs are launched at the pace of the typical rank; aligning brings none far below the quicker one."""
    eager = case("ep2-dflash/c1-eager")
    in_graphs, both = (hosts_with(eager, Request(graphs=True, align_launches=aligned)) for aligned in (False, True))
    assert np.all(both >= 0.97 * in_graphs.min(axis=0)) and np.all(both <= in_graphs)


@pytest.mark.parametrize(
    "sweep, every, but_attention",
    [
        ("ep2-dflash", -0.100, -0.105),
        ("tp1-dflash", 0.170, 0.258),
        ("tp1", -0.012, -0.004),
        ("ep2", -0.305, -0.324),
    ],
)
def test_work_of_concurrency_32_from_that_of_1_and_128(sweep: str, every: float, but_attention: float) -> None:
    """How far off lines are: of ``ep2``'s experts most are loaded at 32 tokens, and GEMM is flat up to there."""
    middle = case(f"{sweep}/c32")
    found = times_at(middle.tokens or 0, [case(f"{sweep}/c1"), case(f"{sweep}/c128")])
    others = [place for place, name in enumerate(CLASSES) if name != "attention"]
    assert found.sum() / middle.per_step.sum() - 1 == pytest.approx(every, abs=0.001)
    assert found[:, others].sum() / middle.per_step[:, others].sum() - 1 == pytest.approx(but_attention, abs=0.001)


@pytest.mark.parametrize("sweep", ["ep2-dflash", "tp1-dflash"])
def test_blocks_of_another_size_within_their_bounds(sweep: str) -> None:
    """Batch 128 with as many tokens as batch 32 has takes what that takes, but for attention."""
    many, few = case(f"{sweep}/c128"), case(f"{sweep}/c32")
    factors = factors_at(few.tokens or 0, many, [case(f"{sweep}/c1"), many])
    others = [place for place, name in enumerate(CLASSES) if name != "attention"]
    for phase in ("draft", "verify"):
        low, high = ((table * many.per_step)[PHASE[phase]][others].sum() for table in (factors.low, factors.high))
        assert low <= few.per_step[PHASE[phase]][others].sum() <= high


@pytest.mark.parametrize("batch, plainly", [("c32", "tp1/c32"), ("c128", "tp1/c128")])
def test_verify_takes_what_plain_decoding_of_as_many_tokens_takes(batch: str, plainly: str) -> None:
    plain = case(plainly)
    found = times_at(plain.tokens or 0, [case(f"tp1-dflash/{one}") for one in ("c1", "c32", "c128")])
    gemm = CLASSES.index("gemm")
    assert found[PHASE["verify"], gemm] == pytest.approx(plain.per_step[PHASE["decode"], gemm], rel=0.12)


def test_a_sweep_is_one_series_and_eager_recordings_are_another() -> None:
    every = [case(one.name) for one in recordings("ep2-dflash")] + [case(one.name) for one in recordings("ep2")]
    series = alike(case("ep2-dflash/c32"), every)
    assert [one.name for one in series] == [f"ep2-dflash/{name}" for name in ("c1", "c32", "c128")]
    assert [one.tokens for one in series] == [8, 256, 1024]


SERIES = "tp1-dflash-recorders/c1", "tp1-dflash-recorders/c32", "tp1-dflash/c128"
HELD = {
    "accept-2": (Request(accept_len=2.0), 0.06, 0.075),
    "accept-5": (Request(accept_len=5.0), 0.03, 0.01),
    "block-4": (Request(block_size=4), 0.015, 0.015),
    "block-16": (Request(block_size=16), 0.01, 0.01),
}
"""What was recorded of the same server, and how far from it step and tokens per second are predicted at most."""


def outcome_of(request: Request, *names: str) -> Outcome:
    (outcome,) = said(request, *names)["tp1-dflash-recorders/c32"].alone
    return outcome


@pytest.mark.parametrize("name", HELD)
def test_steps_and_tokens_of_other_drafting_are_those_recorded(name: str) -> None:
    """The step against the recorded median; tokens per second against those measured without a recorder."""
    request, of_step, of_tokens = HELD[name]
    recorded, then = case(f"tp1-dflash-{name}/c32"), outcome_of(request, *SERIES).then
    rate, measured = then.tokens_per_s, recorded.attribution.trace.run.tokens_per_s
    assert rate is not None and measured is not None
    assert then.step_ns.usual == pytest.approx(recorded.recorded_ns, rel=of_step)
    assert rate.usual == pytest.approx(measured, rel=of_tokens)
    assert then.step_ns.low <= recorded.recorded_ns <= then.step_ns.high
    assert rate.low <= measured <= rate.high


@pytest.mark.parametrize("name", ["block-4", "block-16"])
def test_blocks_from_one_concurrency_only(name: str) -> None:
    """The middle between no change and proportion to tokens; with more concurrencies, the bounds are narrower."""
    request, recorded = HELD[name][0], case(f"tp1-dflash-{name}/c32").recorded_ns
    one, three = (outcome_of(request, *names).then.step_ns for names in (SERIES[1:2], SERIES))
    assert one.usual == pytest.approx(recorded, rel=0.05)
    assert one.low <= recorded <= one.high
    assert three.high - three.low < one.high - one.low


def test_steps_of_another_accept_length_spread_as_those_of_the_run_do() -> None:
    """Contexts grow faster or slower then; both bounds are wider by the middle 80 % of the steps of the run."""
    timed = case("tp1-dflash-recorders/c32").attribution.trace.run.step_times
    assert timed is not None
    outcome = outcome_of(Request(accept_len=2.0), *SERIES)
    step = outcome.then.step_ns
    assert step.high == round(step.usual * timed.high_ns / timed.median_ns)
    assert step.low < step.usual * timed.low_ns / timed.median_ns
    assert any("(20.6 ms to 23.8 ms) differ from their median (22.2 ms)" in said for said in outcome.assumptions)


def test_one_gpu_is_of_a_series_whatever_its_link() -> None:
    """The GPU of ``tp1-dflash`` is known to be linked by PCI Express, that of the others not; none uses a link."""
    series = alike(case("tp1-dflash-recorders/c32"), [case(name) for name in SERIES])
    assert [one.tokens for one in series] == [8, 256, 1024]
    assert {one.link is None for one in series} == {True, False}


def test_every_lever_of_a_sweep_at_once() -> None:
    found = said(Request(), "ep2-dflash/c128", "ep2/c128")
    assert found["ep2-dflash/c128"].baseline == "ep2/c128"
