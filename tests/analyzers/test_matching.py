"""Matching collectives over ranks that do not fit together: recorded apart, on other clocks, or wrongly."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest

from profkit import Recording, analyze
from profkit.analyzers import attribute
from profkit.analyzers.clocks import Pair
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.per_step import budgets
from profkit.analyzers.result import TraceFigures
from profkit.analyzers.words import duration
from profkit.traces import Trace
from tests.analyzers.engine import Plan, run
from tests.analyzers.planting import timed
from tests.builders import TraceBuilder

STEPS = 10


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("ranks", "ranks", trace)])[0].traces[0]


def detail_of(figures: TraceFigures, check: str, status: str = "warn") -> str:
    return next(c.detail for c in figures.health.checks if (c.id, c.status) == (check, status))


def two_ranks() -> Trace:
    """Two ranks of which the second is now and then late, by more in each step."""
    return run(Plan(), Plan(late_before_target=900_000, speed=1.2), steps=STEPS)


def begun_late(trace: Trace, rank: int, steps: int) -> Trace:
    """The trace without the first steps of one rank."""
    pid = 100 + rank
    texts = np.array([text.startswith("step:") for text in trace.strings])
    begins = np.sort(trace.ranges.start[texts[trace.ranges.text] & (trace.ranges.pid == pid)])
    ranges, launches, ops = trace.ranges, trace.launches, trace.ops
    called = (launches.pid != pid) | (launches.start >= begins[steps])
    kept = np.isin(ops.correlation, launches.correlation[called & (launches.pid == pid)])
    inside = np.flatnonzero((ranges.pid != pid) | (ranges.start >= begins[steps]))
    place = np.full(len(ranges) + 1, -1)
    place[inside] = np.arange(len(inside))
    ranges = ranges.take(inside)
    return replace(
        trace,
        ops=ops.take((ops.pid != pid) | kept),
        launches=launches.take(called),
        ranges=replace(ranges, parent=place[ranges.parent]),
    )


def shared_waiting(trace: Trace, rank: int, steps: int) -> int:
    """How long the other rank waits in the steps that both have, if ``rank`` lacks the first ones."""
    own = match_collectives(attribute(trace)).instances[1 - rank]
    return int(own.skew[own.step >= steps].sum())


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("steps", [2, 4, 7])
def test_ranks_recorded_far_apart(rank: int, steps: int) -> None:
    whole = two_ranks()
    figures = figures_of(begun_late(whole, rank, steps))
    collectives = figures.devices[str(1 - rank)].collectives
    assert collectives.skew_ns == shared_waiting(whole, rank, steps)
    assert f"{steps} steps at the edge" in detail_of(figures, "edge_steps")
    assert (collectives.unpaired_ns or 0) > 0


@pytest.mark.parametrize("by", [3_000_000, -700_000, 10**12])
def test_clocks_that_differ_are_aligned(by: int) -> None:
    """In any format: a merged file of two hosts has two clocks as well."""
    whole = two_ranks()
    apart = figures_of(timed(whole, {101: (lambda time: time + by, lambda time: time + by)}))
    assert f"device 1 is {duration(abs(by))} {'ahead' if by > 0 else 'behind'}" in detail_of(apart, "clock")
    for device, table in figures_of(whole).devices.items():
        found, expected = apart.devices[device].collectives, table.collectives
        assert (found.skew_ns, found.transfer_ns) == (expected.skew_ns, expected.transfer_ns)


def pair_of(starts_apart: int, ends_apart: int, count: int = 60) -> Pair:
    """Collectives of 40 us, begun and ended on the second device by so much later than on the first, give or take."""
    start = np.arange(count, dtype=np.int64) * 100_000
    jitter = np.arange(count, dtype=np.int64) % 7 * 100 - 300
    return Pair(start, start + 40_000, start + starts_apart + jitter, start + 40_000 + ends_apart + jitter)


@pytest.mark.parametrize(
    ("starts_apart", "ends_apart", "count", "offset"),
    [
        (11_000, 11_000, 60, 11_000),  # both edges apart: nobody waits, so it is the clock
        (-22_000, -20_000, 60, -20_000),
        (11_000, 11_000, 30, 0),  # too few to tell
        (900, 900, 60, 0),  # as ranks of one clock differ
        (0, 20_000, 60, 0),  # one link is slower
        (30_000, 500, 60, 0),  # one rank is late, and the other waits
        (-45_000, -46_000, 30, -46_000),  # it would have ended before the other began: few are enough
        (45_000, 44_000, 30, 44_000),
    ],
)
def test_clocks_of_gpus_in_one_recording(starts_apart: int, ends_apart: int, count: int, offset: int) -> None:
    assert pair_of(starts_apart, ends_apart, count).offset == pytest.approx(offset, abs=400)


def test_an_offset_is_one_with_which_the_collectives_are_possible() -> None:
    """The ends of most say 20 us, but short ones ended 24 us before the other device began them."""
    long, short = pair_of(-20_000, -20_000), pair_of(-34_000, -32_000, 4)
    short = Pair(short.start, short.start + 8_000, short.other_start, short.start - 24_000)
    both = [np.concatenate(edges) for edges in zip(*(astuple(pair) for pair in (long, short)), strict=True)]
    assert Pair(*both).offset == -24_000


def test_a_clock_that_runs_faster_is_not_believed() -> None:
    figures = figures_of(timed(two_ranks(), {101: (lambda time: time + time // 20, lambda time: time + time // 20)}))
    assert {d.collectives.skew_ns for d in figures.devices.values()} == {None}
    assert {d.collectives.transfer_ns for d in figures.devices.values()} == {None}
    assert "no constant difference of clocks explains that" in detail_of(figures, "collectives")
    assert not any(cause.cause.startswith("straggler") for cause in figures.verdict)
    assert not any(check.id == "clock" for check in figures.health.checks)


def test_collectives_that_cannot_be_the_same() -> None:
    """Every other all-reduce of rank 1 has ended 20 us before rank 0 begins it, and the rest match."""
    builder = TraceBuilder()
    for start in range(0, 1_000_000, 100_000):
        for rank, second in ((0, 60_000), (1, 30_000)):
            builder.rank(rank).range(start, start + 9_000, "step:decode bs=1")
            builder.launch(start + 100, start + 200, "all_reduce", start + 10_000, start + 20_000)
            builder.launch(start + 300, start + 400, "all_reduce", start + second, start + second + 10_000)
            builder.launch(start + 500, start + 600, "gemm", start + 75_000, start + 80_000)
    figures = figures_of(builder.trace())
    assert "10 of 20 collectives (50 %) end on device 0 or 1 before they begin" in detail_of(figures, "collectives")
    assert figures.devices["0"].collectives.skew_ns is None


def test_a_rank_without_annotations_is_named() -> None:
    trace = two_ranks()
    ranges = trace.ranges.take(trace.ranges.pid == 100)
    place = np.append(np.cumsum(trace.ranges.pid == 100) - 1, -1)
    figures = figures_of(replace(trace, ranges=replace(ranges, parent=place[ranges.parent])))
    detail = detail_of(figures, "annotations")
    assert "rank 1 has GPU work but no annotated step" in detail and "plugin is not active in that process" in detail
    assert not any(check.id == "edge_steps" for check in figures.health.checks)


def test_communicators_among_many_names() -> None:
    """A mismatch is told of the right kind, however many strings stand before its communicator."""
    builder = TraceBuilder()
    for number in range(5_000):
        builder.strings.id(f"operator {number}")
    for rank, count in ((0, 2), (1, 1)):
        builder.rank(rank).range(0, 9_000, "step:decode bs=1")
        for number in range(count):
            at = 100 * number
            builder.collective_call(at, at + 50, "ncclAllGather", "dp").launch(
                at + 10, at + 20, "all_gather", 10_000 + at, 10_090 + at
            )
    figures = figures_of(builder.trace())
    assert "all_gather differs in 1 of 1 steps (first in step 0: 2 on device 0, 1 on device 1)" in detail_of(
        figures, "collectives"
    )


def hidden_waiting() -> Trace:
    """Rank 0 waits 60 us of its 100 us all-reduce behind a kernel that runs as long on another stream."""
    builder = TraceBuilder()
    for start in range(0, 1_800_000, 300_000):
        for rank, begin in ((0, 30_000), (1, 90_000)):
            builder.rank(rank).range(start, start + 29_000, "step:decode bs=1")
            builder.range(start + 1_000, start + 19_000, "draft").range(start + 20_000, start + 28_000, "target")
            builder.launch(start + 4_000, start + 4_500, "gemm", start + 5_000, start + 25_000, 8)
            builder.launch(start + 5_000, start + 5_500, "gemm", start + 30_000, start + 90_000, 8)
            builder.launch(start + 6_000, start + 6_500, "all_reduce", start + begin, start + 130_000)
            builder.launch(start + 21_000, start + 21_500, "gemm", start + 130_000, start + 140_000, 8)
    return builder.trace()


def test_hidden_waiting_is_not_subtracted_from_exposed_transfer() -> None:
    trace = hidden_waiting()
    figures = figures_of(trace)
    causes = {cause.cause: cause for cause in figures.verdict if cause.rank is None}
    page = {row.rank: row for row in budgets(figures, attribute(trace))}
    assert (page[0].skew, page[0].transfer, page[0].unpaired) == (0, 40_000, 0)
    assert causes["link_bound"].ns_per_step == 40_000
    # 20 and 60 us of kernels, 40 us of transfer, and 5 us in a queue; the 60 us of hidden waiting are not in it.
    assert causes["drafter_cost"].ns_per_step == 125_000


def test_processes_whose_numbers_no_kernel_gives_out() -> None:
    """Ranks of several files that share a pid get others, from 2**40 on."""
    trace = two_ranks()
    moved = [replace(table, pid=np.where(table.pid == 101, 2**40 + 100, table.pid)) for table in (
        trace.ops, trace.launches, trace.ranges, trace.graph_nodes
    ) if "pid" in table.dtypes()]  # fmt: skip
    named = {"Ops": "ops", "Launches": "launches", "Ranges": "ranges", "GraphNodes": "graph_nodes"}
    processes = tuple(replace(one, pid=2**40 + 100 if one.pid == 101 else one.pid) for one in trace.processes)
    tables = {named[type(table).__name__]: table for table in moved}
    assert figures_of(replace(trace, processes=processes, **tables)).devices == figures_of(trace).devices
