"""What holds of what-ifs on any recording."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.analyzers import attribute
from profkit.analyzers.analysis import Recording
from profkit.analyzers.vocabulary import CLASS, PHASE
from profkit.analyzers.whatif import ALGORITHMS, LINKS, Link, Request, WhatIf, parse_drafter, parse_link
from profkit.analyzers.whatif.case import Case, case_of
from profkit.analyzers.whatif.result import SCHEMA
from profkit.traces import Run, Trace
from tests.analyzers.engine import Plan, run
from tests.analyzers.whatif.recordings import PCIE5, alone, answers, linked, speculative

settings.register_profile("what-if", deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(settings.get_profile("what-if"))

IDENTITIES = (
    Request(accept_len=3.0),
    Request(block_size=8),
    Request(drafter=1.0),
    Request(link=Link("the same", float(PCIE5))),
    Request(collective="ring"),
)


@st.composite
def recordings(draw: st.DrawFn) -> Trace:
    """Two ranks, alike or not, bound by hosts, GPUs or each other."""
    times = st.integers(0, 40_000)
    plans = [
        Plan(
            eager=draw(st.booleans()),
            python_per_launch=draw(times),
            late_before_target=draw(times),
            drafter=draw(st.floats(0.1, 5)),
            transfer=draw(st.integers(1_000, 60_000)),
            block_after_draft=draw(st.booleans()),
            layers=3,
        )
        for _ in range(2)
    ]
    return linked(run(*plans, steps=6)).with_run(Run(config="any", accept_len=3.0, block_size=8))


@pytest.mark.parametrize("request_", IDENTITIES, ids=lambda one: one.name)
@pytest.mark.parametrize("beside", [0, 1])
def test_what_is_so_already_changes_nothing(request_: Request, beside: int) -> None:
    traces = [speculative(1), *([speculative(4)] * beside)]
    outcome = alone(request_, *traces)
    assert {outcome.saved_ns.low, outcome.saved_ns.usual, outcome.saved_ns.high} == {0}
    assert outcome.then.accept_len is not None and outcome.then.accept_len.usual == 3


@FEW
@given(recordings(), st.floats(0, 1))
def test_a_cheaper_drafter_never_lengthens_a_step(trace: Trace, factor: float) -> None:
    assert alone(Request(drafter=factor), trace).saved_ns.usual >= 0


@FEW
@given(recordings(), st.floats(1, 10))
def test_a_faster_link_never_lengthens_and_a_slower_one_never_shortens_a_step(trace: Trace, ratio: float) -> None:
    faster, slower = (Link("other", PCIE5 * one) for one in (ratio, 1 / ratio))
    assert alone(Request(link=faster), trace).saved_ns.usual >= 0
    assert alone(Request(link=slower), trace).saved_ns.usual <= 0


@FEW
@given(recordings())
def test_bounds_hold_the_usual_figure(trace: Trace) -> None:
    for outcome in answers(Request(), trace)[0].alone:
        figures = outcome.then.step_ns, outcome.then.us_per_token, outcome.then.tokens_per_s, outcome.saved_ns
        for figure in figures:
            assert figure is not None and figure.low <= figure.usual <= figure.high, outcome.name


@FEW
@given(recordings(), st.integers(2, 3))
def test_alignment_and_overlap_never_lengthen_a_step(trace: Trace, layers: int) -> None:
    for request in (Request(align_launches=True), Request(overlap_draft=True)):
        assert alone(request, trace).saved_ns.low >= 0


def remaining_ns(trace: Trace, factor: float) -> float:
    """The kernels of a rank that remain with the shorter of draft and verify hidden, per step; of the busiest rank."""
    recording = Recording("any", "any", trace)
    case = case_of(recording, attribute(trace), ())
    assert isinstance(case, Case)
    work = case.model.work
    steps = int(work.step.max()) + 1
    least = []
    for device in sorted(set(work.device.tolist())):
        mine = (work.device == device) & (work.step >= 0) & (work.kernel_class != CLASS["collective"])
        cell = work.phase[mine].astype(np.int64) * steps + work.step[mine]
        ns = np.bincount(cell, work.duration[mine].astype(float), len(PHASE) * steps).reshape(-1, steps)
        draft, verify = factor * ns[PHASE["draft"]], ns[PHASE["verify"]]
        least.append(np.median(ns.sum(axis=0) - ns[PHASE["draft"]] + draft - np.minimum(draft, verify)))
    return float(max(least))


@FEW
@given(recordings(), st.floats(0, 30), st.booleans())
def test_no_combination_is_shorter_than_what_remains_of_it(trace: Trace, factor: float, aligned: bool) -> None:
    request = Request(drafter=factor, overlap_draft=True, align_launches=aligned)
    combined = answers(request, trace)[0].combined
    assert combined is not None
    step = combined.then.step_ns
    # Each op is rounded to a nanosecond.
    assert remaining_ns(trace, factor) - 100 <= step.low <= step.usual <= step.high


@FEW
@given(recordings(), st.floats(0, 1), st.floats(1, 10), st.booleans())
def test_levers_that_only_take_work_away_never_lengthen_a_step(
    trace: Trace, factor: float, ratio: float, aligned: bool
) -> None:
    link = Link("other", PCIE5 * ratio)
    request = Request(drafter=factor, link=link, overlap_draft=True, align_launches=aligned)
    found = answers(request, trace)[0]
    assert found.combined is not None and found.combined.saved_ns.low >= 0
    for outcome in found.alone:
        assert found.combined.then.step_ns.low <= outcome.then.step_ns.low


@pytest.mark.parametrize("batch", [1, 4])
def test_together_levers_save_no_less_than_each_and_no_more_than_their_sum(batch: int) -> None:
    # Of a step that only its GPUs hold back; where hosts do too, together they can save more than their sum.
    request = Request(drafter=0.3, link=LINKS["pcie6"], collective="one-shot")
    found = answers(request, speculative(batch), speculative(5 - batch))[0]
    assert found.combined is not None
    saved = [one.saved_ns.usual for one in found.alone]
    assert max(saved) <= found.combined.saved_ns.usual <= sum(saved)


def test_a_longer_block_never_costs_less() -> None:
    series = speculative(1), speculative(2), speculative(4)
    steps = [alone(Request(block_size=size), *series).then.step_ns for size in (1, 2, 4, 8, 16, 32, 64)]
    for before, after in pairwise(steps):
        assert before.usual <= after.usual


def test_the_contract_of_the_answer() -> None:
    found = WhatIf(SCHEMA, (), tuple(answers(Request(), speculative())))
    assert msgspec.json.decode(msgspec.json.encode(found), type=WhatIf) == found
    assert found.answers and not WhatIf(SCHEMA, (), ()).answers


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "nan", "inf", "50,x", "50,-1", "50,nan", "1e9"])
def test_texts_that_are_no_links(text: str) -> None:
    with pytest.raises(ValueError):
        parse_link(text)


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "1e9"])
def test_texts_that_are_no_drafters(text: str) -> None:
    with pytest.raises(ValueError):
        parse_drafter(text)


def test_texts_of_links_and_drafters() -> None:
    assert all(parse_link(name) is link for name, link in LINKS.items())
    assert parse_link("50") == Link("50 GB/s", 50e9)
    assert parse_link("50,8") == Link("50 GB/s, 8 µs", 50e9, latency_ns=8_000)
    assert (parse_drafter("free"), parse_drafter("0.5")) == (0, 0.5)


def test_a_request_names_its_levers() -> None:
    request = Request(4.0, 16, 0.0, LINKS["pcie4"], ALGORITHMS[1], True, True, True)
    assert [one.levers for one in request.each()] == [(name,) for name in request.levers]
    assert request.name == (
        "accept length 4 + block size 16 + free drafter + link pcie4 + tree all-reduce + CUDA graphs + "
        "launches aligned + draft beside verify"
    )
    assert request.without("graphs", "link").levers == tuple(
        name for name in request.levers if name not in ("graphs", "link")
    )
