"""A planted change is found and sized, and nothing else is called significant; without one, nothing is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as with_fields

from profkit.analyzers.diff import diff, parse_limit
from profkit.analyzers.diff.flame import diff_flame
from profkit.analyzers.diff.grid import Grid
from profkit.analyzers.diff.phases import APART
from profkit.analyzers.diff.result import Change, KernelChange, PairDiff, RankChange
from profkit.analyzers.diff.side import NO_CLASS, cell_code
from profkit.analyzers.diff.stories import story_changes
from profkit.analyzers.flame import PHASE_LEVEL
from profkit.analyzers.vocabulary import CLASS, PART
from profkit.traces import Trace
from tests.analyzers.engine import run
from tests.analyzers.test_verdict_streams import Streams, hidden, planned

from .pairs import Served, compared, served, side_of, trace_of


@pytest.fixture(scope="module")
def before() -> Trace:
    return trace_of(Served(seed=1))


def significant(pair: PairDiff) -> set[tuple[str, str, str | None]]:
    return {(row.phase, row.part, row.kernel_class) for row in pair.parts if row.significant}


def changed(pair: PairDiff) -> set[tuple[str, str | None, str | None]]:
    return {(row.state, row.a_name, row.b_name) for row in pair.kernels if row.significant or row.state != "same"}


def holds(pair: PairDiff, phase: str, part: str, true_ns: float) -> bool:
    """Whether the interval of the only such cell holds the true change."""
    (row,) = [row for row in pair.parts if (row.phase, row.part) == (phase, part) and row.significant]
    assert row.ci95_ns is not None
    return row.ci95_ns[0] <= true_ns <= row.ci95_ns[1]


def test_one_kernel_seven_per_cent_slower(before: Trace) -> None:
    pair = compared(before, trace_of(Served(seed=2, gemm=32_100)))
    assert significant(pair) == {("verify", "compute", "gemm")}
    assert holds(pair, "verify", "compute", 6 * 2_100)
    gemm = "nvjet_tst_64x8_64x16"
    assert changed(pair) == {("slower", gemm, gemm)}
    assert pair.total is not None and pair.total.significant
    assert "verify kernels grew" in pair.summary and "% longer" in pair.summary


def test_one_kernel_inserted(before: Trace) -> None:
    pair = compared(before, trace_of(Served(seed=2, inserted=("rope_kernel", 15_000))))
    assert ("verify", "compute", "rope") in significant(pair)
    # The new kernel also brings a gap between two kernels of the graph.
    assert significant(pair) <= {("verify", "compute", "rope"), ("verify", "gap_in_graph", None)}
    assert holds(pair, "verify", "compute", 15_000)
    assert changed(pair) == {("new", None, "rope_kernel")}


def test_a_synchronisation_added(before: Trace) -> None:
    pair = compared(before, trace_of(Served(seed=2, blocks=True)))
    assert {part for _, part, _ in significant(pair)} & {"gap_sync", "gap_host"}
    assert all(part.startswith("gap_") for _, part, _ in significant(pair))
    assert changed(pair) == set()
    host = next(story for story in pair.stories if story.about == "host")
    assert host.change.significant and host.change.delta_ns > 0
    assert "host gaps" in pair.summary


def test_one_rank_slower(before: Trace) -> None:
    pair = compared(before, trace_of(Served(seed=2), slow_rank=1.1))
    fast, slow = pair.ranks
    assert fast.waiting is not None and fast.waiting.significant
    assert fast.waiting.delta_ns == pytest.approx(6 * 5_800, rel=0.1)
    assert slow.waiting is not None and slow.transfer is not None and fast.transfer is not None
    assert not slow.transfer.significant and not fast.transfer.significant
    # Whichever rank is slower by a hair, what is called significant is the cause or its effect.
    assert significant(pair) and {part for _, part, _ in significant(pair)} <= {"compute", "collective"}


def test_a_class_renamed(before: Trace) -> None:
    """The same work under another name of another class: its cells change places, and the sum does not change."""
    pair = compared(before, trace_of(Served(seed=2, attention="my_own_kernel")))
    assert significant(pair) == {("verify", "compute", "attention"), ("verify", "compute", "other")}
    assert changed(pair) == {("replaced", "flash_fwd_splitkv_kernel", "my_own_kernel")}
    assert pair.total is not None and not pair.total.significant


def test_graphs_off(before: Trace) -> None:
    pair = compared(before, trace_of(Served(seed=2, eager=True)))
    assert "graph mode: CUDA graphs in A, eager launches in B" in pair.comparable.reasons
    assert ("verify", "gap_host", None) in significant(pair)
    assert not [row for row in pair.kernels if row.state != "same"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_without_a_change_nothing_is_significant(ranks: int) -> None:
    """Through the whole comparison; ``test_noise`` takes a thousand pairs of columns."""
    alarms = 0
    for number in range(25):
        a, b = (trace_of(Served(seed=100 + 2 * number + side, layers=2), 8, ranks) for side in (0, 1))
        pair = compared(a, b)
        assert pair.total is not None
        alarms += bool(significant(pair) or pair.total.significant)
    assert alarms <= 1


def with_late_host(seed: int, late: int | None = None, ranks: int = 2) -> Trace:
    """A recording in which the rank ``late`` launches kernels one by one, and so keeps the others waiting."""
    plans = [Served(seed=seed, eager=rank == late) for rank in range(ranks)]
    return run(*plans, steps=12, programme=served)


def story(pair: PairDiff, about: str) -> tuple[int, int, int | None]:
    """The ranks it is about in A and in B, and whose host gaps explain it."""
    (found,) = [one for one in pair.stories if one.about == about]
    return found.a_rank, found.b_rank, found.follows


@pytest.mark.parametrize("late", [0, 1])
def test_waiting_for_a_late_host_is_no_cause_of_its_own(late: int) -> None:
    """One cause, with the waiting of the other rank as its consequence, and each rank named."""
    pair = compared(with_late_host(1, late), with_late_host(2))
    assert story(pair, "host")[0] == late and story(pair, "waiting") == (1 - late, 1 - late, late)
    host, rest = pair.summary.split(", and with them ")
    assert "host gaps" in host and f"rank {late}" in host.split("; ")[-1]
    assert rest.startswith((f"rank {1 - late}'s waiting for it (", f"rank {1 - late}'s waiting for rank {late} ("))
    assert pair.summary.count("waiting") == 1


def test_waiting_that_came_with_a_late_host() -> None:
    pair = compared(with_late_host(1), with_late_host(2, late=1))
    assert story(pair, "host")[1] == 1 and story(pair, "waiting") == (0, 0, 1)
    assert " and with them rank 0's waiting for " in pair.summary


def test_waiting_of_several_ranks_for_one() -> None:
    pair = compared(with_late_host(1, late=2, ranks=3), with_late_host(2, ranks=3))
    assert story(pair, "waiting")[2] == 2 and story(pair, "waiting")[0] in (0, 1)
    assert pair.summary.count("waiting") == 1


@pytest.mark.parametrize("seed", [2, 3, 4, 6, 7])
@pytest.mark.parametrize("ranks", [2, 4])
def test_waiting_for_a_slow_gpu_follows_from_its_kernels(seed: int, ranks: int) -> None:
    """The last rank's kernels take a fifth longer. All ranks' steps do, to within nanoseconds: the cause is found on
    the rank that the others wait for, whichever of them is slower by a hair.
    """
    slow = ranks - 1
    pair = compared(trace_of(Served(seed=1), ranks=ranks), trace_of(Served(seed=seed), ranks=ranks, slow_rank=1.2))
    waiting = next(one for one in pair.stories if one.about == "waiting")
    assert waiting.a_rank != slow and (waiting.follows, waiting.cause) == (slow, "compute")
    compute = pair.stories[0]
    assert (compute.about, compute.phase, compute.b_rank) == ("compute", "verify", slow)
    told = pair.summary.split("; ")[1]
    assert told.startswith(f"rank {slow}'s verify kernels grew (") and f"and with them rank {waiting.a_rank}'s" in told
    assert pair.summary.count("waiting") == 1
    assert [side.rank for side in pair.sides] == [slow, slow] and pair.kernel_ranks == (slow, slow)
    assert significant(pair) >= {("verify", "compute", "gemm"), ("verify", "compute", "attention")}
    assert pair.total is not None and sum(row.delta_ns for row in pair.parts) == pair.total.delta_ns
    kernels = {row.a_name: row.state for row in pair.kernels if row.significant and row.phase == "verify"}
    assert kernels["nvjet_tst_64x8_64x16"] == "slower"
    by_rank = {row.rank: row.compute for row in pair.ranks}
    assert all(change is not None and change.significant == (rank == slow) for rank, change in by_rank.items())


@pytest.mark.parametrize("seed", [2, 6])
def test_a_slow_gpu_that_was_mended(seed: int) -> None:
    pair = compared(trace_of(Served(seed=seed), slow_rank=1.2), trace_of(Served(seed=1)))
    assert "; rank 1's verify kernels shrank (" in pair.summary
    assert ", and with them rank 0's waiting for it (" in pair.summary


def waiting_kernels(pair: PairDiff) -> list[KernelChange]:
    return [row for row in pair.kernels if row.kernel_class == "collective" and row.a_name and row.b_name]


def test_a_collective_that_waits_is_not_called_slower(before: Trace) -> None:
    """The rank that waits less for the other one, as it is the slow one, has no faster collectives."""
    (row,) = waiting_kernels(compared(before, trace_of(Served(seed=3), slow_rank=1.2)))
    assert row.state == "waits less" and row.a_wait_ns is not None and row.b_wait_ns is not None
    assert row.b_wait_ns - row.a_wait_ns == pytest.approx(row.delta_ns, abs=0.5 * abs(row.delta_ns))
    (alone,) = waiting_kernels(compared(trace_of(Served(seed=1), ranks=1), trace_of(Served(seed=2), ranks=1)))
    assert (alone.a_wait_ns, alone.b_wait_ns) == (None, None)


def test_a_collective_whose_transfer_changed_is_slower(before: Trace) -> None:
    (row,) = waiting_kernels(compared(before, trace_of(Served(seed=2, transfer=24_000))))
    assert row.state == "slower" and row.delta_ns == pytest.approx(6 * 12_000, rel=0.05)


def test_collectives_of_a_single_rank(before: Trace) -> None:
    """Waiting and transfer cannot be told apart there, but both together can."""
    pair = compared(trace_of(Served(seed=1), ranks=1), trace_of(Served(seed=2, transfer=36_000), ranks=1))
    assert re.search(r"; collectives \(waiting and transfer\) grew \(7\d\.\d µs to 21\d µs\)", pair.summary)
    (told,) = [one for one in pair.stories if one.about == "collectives"]
    assert told.change.significant and told.change.delta_ns == pytest.approx(6 * 24_000, rel=0.05)
    assert not [one for one in pair.stories if one.about in ("waiting", "transfer")]
    both = compared(before, trace_of(Served(seed=2, transfer=36_000)))
    assert "transfers in collectives grew" in both.summary and "(waiting and transfer)" not in both.summary


@pytest.mark.parametrize(("transfer", "told"), [(50_000, False), (1_000, True)])
def test_collectives_without_partners(transfer: int, told: bool) -> None:
    """What waiting and transfer of matched collectives do not explain is told of all together."""
    source = np.random.default_rng(2)
    code = cell_code(np.array(2), np.array(PART["collective"]), np.array(CLASS["collective"]))
    a, b = (source.normal(level, 100, (12, 1)) for level in (1e4, 6e4))
    grid = Grid(np.array([code]), (a, b), (), (0, 0), (1.0, 1.0), APART)
    matched = Change(1_000, 1_000 + transfer, transfer, (transfer, transfer), True)
    ranks = (RankChange(0, matched, Change(0, 0, 0, (0, 0), False), matched),)
    rows = story_changes(grid, ranks, (None, None), (1.0, 1.0))  # type: ignore[arg-type]
    assert ("collectives" in {row.about for row in rows}) == told


def test_small_changes_of_transfers_are_left_out(before: Trace) -> None:
    assert "transfers" not in compared(before, trace_of(Served(seed=2, gemm=40_000))).summary
    slow = compared(before, trace_of(Served(seed=7), slow_rank=1.2)).summary
    assert "rank 0's transfers in collectives hardly changed (" in slow


def test_one_more_of_what_is_there_is_nothing_new(before: Trace) -> None:
    pair = compared(before, trace_of(Served(seed=2, inserted=("gemm", 30_000))))
    (row,) = [row for row in pair.kernels if row.state != "same"]
    assert (row.state, row.a_count, row.b_count) == ("more often", 6, 7)
    back = compared(trace_of(Served(seed=2, inserted=("gemm", 30_000))), before)
    assert {row.state for row in back.kernels} == {"same", "less often"}


def test_phases_that_only_one_side_tells_apart_are_one(before: Trace) -> None:
    """Without names of ranges, a drafter's and a target's forward are told apart, but not what follows them."""
    sides = [side_of(trace_of(Served(seed=n)), "x") for n in (1, 2)]
    inferred = replace(sides[1], cycle=with_fields(sides[1].cycle, phases_inferred=True))
    (pair,) = diff(sides[:1], [inferred]).pairs
    assert pair.total is not None and sum(row.delta_ns for row in pair.parts) == pair.total.delta_ns
    for rows in (pair.parts, pair.kernels):
        assert {row.phase for row in rows} >= {"rest", "verify"} and "accept" not in {row.phase for row in rows}
    assert {one.phase for one in pair.stories if one.about == "compute"} == {"draft", "verify", "rest"}
    flame = diff_flame(sides[0], inferred, (1.0, 1.0))
    phases = {flame.strings[label] for label in flame.label[flame.level == PHASE_LEVEL].tolist()}
    assert phases == {"draft", "verify", "rest"}
    (limit,) = diff(sides[:1], [inferred], limits=[parse_limit("accept>90%")]).limits
    assert limit.status == "held" and limit.change.a_ns and "so 'accept' is 'rest' here" in (limit.note or "")


def test_graph_launches_are_told_where_the_host_as_a_whole_varies() -> None:
    """The host's gaps vary too much to tell anything; those before launches of graphs do not."""
    source = np.random.default_rng(1)
    codes = np.array([cell_code(np.array(2), np.array(PART[part]), np.array(NO_CLASS)) for part in
                      ("gap_host", "gap_graph_launch")])  # fmt: skip
    a, b = (np.stack([source.uniform(0, 9e6, 12), source.normal(level, 100, 12)], axis=1) for level in (1e4, 3e4))
    grid = Grid(codes, (a, b), (), (0, 0), (1.0, 1.0), APART)
    about = {row.about: row.change.significant for row in story_changes(grid, (), (None, None), (1.0, 1.0))}  # type: ignore[arg-type]
    assert about == {"host": False, "graph_launch": True}


def test_one_rank_is_not_named() -> None:
    pair = compared(trace_of(Served(seed=1), ranks=1), trace_of(Served(seed=2, gemm=40_000), ranks=1))
    assert "verify kernels grew" in pair.summary and "rank" not in pair.summary


def test_waiting_that_compute_hides_is_no_change() -> None:
    """Rank 1 enters each all-reduce 200 us later, beside a kernel of rank 0 that takes longer than that."""
    pair = compared(planned(hidden, Streams(), Streams()), planned(hidden, Streams(), Streams(longer=200_000)))
    assert "waiting" not in pair.summary
    for row in pair.ranks:
        assert row.waiting is not None and row.waiting.b_ns == 0
