"""Whose GPU an export speaks of where processes of one recording all call theirs 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit import Trace, open_trace
from tests.nsys_files import NsysFile, process

ONE_EACH = "2 processes call their GPU 0"


def engines(*pids: int, kernels: int = 3, ranges: bool = True) -> NsysFile:
    """Processes that each run steps on what they call GPU 0."""
    file = NsysFile()
    for pid in pids:
        file.domain(1, "profkit", pid=pid)
        for number in range(kernels):
            at = 1_000 * number
            if ranges:
                file.range(at, at + 900, "step:decode bs=1", pid=pid)
            file.call(at + 1, at + 2, number + 1, pid=pid)
            file.kernel(at + 10, at + 500, number + 1, globalPid=process(pid))
    return file


def opened(folder: Path, file: NsysFile) -> Trace:
    trace = open_trace(file.write(folder / "export"))
    trace.check()
    return trace


def devices(trace: Trace) -> dict[int, set[int]]:
    pairs = set(zip(trace.ops.pid.tolist(), trace.ops.device.tolist(), strict=True))
    return {pid: {device for other, device in pairs if other == pid} for pid, _ in pairs}


@pytest.mark.parametrize("ranges", [True, False], ids=["with steps", "kernels alone"])
def test_each_process_gets_a_device_of_its_own(ranges: bool, tmp_path: Path) -> None:
    trace = opened(tmp_path, engines(100, 200, ranges=ranges))
    assert devices(trace) == {100: {0}, 200: {1}} and [device.device for device in trace.devices] == [0, 1]
    assert [text for text in trace.notes_of("warning") if ONE_EACH in text]


def test_a_recorder_that_contradicts_itself_tells_nothing(tmp_path: Path) -> None:
    file = engines(100, 200)
    for pid in (100, 200):
        for gpu in (0, 1):
            file.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
    assert devices(opened(tmp_path, file)) == {100: {0}, 200: {1}}


def test_processes_that_share_a_gpu_stay_together(tmp_path: Path) -> None:
    file = engines(100, 200)
    for pid in (100, 200):
        file.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=pid)
    trace = opened(tmp_path, file)
    assert devices(trace) == {100: {0}, 200: {0}} and not trace.notes_of("warning")


def test_a_mapping_is_followed(tmp_path: Path) -> None:
    file = engines(100, 200)
    file.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=100)
    file.add("TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=200)
    trace = opened(tmp_path, file)
    assert devices(trace) == {100: {0}, 200: {3}} and not trace.notes_of("warning")


def test_a_helper_stays_with_its_engine(tmp_path: Path) -> None:
    file = engines(100, kernels=4).kernel(5, 9, 1, globalPid=process(300))
    assert devices(opened(tmp_path, file)) == {100: {0}, 300: {0}}
