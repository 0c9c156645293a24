"""What collectives cost where not all of it is transfer: ranks not recorded, prefills, and what has no partner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.traces import Note, Trace
from tests.analyzers.engine import Meeting, Plan, Rank, run
from tests.analyzers.test_verdict import CALM, LATE, figures_of, near, verdict_of
from tests.builders import KERNELS

STEPS = 8


def without_rank(trace: Trace, rank: int) -> Trace:
    """What is left where the file of a rank got lost of a recording that says how many there were."""
    world = len(trace.devices)
    ops, launches, ranges = (table.take(table.pid != 100 + rank) for table in (trace.ops, trace.launches, trace.ranges))
    kept = tuple(process for process in trace.processes if process.rank != rank)
    notes = (*trace.notes, Note("world_size", str(world)))
    ranges = replace(ranges, parent=np.full(len(ranges), -1))
    return replace(trace, ops=ops, launches=launches, ranges=ranges, processes=kept, notes=notes)


def prefilling(rank: Rank, plan: Plan, steps: int) -> Meeting:
    """A prefill of 2 ms before every fourth step, which rank 1 is late for."""
    for number in range(steps):
        if number % 4 == 1:
            begin = rank.now
            rank.python(3_000_000 if rank.number else 0)
            for _ in range(4):
                rank.launch("gemm", 400_000)
                yield from rank.all_reduce(100_000)
            rank.builder.rank(rank.number).range(begin, rank.now, "step:prefill bs=1")
        begin = rank.now
        rank.python(20_000)
        nodes = [node for _ in range(10) for node in (("gemm", 100_000), ("all_reduce", plan.transfer))]
        yield from rank.graph(nodes, 1_000)
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=1")


def test_waiting_for_a_rank_that_is_not_recorded_is_no_transfer() -> None:
    figures = figures_of(without_rank(run(CALM, CALM, LATE), 2))
    (first,) = (cause for cause in figures.verdict if cause.part == "collective")
    assert first.cause == "unexplained" and first.ns_per_step > 1_000_000
    assert "2 of 3 ranks are recorded" in first.text and first.text.endswith("record every rank in one run")
    assert figures.devices["0"].collectives.transfer_ns is None
    assert figures.devices["0"].collectives.skew_ns is not None


def test_collectives_of_prefills_are_no_transfer_of_the_steps() -> None:
    found = verdict_of(run(CALM, CALM, programme=prefilling))
    (link,) = (cause for cause in found if cause.cause == "link_bound")
    assert (link.phase, link.ns_per_step) == ("step_other", 10 * CALM.transfer)
    assert "in 10 collectives" in link.text


def test_prefills_are_told() -> None:
    figures = figures_of(run(CALM, CALM, programme=prefilling))
    (prefill,) = (cause for cause in figures.verdict if cause.cause == "prefill")
    slowest = figures.devices["0"]
    assert prefill.ns_per_step == round(sum(slowest.phase_partition_ns["prefill"].values()) / slowest.steps)
    assert figures.verdict[0] == prefill and figures.summary.startswith("Prefills between the decode steps take")


def exchanging(rank: Rank, plan: Plan, steps: int) -> Meeting:
    """Layers between which ranks send and receive; an all-reduce ends the step."""
    for _ in range(steps):
        begin = rank.now
        rank.python(20_000)
        for _ in range(8):
            rank.launch("gemm", int(60_000 * plan.speed))
            yield from one_sided(rank)
        yield from rank.all_reduce(10_000)
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=1")


def one_sided(rank: Rank) -> Meeting:
    yield from rank.all_reduce(20_000)
    rank.builder.ops[-1]["name"] = rank.builder.strings.id(KERNELS["send_recv"])


def test_send_and_receive_are_told_apart_from_transfers() -> None:
    """The slow rank does not wait; 0.8 ms less in them is what the others may wait for it."""
    slow = replace(CALM, speed=1 + 100 / 60)
    found = verdict_of(run(CALM, slow, CALM, programme=exchanging))
    (alone,) = (cause for cause in found if cause.cause == "unexplained")
    assert near(alone.ns_per_step, 8 * (20_000 + 100_000))
    assert "goes to send_recv, of which" in alone.text
    assert "rank 1 spends 800 µs less in them than the others, which may wait for it" in alone.text
    (link,) = (cause for cause in found if cause.cause == "link_bound")
    assert link.ns_per_step == 10_000 and "in 1 collective:" in link.text


def allocating(rank: Rank, plan: Plan, steps: int) -> Meeting:
    """Rank 1 allocates for 5 ms in each step, longer than the GPU works."""
    for _ in range(steps):
        begin = rank.now
        rank.call(5_000_000 if rank.number else 5_000, "cudaMalloc")
        nodes = [node for _ in range(10) for node in (("gemm", 100_000), ("all_reduce", plan.transfer))]
        yield from rank.graph(nodes, 1_000)
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=1")


def test_the_advice_of_a_straggler_keeps_together() -> None:
    """Its sentence and the transfers' become one, in front of the advice."""
    said = figures_of(run(CALM, CALM, programme=allocating)).summary
    assert "the transfers themselves take 100 µs: allocate before serving" in said and said.count(": ") == 1


def receiving(rank: Rank, plan: Plan, steps: int) -> Meeting:
    """Rank 1 receives for longer, right before ranks meet."""
    for _ in range(steps):
        begin = rank.now
        rank.python(20_000)
        for _ in range(6):
            rank.launch("gemm", 100_000)
            rank.launch("send_recv", 180_000 if rank.number == 1 else 30_000)
            yield from rank.all_reduce(10_000)
        rank.builder.rank(rank.number).range(begin, rank.now, "step:decode bs=1")


def test_a_rank_that_is_late_for_a_collective_without_a_partner() -> None:
    """What it did since ranks last left a collective together counts, and that is not the one without a partner."""
    first = verdict_of(run(CALM, CALM, CALM, programme=receiving))[0]
    assert (first.cause, first.rank, first.part) == ("unexplained", 1, "collective")
    assert near(first.ns_per_step, 6 * 150_000)
