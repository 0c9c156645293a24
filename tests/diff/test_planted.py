"""A planted change is found and sized, and nothing else is called significant; without one, nothing is."""

from __future__ import annotations

import pytest

from profkit.analyzers.diff.result import PairDiff
from profkit.traces import Trace
from tests.analyzers.engine import run

from .pairs import Served, compared, served, trace_of


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


def test_waiting_for_a_slow_gpu_is_not_the_hosts_doing(before: Trace) -> None:
    pair = compared(before, trace_of(Served(seed=2), slow_rank=1.5))
    assert story(pair, "waiting") == (0, 0, None)
    assert "with them" not in pair.summary and "rank 0's waiting for rank 1 grew" in pair.summary


def test_one_rank_is_not_named() -> None:
    pair = compared(trace_of(Served(seed=1), ranks=1), trace_of(Served(seed=2, gemm=40_000), ranks=1))
    assert "verify kernels grew" in pair.summary and "rank" not in pair.summary
