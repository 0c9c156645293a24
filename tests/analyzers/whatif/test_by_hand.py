"""What-ifs worked out by hand on a pretend engine whose GPUs set the pace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.analyzers.replay.costs import USUAL
from profkit.analyzers.whatif import LINKS, Link, Request
from profkit.analyzers.whatif.links import NVLINK_HOP_US, PCIE_HOP_US, Cost, algorithm_in, cost_of, latency_ratios
from profkit.analyzers.whatif.result import Outcome
from profkit.traces import Run, StepTimes, Trace
from tests.analyzers.engine import Plan, run
from tests.analyzers.replay.test_by_hand import host_bound, one_late
from tests.analyzers.whatif.recordings import (
    DRAFT_LAYERS,
    LATENCY,
    LAYERS,
    PER_TOKEN,
    alone,
    answers,
    linked,
    plain,
    refusal,
    speculative,
)

ALL = LAYERS + DRAFT_LAYERS
GAP = 500
ATTENTION = 20_000


def gemm(tokens: int) -> int:
    return 50_000 + 6_250 * tokens


def draft_ns(tokens: int) -> int:
    """Two layers of 60 us times the drafter's size, a GEMM and a sampling kernel of 5 us, five gaps in the graph."""
    layer = int(60_000 * (0.5 + 0.0625 * tokens)) + ATTENTION + LATENCY + PER_TOKEN * tokens
    return DRAFT_LAYERS * layer + 5 * GAP + 10_000


def now_ns(outcome: Outcome) -> int:
    return outcome.then.step_ns.usual + outcome.saved_ns.usual


def timed(trace: Trace) -> Trace:
    """The trace of a run whose steps were timed without a recorder."""
    return trace.with_run(replace(trace.run, step_times=StepTimes(10_000_000, 9_000_000, 12_000_000, 50)))


def test_a_free_drafter_takes_its_ops_and_pauses_away() -> None:
    outcome = alone(Request(drafter=0.0), speculative())
    assert outcome.saved_ns.usual == draft_ns(8)
    assert outcome.then.step_ns.low <= outcome.then.step_ns.usual == outcome.then.step_ns.high


def test_half_a_drafter() -> None:
    assert alone(Request(drafter=0.5), speculative()).saved_ns.usual == draft_ns(8) // 2


def test_another_accept_length_leaves_the_step() -> None:
    outcome = alone(Request(accept_len=6.0), speculative(), plain())
    then = outcome.then
    assert outcome.saved_ns.usual == 0 and then.accept_len is not None and then.accept_len.usual == 6
    # Twice the tokens: at most accept and KV append, 8 and 12 us, double.
    assert then.step_ns.high - then.step_ns.low == 20_000
    assert then.us_per_token is not None and then.us_per_token.usual == pytest.approx(then.step_ns.usual / 6e3)
    assert then.tokens_per_s is not None and then.tokens_per_s.usual == pytest.approx(6e9 / then.step_ns.usual)
    assert "not known, and not in the bounds" in outcome.assumptions[1]


