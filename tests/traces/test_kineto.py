"""What of a Kineto trace becomes an op, a launch, a range or a collective call, and how they belong together."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.traces import UNKNOWN, Device, OpKind, Process
from tests.resources import calls_of
from tests.traces.kineto_files import checked, event, kernel, launch, names, read, texts, write

GRAPH = "cudaGraphLaunch"


def test_a_gpu_annotation_is_neither_op_nor_range(tmp_path: Path) -> None:  # HolisticTraceAnalysis#8
    trace = read(tmp_path, event("gpu_user_annotation", "step", 1, 2), event("cpu_op", "aten::mm", 1, 2))
    assert len(trace.ops) == len(trace.launches) == len(trace.ranges) == 0


def test_no_distributed_info(tmp_path: Path) -> None:  # HolisticTraceAnalysis#107
    trace = read(tmp_path, launch(1, 1), kernel(2, 1))
    assert trace.processes == (Process(100),)
    assert trace.notes_of("world_size") == ()


def test_old_and_new_categories(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        *(event(cat, cat, ts, 1, correlation=ts, bytes=8) for ts, cat in enumerate(("Kernel", "Memcpy", "Memset"), 1)),
        event("Runtime", "cudaMemsetAsync", 3, 1, correlation=3),
        event("cuda_driver", "cuLaunchKernelEx", 4, 1, correlation=4),
    )
    assert trace.ops.kind.tolist() == [OpKind.KERNEL, OpKind.MEMCPY, OpKind.MEMSET]
    assert trace.ops.bytes.tolist() == [8, 8, 8]
    assert trace.launches.correlation.tolist() == [3, 4]


def test_device_and_stream_where_there_are_no_arguments(tmp_path: Path) -> None:
    ops = read(tmp_path, {"ph": "X", "cat": "kernel", "name": "k", "pid": 3, "tid": 7, "ts": 1, "dur": 1}).ops
    assert (ops.device.tolist(), ops.stream.tolist(), ops.correlation.tolist()) == ([3], [7], [UNKNOWN])


def test_pids_and_tids_that_are_names(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        event("user_annotation", "a", 1, 9, "Spans", "main"),
        event("user_annotation", "b", 2, 1, "Spans", "main"),
        event("user_annotation", "c", 2, 1, "17", "-3"),
    )
    assert texts(trace) == ["c", "a", "b"]
    assert trace.ranges.parent.tolist() == [-1, -1, 1]
    assert (trace.ranges.pid[0], trace.ranges.tid[0]) == (17, -3)
    assert trace.ranges.pid[1] == trace.ranges.pid[2] > 2**32


@pytest.mark.parametrize(("start", "end"), [(3_000, 6_776), (1_000, 7_000)])
def test_overlapping_kernels_are_both_kept(tmp_path: Path, start: int, end: int) -> None:  # google/perfetto#4280
    ops = read(tmp_path, kernel(start / 1000, (end - start) / 1000), kernel(5, 2)).ops
    assert sorted(zip(ops.start.tolist(), ops.end.tolist(), strict=True)) == [(start, end), (5_000, 7_000)]


def test_a_child_that_ends_after_its_parent(tmp_path: Path) -> None:  # google/perfetto#928
    trace = read(tmp_path, event("user_annotation", "parent", 1, 4), event("user_annotation", "child", 2, 4))
    assert trace.ranges.end.tolist() == [5_000, 6_000]
    assert (trace.ranges.parent.tolist(), trace.ranges.depth.tolist()) == ([-1, 0], [0, 1])


def test_three_mutually_overlapping_ranges(tmp_path: Path) -> None:  # google/perfetto#6277
    trace = read(tmp_path, *(event("user_annotation", f"r{start}", start, 5) for start in (1, 2, 3)))
    assert texts(trace) == ["r1", "r2", "r3"]
    assert trace.ranges.end.tolist() == [6_000, 7_000, 8_000]


def test_one_stream_number_on_two_streams_and_devices(tmp_path: Path) -> None:  # nsys-ai#574, #142
    ops = read(tmp_path, kernel(1, 9, stream=7), kernel(1, 9, stream=8), kernel(1, 9, device=2)).ops
    assert sorted(zip(ops.device.tolist(), ops.stream.tolist(), strict=True)) == [(0, 7), (0, 8), (2, 7)]


@pytest.mark.parametrize("api", [GRAPH, "cudaGraphLaunch_v10000", "cuGraphLaunch", "hipGraphLaunch"])
def test_kernels_of_a_graph_launch(tmp_path: Path, api: str) -> None:  # TraceLens#827, nsys-ai#236
    replay = [kernel(10 + number, 1, 9) for number in range(5)]
    trace = read(tmp_path, launch(1, 2, 9, api), *replay, launch(20, 1, 10), kernel(22, 1, 10))
    assert trace.ops.graph_launch.tolist() == [9, 9, 9, 9, 9, UNKNOWN]
    assert len(trace.launches) == 2


def test_a_graph_launch_and_a_synchronisation(tmp_path: Path) -> None:  # HolisticTraceAnalysis#290
    sync = launch(4, 9, 2, "cudaDeviceSynchronize")
    trace = read(tmp_path, launch(1, 2, 1, GRAPH), kernel(5, 3), kernel(9, 3), sync)
    assert [trace.strings[api] for api in trace.launches.api] == [GRAPH, "cudaDeviceSynchronize"]
    assert trace.ops.graph_launch.tolist() == [1, 1]


def test_two_replays_without_a_pause(tmp_path: Path) -> None:  # TraceLens#728
    replays = [kernel(10 + 2 * number, 2, 1 + number // 2) for number in range(4)]
    trace = read(tmp_path, launch(1, 1, 1, GRAPH), launch(3, 1, 2, GRAPH), *replays)
    assert trace.ops.graph_launch.tolist() == [1, 1, 2, 2]
    assert trace.ops.end[:-1].tolist() == trace.ops.start[1:].tolist()


def test_graph_arguments_of_a_replay_without_its_launch(tmp_path: Path) -> None:  # TraceLens#973
    node = {"graph id": 3, "graph node id": 41}
    ops = read(tmp_path, kernel(1, 1, 5, **node), kernel(3, 1, 6, **{"graph id": 0, "graph node id": 0})).ops
    assert ops.graph_launch.tolist() == [5, UNKNOWN]
    assert ops.graph_node.tolist() == [41, UNKNOWN]


@pytest.mark.parametrize(("written", "kept"), [(7, 7), (-1, UNKNOWN), (0, UNKNOWN), ("7", 7), (None, UNKNOWN)])
def test_kernels_without_a_launch(tmp_path: Path, written: int, kept: int) -> None:  # NVIDIA/PyProf#98, chakra#128
    trace = read(tmp_path, launch(1, 1, 1), launch(2, 1, -1, GRAPH), kernel(3, 1, written))
    assert trace.ops.correlation.tolist() == [kept]
    assert trace.ops.pid.tolist() == [100]
    assert trace.ops.graph_launch.tolist() == [UNKNOWN]


def test_queued_collectives_keep_their_own_times(tmp_path: Path) -> None:  # mlcommons/chakra#181
    trace = read(tmp_path, launch(1, 1, 1), launch(2, 1, 2), kernel(50, 10, 1), kernel(60, 10, 2))
    assert trace.ops.start.tolist() == [50_000, 60_000]
    assert trace.ops.end.tolist() == [60_000, 70_000]


def test_the_cost_of_graph_kernels_grows_with_their_number(tmp_path: Path) -> None:  # TraceLens#522
    def cost(number: int) -> int:
        rows = (kernel(10 + row, 1, 9) for row in range(number))
        path = write(tmp_path / f"{number}.json", launch(1, 2, 9, GRAPH), *rows)
        assert len(checked(path).ops) == number
        return calls_of(lambda: checked(path))

    assert cost(10_000) < 12 * cost(1_000)


def test_only_api_calls(tmp_path: Path) -> None:  # vllm-project/vllm#20959
    trace = read(tmp_path, launch(1, 1), launch(3, 1, 2, "cudaStreamSynchronize"))
    assert (len(trace.ops), len(trace.launches), trace.devices) == (0, 2, ())


def test_verify_steps_labelled_extend(tmp_path: Path) -> None:  # sgl-project/sglang#34942
    labels = ["step[EXTEND bs=1 toks=128]", "step[EXTEND bs=1 toks=8]", "step[EXTEND bs=1 toks=8]"]
    trace = read(tmp_path, *(event("user_annotation", text, 10 * row, 5) for row, text in enumerate(labels, 1)))
    assert texts(trace) == labels
    assert set(trace.ranges.domain.tolist()) == {trace.strings.index("")}


def test_metadata(tmp_path: Path) -> None:
    gpus = [{"id": number, "name": "NVIDIA H200", "numSms": 132} for number in range(8)]
    trace = read(
        tmp_path, launch(1, 1), kernel(2, 1, device=3), deviceProperties=gpus, cuda_driver_version=12080,
        distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
    )  # fmt: skip
    assert trace.devices == (Device(3, "NVIDIA H200", 132),)
    assert trace.processes == (Process(100, rank=3),)
    assert trace.notes_of("world_size") == ("8",)
    assert (trace.source.format, trace.source.schema_version, trace.source.driver) == ("kineto", "1", "CUDA 12.8")


def test_no_secret_is_kept(tmp_path: Path) -> None:
    command = {"ph": "M", "name": "process_name", "pid": 100, "args": {"name": "serve --api-key sk-SECRET"}}
    stack = event("python_function", "SECRET.py(3): run", 1, 2, **{"Call stack": "SECRET"})
    api = event("cuda_runtime", "cudaLaunchKernel", 1, 1, env="SECRET", correlation=1)
    annotation = event("user_annotation", "step\0TOKEN=SECRET", 1, 1)
    trace = read(tmp_path, command, stack, api, annotation, kernel(2, 1, env="SECRET"), user="SECRET", INFO=["SECRET"])
    assert names(trace) == ["gemm"]
    assert "SECRET" not in repr((trace.strings, trace.processes, trace.devices, trace.notes, trace.source))


def test_work_of_the_profiler_holds_up_the_thread_that_launches(tmp_path: Path) -> None:
    """The file lays it to no process: pid -1, thread 0."""
    overhead = event("overhead", "Activity Buffer Request", 3, 40, pid=-1, tid=0)
    trace = read(tmp_path, launch(1, 1), kernel(2, 1), overhead)
    found = trace.overheads
    assert [trace.strings[name] for name in found.name] == ["Activity Buffer Request"]
    assert (found.start.tolist(), found.end.tolist()) == ([3_000], [43_000])
    assert (found.pid.tolist(), found.tid.tolist()) == ([100], [100])
    assert len(trace.launches) == 1 and len(read(tmp_path, kernel(2, 1), overhead).overheads) == 0
