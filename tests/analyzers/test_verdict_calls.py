"""What a late host did: calls are named, and time between steps or of a recorder is told from that in them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from profkit.traces import Trace
from tests.analyzers.engine import Meeting, Rank, run, step_ns
from tests.analyzers.test_verdict import near, verdict_of

STEPS = 12


@dataclass(frozen=True)
class Host:
    """What a rank's host does for how long, in each step or between them."""

    api: str = ""
    ns: int = 3_000_000
    between: bool = False
    eager: bool = False
    recorder: str = ""
    orphans: bool = False


CALM = Host(ns=0)


def stepping(rank: Rank, plan: Host, steps: int) -> Meeting:
    """Steps of 1.1 ms on the GPU."""
    for _ in range(steps):
        if plan.between:
            _spend(rank, plan)
        begin = rank.now
        if len(rank.step_ends) > 1:
            rank.block(rank.step_ends[-2], "cudaEventSynchronize")
        rank.python(20_000)
        if not plan.between:
            _spend(rank, plan)
        if plan.eager:
            for _ in range(10):
                rank.launch("gemm", 100_000)
                yield from rank.all_reduce(10_000)
        else:
            yield from rank.graph([("gemm", 100_000), ("all_reduce", 10_000)] * 10, 1_000)
        rank.step_ends.append(rank.free[7])
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=1")


def _spend(rank: Rank, plan: Host) -> None:
    if plan.recorder:
        rank.builder.rank(rank.number).overhead(rank.now, rank.now + plan.ns, plan.recorder)
    if plan.api:
        rank.call(plan.ns, plan.api)
    else:
        rank.python(plan.ns)


def planted(*plans: Host) -> Trace:
    return run(*plans, steps=STEPS, programme=stepping)  # type: ignore[arg-type]


def costs(trace: Trace) -> float:
    return step_ns(trace, STEPS) - step_ns(planted(CALM, CALM), STEPS)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    ("api", "advice"),
    [
        ("cudaMalloc", "allocate before serving, or let the allocator keep what it has"),
        ("cudaFree", "let the allocator keep its memory, as giving it back waits for the GPU"),
        ("cuModuleLoadData", "load modules before serving, by running every shape once"),
        ("cudaHostRegister", "look at why it is called there"),
    ],
)
def test_a_call_is_named(api: str, advice: str, eager: bool) -> None:
    """Also in eager steps, which graphs would not save from it."""
    trace = planted(Host(api, eager=eager), Host(api, eager=eager))
    first = verdict_of(trace)[0]
    assert (first.cause, first.part) == ("host_late", "gap_api")
    assert near(first.ns_per_step, costs(trace))
    assert first.text.endswith(f"mostly in {api} while launching the rest of the step: {advice}")


def test_a_call_of_one_rank_is_named() -> None:
    first = verdict_of(planted(CALM, Host("cudaMalloc")))[0]
    assert (first.cause, first.rank) == ("straggler_host", 1)
    assert "(mostly in cudaMalloc while launching the rest of the step)" in first.text


def test_launch_calls_of_eager_steps_still_ask_for_graphs() -> None:
    first = verdict_of(planted(Host(eager=True), Host(eager=True)))[0]
    assert first.text.endswith("record with CUDA graphs")


def test_time_between_steps_is_not_laid_to_what_comes_behind() -> None:
    trace = planted(Host(between=True), Host(between=True))
    first = verdict_of(trace)[0]
    assert (first.cause, first.phase, first.part) == ("host_late", "outside", "gap_host")
    assert near(first.ns_per_step, costs(trace))
    assert "mostly in Python between steps: look at what the scheduler does there" in first.text


def test_one_rank_that_is_late_between_steps() -> None:
    first = verdict_of(planted(CALM, Host(between=True)))[0]
    assert (first.cause, first.rank, first.phase) == ("straggler_host", 1, "outside")
    assert "(mostly in Python between steps)" in first.text


def test_a_recorder_is_not_the_engine() -> None:
    """Its work is in no CUDA call, so that parts stay what they are."""
    first = verdict_of(planted(CALM, Host(recorder="CUPTI Buffer flush")))[0]
    assert (first.cause, first.rank, first.part) == ("straggler_host", 1, "gap_host")
    assert "(mostly in CUPTI Buffer flush, the recorder's own work)" in first.text
    assert first.text.endswith("that time is not the engine's, so judge by the steps without it")


def test_what_cuda_itself_does_is_named() -> None:
    first = verdict_of(planted(CALM, Host(recorder="Lazy Function Loading")))[0]
    assert "(mostly in Lazy Function Loading while launching the rest of the step)" in first.text
    assert first.text.endswith("load modules before serving, by running every shape once")


def held_in_launch(rank: Rank, plan: Host, steps: int) -> Meeting:
    """A graph launch call that begins while the GPU works, and returns so much later; its kernels begin at its end."""
    for _ in range(steps):
        begin = rank.now
        rank.python(20_000)
        rank.launch("gemm", 300_000)
        rank.builder.rank(rank.number).call(rank.now, rank.now + 100_000 + plan.ns, "cudaGraphLaunch")
        rank.now += 100_000 + plan.ns
        correlation = rank.builder.last_id[rank.builder.pid]
        time = max(rank.now, rank.free[7])
        for node in range(4):
            rank.builder.rank(rank.number).node("gemm", time, time + 100_000, node=node, launch=correlation)
            time += 100_000
        end = yield time, 10_000
        rank.builder.rank(rank.number).node("all_reduce", time, end, node=4, launch=correlation)
        rank.free[7] = end
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=1")


def test_a_launch_call_that_holds_the_host_up_is_no_queue() -> None:
    """It began before the GPU fell idle, but the GPU could not go on before it was done."""
    plans = (Host(ns=0), Host(ns=2_000_000))
    found = verdict_of(run(*plans, steps=STEPS, programme=held_in_launch))  # type: ignore[arg-type]
    assert (found[0].cause, found[0].rank, found[0].part) == ("straggler_host", 1, "gap_graph_launch")
    alone = verdict_of(run(plans[1], steps=STEPS, programme=held_in_launch))  # type: ignore[arg-type]
    assert (alone[0].cause, alone[0].part) == ("host_late", "gap_graph_launch")
    assert "queue" not in {cause.cause for cause in (*found, *alone)}
