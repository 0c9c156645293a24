"""Kineto traces recorded on real GPUs, from the shared folder."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from profkit.traces import I64, UNKNOWN, Trace
from profkit.traces.kineto_tables import launch_rows
from tests.shared_files import shared
from tests.traces.kineto_files import checked, names, texts


def public(*files: str) -> Trace:
    """The trace of public recordings."""
    return checked(*(shared(f"public-traces/kineto/{name}.json.gz") for name in files))


def ops_per_graph_launch(trace: Trace) -> list[int]:
    """How many ops each graph launch owns, by first op."""
    return list(collections.Counter(trace.ops.graph_launch[trace.ops.graph_launch != UNKNOWN].tolist()).values())


def without_launch(trace: Trace) -> int:
    """How many ops have no launch record."""
    return int(np.count_nonzero(launch_rows(trace.ops, trace.launches) == UNKNOWN))


def union(start: I64, end: I64) -> int:
    """Time in which at least one of the intervals, which are ordered by start, is open."""
    reached = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reached[:-1]])
    return int(np.sum(np.maximum(0, end - np.maximum(start, before))))


def test_one_cuda_graph_launch_with_overlapping_kernels() -> None:
    trace = public("sglang_decode_qwen3_30b_b300_cudagraph")
    kernels = trace.ops.take(trace.ops.kind == 0)
    assert (len(kernels), len(trace.ops)) == (713, 718)
    assert ops_per_graph_launch(trace) == [676]
    assert round(int(np.sum(kernels.end - kernels.start)) / 1e6, 3) == 6.290
    assert round(union(kernels.start, kernels.end) / 1e6, 3) == 5.380


def test_overlaps_on_one_stream() -> None:
    ops = public("sglang_decode_qwen3_30b_b300_cudagraph").ops
    kernels = ops.take(ops.kind == 0)
    overlaps = 0
    for stream in np.unique(kernels.stream):
        mine = kernels.take(kernels.stream == stream)
        overlaps += int(np.count_nonzero(mine.start[1:] < mine.end[:-1]))
    assert overlaps == 674


def test_one_hip_graph_launch_whose_first_kernel_starts_before_the_call_returns() -> None:
    trace = public("sglang_decode_qwen3_8b_mi300_hipgraph")
    assert ops_per_graph_launch(trace) == [544]
    first = int(np.flatnonzero(trace.ops.graph_launch != UNKNOWN)[0])
    call = int(launch_rows(trace.ops, trace.launches)[first])
    assert trace.ops.start[first] - trace.launches.start[call] == 14_066
    assert trace.ops.start[first] < trace.launches.end[call]


def test_piecewise_graphs() -> None:
    trace = public("vllm_piecewise_mi300_25graphs")
    assert ops_per_graph_launch(trace) == [4, *[15] * 23, 12]
    assert len(trace.ops) - sum(ops_per_graph_launch(trace)) == 62


def test_integer_microseconds_and_ops_without_a_launch_record() -> None:
    trace = public("torchrec_a100_cudagraph_orphans_us")
    assert (len(trace.ops), without_launch(trace)) == (7_747, 872)
    assert not np.any(trace.ops.start % 1000) and not np.any(trace.ops.end % 1000)


def test_ops_launched_before_the_recording_and_mixed_pids() -> None:
    trace = public("hf_qwen15_h100_orphans")
    assert (len(trace.ops), without_launch(trace)) == (1_707, 509)
    assert set(trace.ops.pid.tolist()) == set(trace.launches.pid.tolist()) == {25_286}


def test_collectives_of_eight_ranks_match_by_order() -> None:
    trace = public(*(f"dlrm8/rank{rank}" for rank in range(8)))
    nccl = trace.ops.take(np.array(["nccl" in name for name in names(trace)]))
    assert [process.rank for process in trace.processes] == list(range(8))
    by_rank = [nccl.take(nccl.device == device) for device in range(8)]
    assert [len(ops) for ops in by_rank] == [8] * 8
    starts, ends = np.array([ops.start for ops in by_rank]), np.array([ops.end for ops in by_rank])
    assert np.ptp(starts, axis=0).max() == 7_624_000
    assert np.ptp(ends, axis=0).max() <= 7_000


def test_ranks_sampled_from_128() -> None:
    trace = public("sampled_rank0_of128", "sampled_rank1_of128")
    assert trace.notes_of("world_size") == ("128",)
    assert [(process.pid, process.rank) for process in trace.processes] == [(4_037, 0), (4_045, 1)]
    assert np.bincount(trace.ops.device).tolist() == [1_204, 1_154]


def test_collective_arguments_of_data_parallel_training() -> None:
    trace = public("ddp_a100_nccl_args_ns")
    calls = trace.collective_calls
    assert len(calls) == 21
    assert trace.strings[calls.kind[0]] == "broadcast"
    assert (calls.count[2], calls.bytes[2]) == (2_049_000, 8_196_000)
    known = set(zip(trace.launches.tid.tolist(), trace.launches.start.tolist(), strict=True))
    assert set(zip(calls.tid.tolist(), calls.start.tolist(), strict=True)) <= known


@pytest.mark.parametrize(
    ("name", "ops", "launches", "ranges"),
    [
        ("old_categories_tiny", 4, 8, 0),
        ("gpu_only_mi210", 562, 631, 0),
        ("no_gpu_events", 0, 0, 43),
        ("mtia_inference_other_accelerator", 0, 0, 1_696),
        ("cupti_range_profiler_no_kernels", 0, 1_862, 8),
        ("large_integer_minimal", 1, 0, 0),
        ("gpu_user_annotation_gp100", 140, 180, 10),
        ("event_sync_multi_stream_a100", 6, 39, 0),
        ("sglang_prefill_qwen3_8b_mi300_eager", 534, 1_069, 2),
    ],
)
def test_odd_but_real_layouts(name: str, ops: int, launches: int, ranges: int) -> None:
    trace = public(name)
    assert (len(trace.ops), len(trace.launches), len(trace.ranges)) == (ops, launches, ranges)
    assert trace.notes_of("bad_times") == trace.notes_of("warning") == ()


def test_dflash_under_cuda_graphs() -> None:
    trace = checked(shared("captures/dense8b-dflash-graph-c1.kineto.json.gz"))
    assert (len(trace.ops), without_launch(trace), len(trace.launches)) == (13_720, 0, 3_383)
    assert [trace.strings[name] for name in trace.overheads.name.tolist()] == ["Activity Buffer Request"]
    assert ops_per_graph_launch(trace) == [81, 551] * 19  # the drafter's graph, the target's
    labels = collections.Counter(texts(trace))
    assert labels["step[TARGET_VERIFY bs=1]"] == 38
    assert labels["step[EXTEND bs=1 toks=128]"] == 1
    assert len(trace.ranges) == 168


def test_two_verify_ranges_a_cycle_own_a_graph_launch_each() -> None:
    trace = checked(shared("captures/dense8b-dflash-graph-c1.kineto.json.gz"))
    verify = trace.ranges.take(np.array(["TARGET_VERIFY" in text for text in texts(trace)]))
    graphs = trace.launches.take(np.array(["GraphLaunch" in trace.strings[api] for api in trace.launches.api]))
    inside = np.searchsorted(verify.start, graphs.start, side="right") - 1
    assert inside.tolist() == list(range(38))
    assert np.all(graphs.start < verify.end) and set(graphs.tid.tolist()) == set(verify.tid.tolist())
