"""The recorded pairs: the words and the numbers say what is true of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from profkit.analyzers import attribute
from profkit.analyzers.diff import Context, PairDiff, Per, Side, diff
from profkit.analyzers.diff.devices import compared_devices, equal, one_rank, tied
from profkit.analyzers.diff.grid import grids_of_tied
from profkit.traces import open_recordings
from tests.shared_files import shared

ROOT = Path(__file__).parents[2]


def recorded(path: Path) -> Side:
    (one,) = open_recordings(path)
    return Side.of(one.name, str(one.path), attribute(one.trace), Context())


def pair(a: str, b: str, per: Per = "step") -> PairDiff:
    return diff([recorded(ROOT / "traces" / a)], [recorded(ROOT / "traces" / b)], per).pairs[0]


@pytest.fixture(scope="module")
def graphs() -> PairDiff:
    return pair("ep2-dflash/c1-eager", "ep2-dflash/c1")


def test_eager_to_graphs_sums_up(graphs: PairDiff) -> None:
    """Walls per step of the slowest ranks: 0 without graphs, 1 with them."""
    assert graphs.total is not None
    assert (graphs.total.a_ns, graphs.total.b_ns) == (217_046_617, 9_749_538)
    assert sum(row.delta_ns for row in graphs.parts) == graphs.total.delta_ns == -207_297_079
    assert graphs.total.significant


def test_eager_to_graphs_names_the_cause(graphs: PairDiff) -> None:
    """Skew and launch gaps went, transfer stayed: a tool that blames all-reduces is wrong."""
    changes = {story.about: story.change for story in graphs.stories if story.about != "compute"}
    assert changes["waiting"].significant and changes["waiting"].delta_ns == pytest.approx(-194_095_571, abs=2)
    assert changes["host"].significant and changes["host"].delta_ns < -200_000_000
    assert not changes["transfer"].significant and abs(changes["transfer"].delta_ns) < 100_000
    assert graphs.summary.startswith("A step takes 9.75 ms instead of 217 ms: 22.3 times as fast")
    host = "rank 0's host gaps went (208 ms to 1.82 ms)"
    assert f"; {host}, and with them rank 1's waiting for it (195 ms to 557 µs); " in graphs.summary
    assert "; rank 1's transfers in collectives did not change beyond noise (1.27 ms to 1.25 ms); " in graphs.summary
    assert "(95 %: −224 ms … −193 ms)" in graphs.summary


def test_eager_to_graphs_names_the_ranks(graphs: PairDiff) -> None:
    ranks = {story.about: (story.a_rank, story.b_rank, story.follows) for story in graphs.stories}
    assert (ranks["host"], ranks["waiting"]) == ((0, 0, None), (1, 1, 0))
    host = graphs.ranks[0].host
    assert host is not None and (host.a_ns, host.b_ns) == (207_874_124, 1_822_461)
    assert (ranks["compute"][:2]) == (0, 1)


def test_eager_to_graphs_aligns_the_kernels(graphs: PairDiff) -> None:
    """The same model runs: all but a few of 1,231 kernels have a partner."""
    paired = sum(row.b_count for row in graphs.kernels if row.a_name and row.b_name)
    alone = sum(row.a_count + row.b_count for row in graphs.kernels if not (row.a_name and row.b_name))
    assert paired > 1_200 and alone < 30


def test_plain_to_speculative_per_token() -> None:
    found = pair("ep2/c1", "ep2-dflash/c1", "token")
    assert found.total is not None and found.total.significant
    assert (found.total.a_ns, found.total.b_ns) == (5_116_473, 2_779_936)  # 9,749,538 / 3.50711
    assert "An accepted token takes 2.78 ms instead of 5.12 ms: 46 % shorter" in found.summary
    assert "accept length 1 and 3.51" in found.summary
    assert "decoding: plain in A, speculative in B" in found.comparable.reasons


def test_plain_to_speculative_per_step_says_what_a_step_yields() -> None:
    found = pair("ep2/c1", "ep2-dflash/c1")
    assert "steps yield 1 and 3.51 tokens: compare with --per token" in found.comparable.reasons
    assert found.summary.startswith("A speculative cycle takes 9.75 ms, a plain step 5.12 ms: 91 % longer")
    assert "per accepted token it is 2.78 ms instead of 5.12 ms" in found.summary


def test_public_pair() -> None:
    """Two slices of 0.3 s without decode steps: the second is shorter, and its kernels take less time in it."""
    a, b = (recorded(shared(f"public-traces/nsys/nsys_3.25.0_h100x2_nccl_{x}.sqlite.gz")) for x in ("before", "after"))
    found = diff([a], [b]).pairs[0]
    assert found.window == "recording" and found.comparable.status == "warn"
    assert found.total is not None
    assert (found.total.a_ns, found.total.b_ns) == (299_848_812, 299_269_422)
    assert sum(row.delta_ns for row in found.parts) == found.total.delta_ns
    assert [side.ops for side in found.sides] == [5_299, 4_733]
    assert [round(side.ops_sum_ns / 1e6, 1) for side in found.sides] == [541.1, 494.1]
    assert "the second is 579 µs shorter" in found.summary and "sum to 47.0 ms less" in found.summary
    assert not any(row.significant for row in (*found.parts, *found.kernels))
    assert {row.state for row in found.kernels} <= {"unknown", "new", "gone"}
    untested = [row for row in found.kernels if row.state == "unknown"]
    assert untested and all(row.a_count and row.b_count and row.a_call_ns and row.b_call_ns for row in untested)


def test_plain_to_speculative_has_one_target() -> None:
    """The target's forward took 0.55 ms of experts' kernels more per step; nothing of it is gone or new."""
    found = pair("ep2/c1", "ep2-dflash/c1")
    assert found.total is not None and sum(row.delta_ns for row in found.parts) == found.total.delta_ns
    cells = {(row.phase, row.part, row.kernel_class): (row.a_ns, row.b_ns) for row in found.parts}
    assert cells["target", "compute", "moe"] == (1_473_389, 1_742_591)
    assert not {"decode", "verify"} & {phase for phase, _, _ in cells}
    moe = next(row for row in found.kernels if row.b_name == "fused_moe_kernel")
    assert (moe.phase, moe.state, moe.a_count, moe.b_count) == ("target", "slower", 96, 96)


def test_calls_per_token() -> None:
    """Two sevenths as many calls per token, each longer by a twentieth: not faster."""
    found = pair("tp1/c1", "tp1-dflash/c1", "token")
    assert Counter(row.state for row in found.kernels)["less often"] > 5
    row = next(row for row in found.kernels if row.a_name == "nvjet_sm90_tst_192x8_64x8_2x1_v_bz_TNT")
    assert row.state == "less often" and row.a_ns > 3 * row.b_ns
    assert (row.a_call_ns, row.b_call_ns) == (47_965, 50_212)


def test_a_change_that_is_collectives_is_told_also_where_one_side_has_one_rank() -> None:
    """Waiting cannot be told from transfer then; the experts are shared out, so less is computed on each."""
    found = pair("tp1/c1", "ep2/c1")
    assert "collectives (waiting and transfer) are new (1.01 ms)" in found.summary
    assert "number of ranks: 1 in A, 2 in B" in found.comparable.reasons


def test_ranks_that_are_tied_within_noise() -> None:
    """Rank 1's steps took 0.3 % longer, which is noise; rank 0 computed longer, and the other waited for it."""
    a, b = (recorded(ROOT / "traces" / name) for name in ("ep2-dflash/c1-eager", "ep2-dflash/c1"))
    assert (equal(b), tied(b)) == ([1], [0, 1])
    assert compared_devices(a, b) == (0, 1) and one_rank(a, b) == (0, 0)
    assert [grid.ranks for grid in grids_of_tied(a, b, (1.0, 1.0))] == [(0, 1), (0, 0)]
    assert diff([a], [b]).pairs[0].kernel_ranks == (0, 0)