@pytest.mark.parametrize("wanted, work", [(2.0, (-20_000 // 3, 0)), (6.0, (0, 20_000))])
def test_another_accept_length_meets_other_steps_of_the_run(wanted: float, work: tuple[int, int]) -> None:
    """Steps of 9 to 12 ms without a recorder, 10 in the middle: from 10 % shorter to 20 % longer."""
    outcome = alone(Request(accept_len=wanted), timed(speculative()))
    step = outcome.then.step_ns
    assert step.usual == now_ns(outcome)
    assert step.low == pytest.approx(0.9 * (step.usual + work[0]), abs=2)
    assert step.high == pytest.approx(1.2 * (step.usual + work[1]), abs=2)
    assert "(9.00 ms to 12.0 ms) differ from their median (10.0 ms)" in outcome.assumptions[1]


def test_other_steps_of_the_run_are_met_with_another_accept_length_only() -> None:
    as_now, drafter = (
        alone(asked, timed(speculative())).then.step_ns for asked in (Request(accept_len=3.0), Request(drafter=0.0))
    )
    assert as_now.low == as_now.usual == as_now.high
    assert drafter == alone(Request(drafter=0.0), speculative()).then.step_ns


def test_break_even_and_speed_up_against_plain_decoding() -> None:
    found, beside = answers(Request(accept_len=6.0), speculative(), plain())
    assert found.baseline == "made/1" and found.now is not None and beside.now is not None
    cost = found.now.step_ns.usual / beside.now.step_ns.usual
    assert found.now.break_even_accept_len is not None and found.now.speedup is not None
    assert found.now.break_even_accept_len.usual == pytest.approx(cost)
    assert found.now.speedup.usual == pytest.approx(3 / cost)
    then = found.alone[0].then
    assert then.speedup is not None and then.speedup.usual == pytest.approx(6 / cost)
    assert [refused.reason for refused in beside.refused] == ["it is plain decoding, which does not draft"]


def of_model(trace: Trace, model: str) -> Trace:
    return trace.with_run(replace(trace.run, model=model))


def test_plain_decoding_of_another_model_is_not_compared_with() -> None:
    made = of_model(speculative(), "M"), of_model(plain(), "M2")
    found, _ = answers(Request(accept_len=6.0), *made)
    assert found.baseline is None and found.now is not None and found.now.speedup is None


@pytest.mark.parametrize(
    "own, beside, taken",
    [
        ("M", [""], 1),
        ("", ["M"], 1),
        ("M", ["", "M"], 2),
        ("M", ["", "M2"], 1),
        ("", ["M", "M2"], None),
        ("", ["M", "M2", ""], 3),
    ],
)
def test_a_model_that_is_not_named_may_be_the_same(own: str, beside: list[str], taken: int | None) -> None:
    """The very name comes first; without one, plain decoding of several models cannot be chosen from."""
    made = of_model(speculative(), own), *(of_model(plain(), model) for model in beside)
    found = answers(Request(accept_len=6.0), *made)[0]
    assert found.baseline == (f"made/{taken}" if taken else None)
    assert found.now is not None and (found.now.speedup is None) == (found.now.break_even_accept_len is None)
    assert (found.now.speedup is None) == (taken is None)


@pytest.mark.parametrize("other, carried", [("M", True), ("", True), ("M2", False)])
def test_other_concurrencies_tell_of_their_own_model(other: str, carried: bool) -> None:
    """How GEMMs grow with tokens is read from recordings beside; alone, twice the block is beyond what is recorded."""
    made = of_model(speculative(1), "M"), of_model(speculative(2), other)
    assert (alone(Request(block_size=16), *made).beyond == "") == carried


def test_another_block_takes_what_other_batches_take_at_as_many_tokens() -> None:
    # Batch 1 in blocks of 16 computes as many tokens as batch 2 in blocks of 8; attention and host stay.
    outcome = alone(Request(block_size=16), speculative(1), speculative(2))
    growth = ALL * PER_TOKEN * 8 + LAYERS * (gemm(16) - gemm(8)) + DRAFT_LAYERS * int(60_000 * 0.0625 * 8)
    # The GEMM of 5 us before the drafter's graph is of the class GEMM too, but does not grow, so neither does the sum.
    assert -outcome.saved_ns.usual == pytest.approx(growth, abs=LAYERS)
    assert outcome.then.step_ns.low <= outcome.then.step_ns.usual <= outcome.then.step_ns.high
    assert outcome.then.accept_len is not None
    # The cap does not bind; were drafts accepted to the end or not at all, 1 + 2 * 15 / 7 tokens would be.
    assert (outcome.then.accept_len.usual, outcome.then.accept_len.high) == (3, pytest.approx(1 + 2 * 15 / 7))


def test_between_two_recordings_a_line_is_drawn() -> None:
    outcome = alone(Request(block_size=16), speculative(1), speculative(4))
    growth = ALL * PER_TOKEN * 8 + LAYERS * (gemm(16) - gemm(8)) + DRAFT_LAYERS * int(60_000 * 0.0625 * 8)
    assert -outcome.saved_ns.usual == pytest.approx(growth, rel=0.01)


def test_one_concurrency_gives_bounds_only() -> None:
    outcome = alone(Request(block_size=16), speculative())
    step = outcome.then.step_ns
    assert step.low == now_ns(outcome) and step.usual < step.high < 2 * now_ns(outcome)
    assert any("one concurrency only" in said for said in outcome.assumptions)


def test_a_smaller_block_caps_the_accept_length() -> None:
    then = alone(Request(block_size=2), speculative()).then
    assert then.accept_len is not None
    assert (then.accept_len.low, then.accept_len.usual) == (pytest.approx(1 + 2 / 7), 2)


def test_a_faster_link_carries_the_bytes_faster() -> None:
    # At 8 tokens an all-reduce takes 4 us and 8 us; the latter halve.
    outcome = alone(Request(link=Link("twice", 2 * 63.015e9)), speculative(1), speculative(4))
    assert outcome.saved_ns.usual == pytest.approx(ALL * 8 * PER_TOKEN / 2, abs=ALL)
    assert outcome.saved_ns.low == outcome.saved_ns.usual == outcome.saved_ns.high


def test_a_link_of_another_latency() -> None:
    wanted = Link("as fast, 1 us", 63.015e9, latency_ns=1_000)
    outcome = alone(Request(link=wanted), speculative(1), speculative(4))
    assert outcome.saved_ns.usual == pytest.approx(ALL * (LATENCY - 1_000), abs=ALL)


def test_a_link_with_one_concurrency_is_all_latency_to_all_bytes() -> None:
    saved = alone(Request(link=Link("twice", 2 * 63.015e9)), speculative()).saved_ns
    assert (saved.low, saved.high) == (0, ALL * 12_000 // 2)


def test_nvlink_has_a_lower_latency_and_an_uncertain_share() -> None:
    saved = alone(Request(link=LINKS["nvlink4"]), speculative(1), speculative(4)).saved_ns
    ratio = (6.6 + 2 * NVLINK_HOP_US) / (6.6 + 2 * PCIE_HOP_US)
    bandwidth = 63.015 / 450
    assert saved.usual == pytest.approx(ALL * (LATENCY * (1 - ratio) + 8_000 * (1 - bandwidth)), abs=ALL)
    assert saved.low < saved.usual < saved.high


def test_plain_decoding_gets_the_link_too() -> None:
    traces = speculative(1), plain(1), speculative(4), plain(4)
    found, beside, *_ = answers(Request(link=LINKS["nvlink4"]), *traces)
    then, plainly = found.alone[0].then, beside.alone[0].then
    assert then.break_even_accept_len is not None
    assert then.break_even_accept_len.usual == pytest.approx(then.step_ns.usual / plainly.step_ns.usual)


def test_a_ring_of_two_ranks_has_little_to_gain() -> None:
    outcome = alone(Request(collective="one-shot"), speculative(1), speculative(4))
    ratio = (6.6 + PCIE_HOP_US) / (6.6 + 2 * PCIE_HOP_US)
    assert outcome.saved_ns.usual == pytest.approx(ALL * LATENCY * (1 - ratio), abs=ALL)
    assert any("two ranks" in said for said in outcome.assumptions)


def test_what_algorithms_cost() -> None:
    assert cost_of("ring", 8) == Cost(14, 1.75, 1.75)
    assert cost_of("tree", 8) == Cost(6, 1.75, 2)
    assert cost_of("one-shot", 8) == Cost(1, 7, 7)
    assert cost_of("two-shot", 8) == Cost(2, 1.75, 1.75)
    assert {cost_of(name, 2).volume for name in ("ring", "tree", "one-shot", "two-shot")} == {1}


@pytest.mark.parametrize(
    "name, algorithm",
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ring"),
        ("ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", "tree"),
        ("void sglang::cross_device_reduce_1stage<__nv_bfloat16, 2>", "one-shot"),
        ("void vllm::cross_device_reduce_2stage<half, 8>", "two-shot"),
        ("multimem_all_reduce_kernel", None),
    ],
)
def test_algorithms_by_kernel_name(name: str, algorithm: str | None) -> None:
    assert algorithm_in(name) == algorithm


def test_latency_of_links_goes_both_ways() -> None:
    there = latency_ratios(LINKS["pcie5"], LINKS["nvlink4"], 2)
    back = latency_ratios(LINKS["nvlink4"], LINKS["pcie5"], 2)
    assert there[0] < there[1] < there[2] == 1 == back[0] < back[1] < back[2]
    assert there[1] * back[1] == pytest.approx(1)
    assert latency_ratios(LINKS["pcie4"], LINKS["pcie6"], 2) == (1, 1, 1)


def test_overlap_is_a_bound() -> None:
    outcome = alone(Request(overlap_draft=True), speculative())
    assert outcome.bound and outcome.then.step_ns.high == now_ns(outcome)
    assert outcome.saved_ns.high == draft_ns(8)
    # Kernels that do not share SMs hide two all-reduces of the draft; 100 us launches lie between the graphs.
    assert 0 <= outcome.saved_ns.usual <= outcome.saved_ns.high


def test_overlap_hides_whichever_phase_is_the_shorter_then() -> None:
    """Drafting 20 times as dear takes longer than verifying: what is hidden is verifying."""
    found = answers(Request(drafter=20.0, overlap_draft=True), speculative())[0]
    dear, _ = found.alone
    assert found.combined is not None and found.combined.bound
    low, drafting = found.combined.then.step_ns.low, 20 * draft_ns(8)
    verifying = LAYERS * (gemm(8) + ATTENTION + LATENCY + PER_TOKEN * 8) + (3 * LAYERS - 1) * GAP
    assert drafting > verifying
    # Two launch calls of 100 us and the rest of the step are no part of either phase.
    assert drafting <= low == pytest.approx(dear.then.step_ns.usual - verifying, abs=GAP)


def test_graphs_of_a_free_drafter_are_free_as_well() -> None:
    found = answers(Request(graphs=True, drafter=0.0), linked(run(*[Plan(eager=True, python_per_launch=1_000)] * 2)))[0]
    in_graphs = next(one for one in found.alone if one.levers == ("graphs",))
    assert found.combined is not None
    # Two layers of three ops, a GEMM, a sampling kernel, and the seven gaps between them in the graph.
    saved = DRAFT_LAYERS * (60_000 + ATTENTION + 10_000) + 2 * 5_000 + 7 * round(USUAL.node_gap)
    assert in_graphs.then.step_ns.usual - found.combined.then.step_ns.usual == saved


def test_an_algorithm_finds_the_latency_that_another_link_leaves() -> None:
    # Of 4 us and 8 us of bytes the latter halve; one step less is a part of the 4 us, now half of a transfer.
    request = Request(link=Link("twice", 2 * 63.015e9), collective="one-shot")
    combined = answers(request, speculative(1), speculative(4))[0].combined
    ratio = (6.6 + PCIE_HOP_US) / (6.6 + 2 * PCIE_HOP_US)
    assert combined is not None
    assert combined.saved_ns.usual == pytest.approx(ALL * (4_000 + LATENCY * (1 - ratio)), abs=2 * ALL)


def test_a_link_finds_the_bytes_of_another_block() -> None:
    # 16 tokens: 4 us of latency and 16 us of bytes, of which half go over a link of twice the bandwidth.
    longer, twice = Request(block_size=16), Link("twice", 2 * 63.015e9)
    combined = answers(Request(block_size=16, link=twice), speculative(1), speculative(4))[0].combined
    assert combined is not None
    saved = alone(longer, speculative(1), speculative(4)).then.step_ns.usual - combined.then.step_ns.usual
    assert saved == pytest.approx(ALL * 16 * PER_TOKEN / 2, abs=2 * ALL)
    wanted = Link("as fast, 1 us", 63.015e9, latency_ns=1_000)
    combined = answers(Request(block_size=16, link=wanted), speculative(1), speculative(4))[0].combined
    assert combined is not None
    saved = alone(longer, speculative(1), speculative(4)).then.step_ns.usual - combined.then.step_ns.usual
    assert saved == pytest.approx(ALL * (LATENCY - 1_000), abs=2 * ALL)


def test_aligned_hosts_wait_for_no_late_one() -> None:
    """One rank's Python takes 60 us per launch, the other's 2 us: the median is 31 us, the fastest 2 us."""
    quick, middling, slow = (Plan(eager=True, python_per_launch=ns) for ns in (2_000, 31_000, 60_000))
    step = alone(Request(align_launches=True), linked(run(quick, slow))).then.step_ns
    at = [answers(Request(), run(plan, plan))[0].recorded_ns for plan in (quick, middling)]
    assert (step.low, step.usual) == (pytest.approx(at[0], rel=0.02), pytest.approx(at[1], rel=0.02))
    assert step.high == answers(Request(), run(quick, slow))[0].recorded_ns


def test_hosts_that_are_alike_gain_nothing() -> None:
    saved = alone(Request(align_launches=True), one_late()).saved_ns
    assert (saved.low, saved.usual, saved.high) == (0, 0, 0)


def test_graphs_as_the_replay_predicts_them() -> None:
    found = alone(Request(graphs=True), host_bound())
    assert (found.then.step_ns.low, found.then.step_ns.usual, found.then.step_ns.high) == (122_000, 125_940, 135_780)


def test_all_together() -> None:
    request = Request(accept_len=4.0, drafter=0.0, link=Link("twice", 2 * 63.015e9))
    found = answers(request, speculative(1), speculative(4))[0]
    assert found.combined is not None and found.combined.levers == ("accept_len", "drafter", "link")
    saved = draft_ns(8) + LAYERS * 8 * PER_TOKEN / 2
    assert found.combined.saved_ns.usual == pytest.approx(saved, abs=ALL)
    assert [one.levers for one in found.alone] == [("accept_len",), ("drafter",), ("link",)]


def test_levers_that_only_go_or_do_not_go_together() -> None:
    found = answers(Request(accept_len=10.0, block_size=16), speculative())[0]
    assert [one.reason for one in found.refused] == ["a block of 8 gives no more than 8 tokens a step"]
    assert found.combined is not None and found.combined.then.accept_len is not None
    assert found.combined.then.accept_len.usual == 10
    (only,) = found.only_together
    assert (only.lever, only.name) == ("accept_len", "accept length 10")
    assert only.not_in_bounds == found.combined.not_in_bounds != ""
    assert only.assumptions and set(only.assumptions) < set(found.combined.assumptions)
    found = answers(Request(accept_len=6.0, block_size=4), speculative())[0]
    assert [one.levers for one in found.alone] == [("accept_len",), ("block_size",)] and found.combined is None
    assert [one.reason for one in found.refused] == ["a block of 4 gives no more than 4 tokens a step"]
    assert found.only_together == ()


def test_nothing_asked_tries_every_lever_dearest_first() -> None:
    found = answers(Request(), speculative(1), speculative(4), plain())[0]
    costs = [one.surely_us for one in found.alone]
    assert costs == sorted(costs) and min(costs) < max(costs)
    tried = {lever for one in found.alone for lever in one.levers} | {one.lever for one in found.refused}
    assert tried == set(Request(1, 1, 1, LINKS["pcie3"], "ring", True, True, True).levers)


REFUSED = {
    "accept length over the block": (Request(accept_len=9.0), "a block of 8 gives no more than 8 tokens a step"),
    "graphs": (Request(graphs=True), "no forward of a decode step is launched kernel by kernel"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    request, reason = REFUSED[case]
    assert refusal(request, speculative()) == reason


@pytest.mark.parametrize("request_", [Request(link=LINKS["pcie3"]), Request(collective="tree")])
def test_no_collectives_no_link(request_: Request) -> None:
    assert refusal(request_, host_bound()) == "no collectives between ranks are recorded"


def test_a_link_that_is_not_known() -> None:
    trace = linked(speculative(), None)
    assert refusal(Request(link=LINKS["pcie3"]), trace) == "the recording does not say which link its collectives used"
    found = answers(Request(link=LINKS["pcie5"]), trace, nvlink=["made/0"])[0]
    assert found.alone[0].saved_ns.usual < 0


def test_a_block_that_is_not_known() -> None:
    trace = linked(run(Plan(), Plan())).with_run(Run(accept_len=3.0))
    assert "the block size is not known" in refusal(Request(block_size=4), trace)


def test_one_rank_has_nobody_to_be_aligned_with() -> None:
    assert refusal(Request(align_launches=True), host_bound()) == "one rank has no other one to wait for"


def test_a_recording_that_cannot_be_replayed() -> None:
    (found,) = answers(Request(drafter=0.0), run(Plan(orphans=True)))
    assert found.unknown is not None and found.now is None and found.text == f"No answer: {found.unknown}."
