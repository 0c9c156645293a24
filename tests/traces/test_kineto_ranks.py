"""Several ranks, in one file each or merged into one, and their collectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profkit.traces import UNKNOWN, Trace
from tests.traces.kineto_files import checked, event, kernel, launch, read, write

ALL_REDUCE: dict[str, Any] = {
    "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 2,
    "dtype": "BFloat16", "Process Group Name": "3", "Process Group Description": "tp",
}  # fmt: skip


def ranks(folder: Path, *files: dict[str, Any]) -> Trace:
    """Two-kernel files; each file's ``pid``, ``device`` and ``ts``, and what else its metadata holds."""
    paths = []
    for number, file in enumerate(files):
        meta = {"distributedInfo": {"rank": number, "world_size": len(files)}, **file}
        pid, device, ts = meta.pop("pid"), meta.pop("device"), meta.pop("ts", 10)
        rows = [row for c in (1, 2) for row in (launch(ts + c, 1, c, pid=pid), kernel(ts + 4 * c, 3, c, device))]
        paths.append(write(folder / f"rank{number}.json", *rows, **meta))
    return checked(*paths)


def test_ranks_that_reuse_correlation_ids(tmp_path: Path) -> None:  # AMD-AGI/TraceLens#577
    trace = ranks(tmp_path, {"pid": 100, "device": 0}, {"pid": 200, "device": 1})
    owners = sorted(zip(trace.ops.device.tolist(), trace.ops.pid.tolist(), trace.ops.correlation.tolist(), strict=True))
    assert owners == [(0, 100, 1), (0, 100, 2), (1, 200, 1), (1, 200, 2)]
    assert [(process.pid, process.rank) for process in trace.processes] == [(100, 0), (200, 1)]
    assert trace.notes_of("world_size") == ("2",)


def test_ranks_that_all_call_their_gpu_0(tmp_path: Path) -> None:
    trace = ranks(tmp_path, *({"pid": pid, "device": 0} for pid in (100, 200, 300)))
    assert [device.device for device in trace.devices] == [0, 1, 2]
    assert sorted(set(zip(trace.ops.device.tolist(), trace.ops.pid.tolist(), strict=True))) == [
        (0, 100), (1, 200), (2, 300),
    ]  # fmt: skip


def test_clashing_devices_of_files_that_tell_no_rank(tmp_path: Path) -> None:
    trace = ranks(tmp_path, *({"pid": pid, "device": 5, "distributedInfo": {}} for pid in (100, 200)))
    assert sorted(set(zip(trace.ops.device.tolist(), trace.ops.pid.tolist(), strict=True))) == [(0, 100), (1, 200)]


def test_ranks_that_share_a_pid(tmp_path: Path) -> None:
    trace = ranks(tmp_path, {"pid": 510, "device": 0}, {"pid": 510, "device": 1})
    first, second = (process.pid for process in trace.processes)
    assert first == 510 != second
    assert set(trace.launches.pid.tolist()) == set(trace.ops.pid.tolist()) == {first, second}


def test_ranks_that_count_from_different_bases(tmp_path: Path) -> None:
    base = 1_790_857_026_000_000_000
    trace = ranks(
        tmp_path,
        {"pid": 100, "device": 0, "ts": 10_000, "baseTimeNanoseconds": base},
        {"pid": 200, "device": 1, "ts": 0, "baseTimeNanoseconds": base + 10_000_500},
    )
    assert trace.ops.start.tolist() == [10_004_000, 10_004_500, 10_008_000, 10_008_500]
    assert trace.ops.device.tolist() == [0, 1, 0, 1]
    assert trace.notes_of("warning") == ()


def test_files_that_do_not_overlap_in_time(tmp_path: Path) -> None:
    trace = ranks(tmp_path, {"pid": 100, "device": 0}, {"pid": 200, "device": 1, "ts": 10_000})
    assert trace.notes_of("warning") == ("the files do not overlap in time: their ranks cannot be compared",)


def test_merged_file_whose_kernels_have_the_pid_of_their_process(tmp_path: Path) -> None:
    rows = [launch(c, 1, c, pid=pid) for pid in (100, 200) for c in (1, 2, 3)]
    rows += [{**kernel(10 + c, 1, c, device), "pid": pid} for device, pid in ((0, 100), (1, 200)) for c in (1, 2, 3)]
    trace = read(tmp_path, *rows)
    assert sorted(set(zip(trace.ops.device.tolist(), trace.ops.pid.tolist(), strict=True))) == [(0, 100), (1, 200)]


def test_merged_file_that_does_not_tell_whose_a_kernel_is(tmp_path: Path) -> None:
    rows = [launch(1, 1, 1, pid=100), launch(1, 1, 1, pid=200), launch(2, 1, 5, pid=200)]
    trace = read(tmp_path, *rows, kernel(10, 1, 1), kernel(20, 1, 5))
    assert trace.ops.pid.tolist() == [UNKNOWN, 200]
    assert trace.notes_of("warning") == ("1 GPU records could belong to several processes",)


def test_collective_call_has_the_times_of_its_launch(tmp_path: Path) -> None:
    host = event("cpu_op", "record_param_comms", 1, 9, **ALL_REDUCE)
    trace = read(tmp_path, host, launch(4, 1, 7), kernel(20, 5, 7, **ALL_REDUCE), kernel(30, 5, 8))
    calls = trace.collective_calls
    assert (calls.start.tolist(), calls.end.tolist(), calls.tid.tolist()) == ([4_000], [5_000], [100])
    assert (calls.count.tolist(), calls.bytes.tolist()) == ([1024], [2048])
    assert [trace.strings[ids[0]] for ids in (calls.comm, calls.kind, calls.dtype)] == ["3", "allreduce", "BFloat16"]


def test_collective_kernel_without_a_launch(tmp_path: Path) -> None:
    calls = read(tmp_path, kernel(20, 5, 7, **ALL_REDUCE)).collective_calls
    assert (calls.start.tolist(), calls.end.tolist(), calls.tid.tolist()) == ([20_000], [25_000], [UNKNOWN])


def test_collective_that_only_the_host_describes(tmp_path: Path) -> None:
    host = event("cpu_op", "record_param_comms", 1, 9, **ALL_REDUCE)
    calls = read(tmp_path, host, launch(4, 1, 7), kernel(20, 5, 7)).collective_calls
    assert (calls.start.tolist(), calls.end.tolist(), calls.tid.tolist()) == ([1_000], [10_000], [100])


def test_counts_are_those_of_nccl(tmp_path: Path) -> None:
    sizes = [(256, 1024), (1024, 256), (0, 64)]  # all-gather, reduce-scatter, a receive
    rows = [
        kernel(10 + row, 1, **{**ALL_REDUCE, "In msg nelems": given, "Out msg nelems": got, "dtype": "Float"})
        for row, (given, got) in enumerate(sizes)
    ]
    calls = read(tmp_path, *rows).collective_calls
    assert calls.count.tolist() == [256, 256, 64]
    assert calls.bytes.tolist() == [1024, 1024, 256]


def test_unknown_element_type(tmp_path: Path) -> None:
    calls = read(tmp_path, kernel(1, 1, **{**ALL_REDUCE, "dtype": "Quaternion"})).collective_calls
    assert (calls.count.tolist(), calls.bytes.tolist()) == ([1024], [UNKNOWN])
