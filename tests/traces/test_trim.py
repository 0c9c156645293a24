"""Trimming: whole steps, the same on every rank, and nothing of the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from profkit.traces import Trace, open_trace, save_bundle
from profkit.traces.trim import recorded_period_ns, trim_steps
from tests.builders import TraceBuilder
from tests.shared_files import shared

STEP = 1000


def recording(kinds: str, *, late: int = 0, cut: bool = False) -> Trace:
    """Two ranks; each letter is a step: d decode of 4, s decode of 3, p prefill. Rank 1 misses the first ``late``.

    With ``cut`` the last step has no GPU activity: the recorder stopped while the GPU was behind.
    """
    builder = TraceBuilder()
    for rank in (0, 1):
        builder.rank(rank)
        for number, kind in enumerate(kinds):
            if rank == 1 and number < late:
                continue
            at = number * STEP
            builder.range(
                at, at + 900, {"d": "step:decode bs=4", "s": "step:decode bs=3", "p": "step:prefill bs=1"}[kind]
            )
            builder.range(at + 10, at + 800, "target")
            builder.call(at + 20, at + 30, "cudaGraphLaunch")
            for part in range(0 if cut and number == len(kinds) - 1 else 3):
                node = 10 * (kind == "p") + part + 1
                builder.node("gemm", at + 200 + 100 * part, at + 290 + 100 * part + rank, node=node)
        builder.graph_node(1, 101, -5).graph_node(101, -1, -9).graph_node(11, 111, -5).graph_node(55, 155, -5)
    return builder.trace()


def kept_steps(trace: Trace) -> Counter[tuple[int, int]]:
    """How many steps of each process and start there are."""
    rows = [i for i, text in enumerate(trace.ranges.text) if trace.strings[text].startswith("step:")]
    return Counter((int(trace.ranges.pid[i]), int(trace.ranges.start[i]) // STEP) for i in rows)


def test_whole_steps_from_the_middle_are_kept_on_both_ranks() -> None:
    trace = trim_steps(recording("dddddd"), 3)
    trace.check()
    assert set(kept_steps(trace)) == {(pid, step) for pid in (100, 101) for step in (2, 3, 4)}
    assert (len(trace.ops), len(trace.launches), len(trace.ranges)) == (18, 6, 12)
    assert trace.ops.start.min() >= 2 * STEP
    assert trace.notes_of("trimmed") == ("3 of 6 recorded steps",)


def test_a_stretch_without_prefill_is_preferred() -> None:
    assert {step for _, step in kept_steps(trim_steps(recording("dpddddpd"), 3))} == {3, 4, 5}


def test_a_step_that_the_gpu_did_not_finish_is_not_kept() -> None:
    assert {step for _, step in kept_steps(trim_steps(recording("dddddd", cut=True), 3))} == {2, 3, 4}


def test_the_wanted_batch_size_is_preferred() -> None:
    assert {step for _, step in kept_steps(trim_steps(recording("dddsss"), 2, 4))} == {1, 2}
    assert {step for _, step in kept_steps(trim_steps(recording("dddsss"), 2, 3))} == {3, 4}


@pytest.mark.parametrize("late", [1, 2])
def test_ranks_that_began_apart_keep_the_same_steps(late: int) -> None:
    trace = trim_steps(recording("dddddd", late=late), 3)
    first = {1: 2, 2: 3}[late]
    assert set(kept_steps(trace)) == {(pid, step) for pid in (100, 101) for step in range(first, first + 3)}
    assert trace.notes_of("trimmed") == (f"3 of {6 - late} recorded steps",)


def test_only_nodes_in_use_and_what_they_were_cloned_from() -> None:
    trace = trim_steps(recording("dddddd"), 3)
    assert sorted(trace.graph_nodes.node.tolist()) == [1, 1, 101, 101]


def test_an_activity_of_another_step_that_overlaps_is_kept_with_its_launch() -> None:
    builder = TraceBuilder().rank(0)
    for number in range(3):
        at = number * STEP
        builder.range(at, at + 900, "step:decode bs=1")
        builder.launch(at + 20, at + 30, "gemm", at + 200, at + 300)
    builder.call(10, 15, "cudaMemcpyAsync", correlation=50).op("HtoD", 1100, 1250, stream=9, launch=50)
    trace = trim_steps(builder.trace(), 2)
    assert sorted(trace.ops.start.tolist()) == [1100, 1200, 2200]
    assert 50 in trace.launches.correlation


def test_nothing_to_trim() -> None:
    trace = recording("ddd")
    assert trim_steps(trace, 3) is trace
    bare = TraceBuilder().rank(0).launch(0, 10, "gemm", 20, 30).trace()
    assert trim_steps(bare, 3) is bare
    assert recorded_period_ns(bare) is None


def test_period_counts_decode_steps_in_a_row() -> None:
    assert recorded_period_ns(recording("dddd")) == STEP
    assert recorded_period_ns(recording("dpd")) is None


def test_a_real_capture_stays_small_and_whole(tmp_path: Path) -> None:
    whole = open_trace(shared("captures/ep2-dflash-graph-c1.sqlite.xz"))
    trace = trim_steps(whole, 4, 1)
    trace.check()
    per_step = Counter(pid for pid, _ in kept_steps(trace).elements())
    assert set(per_step.values()) == {4}
    assert len(trace.ops) == pytest.approx(len(whole.ops) * 4 / 9, rel=0.05)
    assert np.isin(trace.ops.correlation, trace.launches.correlation).all()
    save_bundle(trace, tmp_path / "bundle")
    assert sum(file.stat().st_size for file in (tmp_path / "bundle").iterdir()) < 300_000
