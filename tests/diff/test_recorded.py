"""The recorded pairs: the words and the numbers say what is true of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from profkit.analyzers import attribute
from profkit.analyzers.diff import Context, PairDiff, Per, Side, diff
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
    return pair("ep2-dflash-eager", "ep2-dflash")


def test_eager_to_graphs_sums_up(graphs: PairDiff) -> None:
    """Walls per step of the slowest rank as the capture's notes have them: 129,470 and 7,420 µs."""
    assert graphs.total is not None
    assert (graphs.total.a_ns, graphs.total.b_ns) == (129_470_751, 7_420_072)
    assert sum(row.delta_ns for row in graphs.parts) == graphs.total.delta_ns == -122_050_679
    assert graphs.total.significant


def test_eager_to_graphs_names_the_cause(graphs: PairDiff) -> None:
    """Skew and launch gaps went, transfer stayed: a tool that blames all-reduces is wrong."""
    changes = {story.about: story.change for story in graphs.stories if story.about != "compute"}
    assert changes["waiting"].significant and changes["waiting"].delta_ns == pytest.approx(-103_186_156, abs=2)
    assert changes["host"].significant and changes["host"].delta_ns < -116_000_000
    assert not changes["transfer"].significant and abs(changes["transfer"].delta_ns) < 100_000
    assert graphs.summary.startswith("A step takes 7.42 ms instead of 129 ms: 17.4 times as fast")
    assert "gaps in which the GPU waits for its host went (117 ms to 172 µs)" in graphs.summary
    assert "waiting in collectives for other ranks on rank 0 went (103 ms to 287 µs)" in graphs.summary
    assert "the transfers of collectives did not change beyond noise (1.24 ms to 1.31 ms)" in graphs.summary


def test_eager_to_graphs_aligns_the_kernels(graphs: PairDiff) -> None:
    """The same model runs: all but a few of 1,231 kernels have a partner."""
    paired = sum(row.b_count for row in graphs.kernels if row.a_name and row.b_name)
    alone = sum(row.a_count + row.b_count for row in graphs.kernels if not (row.a_name and row.b_name))
    assert paired > 1_200 and alone < 30


def test_plain_to_speculative_per_token() -> None:
    found = pair("ep2", "ep2-dflash", "token")
    assert found.total is not None and found.total.significant
    assert (found.total.a_ns, found.total.b_ns) == (4_925_418, 2_120_021)  # 7,420,072 / 3.5
    assert "An accepted token takes 2.12 ms instead of 4.93 ms: 2.3 times as fast" in found.summary
    assert "accept length 1 and 3.5" in found.summary
    assert "decoding: plain in A, speculative in B" in found.comparable.reasons


def test_plain_to_speculative_per_step_says_what_a_step_yields() -> None:
    found = pair("ep2", "ep2-dflash")
    assert "steps yield 1 and 3.5 tokens: compare with --per token" in found.comparable.reasons
    assert found.summary.startswith("A speculative cycle takes 7.42 ms, a plain step 4.93 ms: 51 % longer")
    assert "per accepted token it is 2.12 ms instead of 4.93 ms" in found.summary


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


def test_the_reference_captures_take_less_than_two_seconds() -> None:
    begin = time.process_time()
    pair("ep2-dflash-eager", "ep2-dflash")
    assert time.process_time() - begin < 2
