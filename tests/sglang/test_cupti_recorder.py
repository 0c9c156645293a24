"""The recorder from open to close, with records that arrive through the callbacks it registers."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from profkit.analyzers import Recording, analyze
from profkit.sglang import cupti_recorder
from profkit.sglang.cupti_recorder import NODE_CLONED, NODE_CREATED, CuptiRecorder
from profkit.sglang.cupti_records import DRIVER, KERNEL, MEMCPY, STRUCTURES, LayoutError
from profkit.traces import Trace, open_trace
from tests.sglang.cupti_host import Host, install
from tests.sglang.fake_cupti import (
    DTYPES,
    CallbackDomain,
    Cupti,
    DriverCalls,
    Library,
    Names,
    RuntimeCalls,
    call,
    closes,
    cuptiError,
    kernel,
    opens,
    record,
)
from tests.sglang.real_cupti import facts_of

PID = os.getpid()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return install(monkeypatch)


def step(names: Names, at: int, correlation: int = 1) -> list[bytes]:
    """A range, a graph launch inside it, and the launch's two kernels."""
    graph = {"correlation_id": correlation, "graph_id": 4}
    return [
        opens(names, "step:decode bs=1", at, correlation),
        call(at + 10, at + 20, correlation, RuntimeCalls.cudaGraphLaunch_v10000),
        kernel(names, "_Z4gemmv", at + 30, at + 40, correlation, graph_id=4, graph_node_id=4 << 32 | 1),
        closes(at + 25, correlation),
        kernel(names, "_Z4gemmv", at + 40, at + 55, correlation, graph_id=4, graph_node_id=4 << 32 | 2),
        record(MEMCPY, start=at + 60, end=at + 61, copy_kind=2, bytes=8, stream_id=7, **graph),
        call(at + 62, at + 70, 0, DriverCalls.cuCtxSynchronize, kind=DRIVER),
    ]


def header(folder: Path) -> dict[str, Any]:
    with np.load(folder / f"{PID}.cupti", allow_pickle=False) as archive:
        found: dict[str, Any] = json.loads(archive["header"].tobytes())
        return found


def recorded(host: Host, recorder: CuptiRecorder, folder: Path, steps: int = 3) -> Trace:
    """A window with as many steps, as it is read back."""
    recorder.open(folder)
    now = time.time_ns()
    for number in range(steps):
        host.cupti.queued += step(host.names, now + 1_000 * number, number + 1)
    assert recorder.close() is None
    trace = open_trace(folder)
    trace.check()
    return trace


def test_a_window(host: Host, tmp_path: Path) -> None:
    before = time.time_ns()
    trace = recorded(host, CuptiRecorder(), tmp_path / "made" / "window-1")
    said = header(tmp_path / "made" / "window-1")
    assert host.library.delivered > 2, "the window did not fit into one buffer"
    assert before <= said.pop("began_ns") <= said.pop("ended_ns") <= time.time_ns()
    assert isinstance(said.pop("driver"), str)
    assert said == {
        "schema": "profkit.cupti/1", "pid": PID, "version": "13.0.1", "dropped": 0,
        "devices": [{
            "id": 0, "name": "NVIDIA H200", "sm_count": 132, "memory_bandwidth": 4_916_736_000_000,
            "bus_id": "0000:19:00.0",
        }],
        "apis": {"runtime": {"311": "cudaGraphLaunch_v10000"}, "driver": {"17": "cuCtxSynchronize"}},
        "strings": ["gemm()", "step:decode bs=1", "profkit"],
    }  # fmt: skip
    assert (len(trace.ops), len(trace.launches), len(trace.ranges)) == (9, 6, 3)
    assert trace.ops.graph_launch.tolist() == [1] * 3 + [2] * 3 + [3] * 3
    assert host.cupti.thread_ids == 1, "threads by the system's numbers"


def test_two_windows_of_one_process(host: Host, tmp_path: Path) -> None:
    recorder = CuptiRecorder()
    first = recorded(host, recorder, tmp_path / "window-1", steps=20)
    assert host.cupti.enabled == {}
    second = recorded(host, recorder, tmp_path / "window-2", steps=2)
    third = recorded(host, recorder, tmp_path / "window-3", steps=30)
    assert [len(trace.ops) for trace in (first, second, third)] == [60, 6, 90]
    assert header(tmp_path / "window-1")["ended_ns"] <= header(tmp_path / "window-2")["began_ns"]


def test_a_window_in_which_nothing_happened(host: Host, tmp_path: Path) -> None:
    recorder = CuptiRecorder()
    recorder.open(tmp_path)
    assert recorder.close() is None
    said = header(tmp_path)
    assert (said["devices"], said["strings"], said["apis"]) == ([], [], {"runtime": {}, "driver": {}})
    assert len(open_trace(tmp_path).ops) == 0


def test_open_and_close_out_of_turn(host: Host, tmp_path: Path) -> None:
    recorder = CuptiRecorder()
    assert recorder.close() is None
    recorder.open(tmp_path / "one")
    recorder.open(tmp_path / "two")
    assert set(host.cupti.enabled.values()) == {1}, "a second opening does nothing"
    recorder.close()
    assert [folder.name for folder in tmp_path.iterdir()] == ["one"]
    assert recorder.close() is None


def test_the_kinds_that_are_recorded(host: Host, tmp_path: Path) -> None:
    recorder = CuptiRecorder()
    recorder.open(tmp_path)
    assert set(host.cupti.enabled) == set(STRUCTURES)
    assert host.cupti.silenced == ["cudaGetDevice_v3020", "cudaStreamIsCapturing_v10000", "cuCtxGetCurrent"]


def test_calls_that_an_older_cupti_does_not_know(host: Host, tmp_path: Path) -> None:
    """They are passed over, and those behind them are silenced all the same."""
    host.cupti.unknown = {RuntimeCalls.cudaGetDevice_v3020}
    assert len(recorded(host, CuptiRecorder(), tmp_path).ops) == 9
    assert host.cupti.silenced == ["cudaStreamIsCapturing_v10000", "cuCtxGetCurrent"]


LAUNCHES = (
    "cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060", "cudaGraphLaunch_v10000", "cudaMemcpyAsync_v3020",
    "cudaStreamSynchronize_v3020", "cudaDeviceSynchronize_v3020", "cudaEventQuery_v3020", "cudaEventRecord_v3020",
    "cudaStreamWaitEvent_v3020", "cudaMalloc_v3020", "cudaFree_v3020", "cuLaunchKernel", "cuLaunchKernelEx",
    "cuCtxSynchronize", "cuStreamSynchronize", "cuGraphLaunch", "cuEventQuery", "cuEventSynchronize", "cuMemAlloc_v2",
    "cuStreamWaitEvent", "cuMemcpyDtoHAsync_v2", "cuModuleLoadData", "cuStreamCreate",
)  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_calls_that_do_something_are_recorded(name: str) -> None:
    """Launches, copies, allocations and whatever may block: the host's part of a step is made of them."""
    assert not cupti_recorder.QUERIES.match(name)


# -- What is lost --------------------------------------------------------------------------------------------------


def test_dropped_records(host: Host, tmp_path: Path) -> None:
    """Counted from the opening on, said at once, and a warning of the recording's health."""
    recorder = CuptiRecorder()
    host.cupti.dropped = 7
    recorder.open(tmp_path)
    host.cupti.queued += step(host.names, time.time_ns())
    host.cupti.dropped = 1_204
    assert recorder.close() == "CUPTI had no room for 1204 records: record fewer steps"
    trace = open_trace(tmp_path)
    assert trace.notes_of("dropped_records") == ("1204",)
    (checked,) = analyze([Recording("dropped", "", trace)])[0].traces
    (check,) = [check for check in checked.health.checks if check.id == "dropped_records"]
    assert check.status == "warn" and "1204" in check.detail


# -- Nodes of graphs -----------------------------------------------------------------------------------------------


def test_nodes_are_noted_before_the_window_and_in_it(host: Host, tmp_path: Path) -> None:
    recorder = CuptiRecorder()
    recorder.note_graph_nodes()
    recorder.note_graph_nodes()
    assert host.cupti.events == [
        (1, 9, CallbackDomain.RESOURCE, NODE_CREATED), (1, 9, CallbackDomain.RESOURCE, NODE_CLONED)
    ]  # fmt: skip
    before = time.time_ns()
    host.cupti.node_event(NODE_CREATED, node=1)
    host.cupti.node_event(NODE_CREATED, node=2, original=88)
    host.cupti.node_event(NODE_CLONED, node=3, original=1)
    recorder.open(tmp_path / "one")
    host.cupti.node_event(NODE_CLONED, node=4, original=2)
    recorder.close()
    nodes = open_trace(tmp_path / "one").graph_nodes
    assert nodes.node.tolist() == [number << 32 for number in (1, 2, 3, 4)]
    assert nodes.original_node.tolist() == [-1, -1, 1 << 32, 2 << 32]
    assert set(nodes.tid.tolist()) == {threading.get_native_id()} and set(nodes.pid.tolist()) == {PID}
    said = header(tmp_path / "one")
    zero = said["began_ns"] // 10**9 * 10**9
    created = [time + zero for time in nodes.created.tolist()]
    assert sorted(created) == created
    assert before <= created[0] <= created[2] <= said["began_ns"] <= created[3] <= said["ended_ns"]
    recorder.open(tmp_path / "two")
    recorder.close()
    assert len(open_trace(tmp_path / "two").graph_nodes) == 4, "a later window knows the same nodes"


# -- What goes wrong -----------------------------------------------------------------------------------------------


def test_a_strange_package_is_refused_at_once(host: Host) -> None:
    del host.cupti.dtypes["activity_api_dtype"]
    with pytest.raises(LayoutError, match="knows no activity_api"):
        CuptiRecorder()


def test_the_next_window_opens_after_one_whose_records_are_strange(host: Host, tmp_path: Path) -> None:
    recorder = CuptiRecorder()
    recorder.open(tmp_path / "one")
    host.library.sizes[KERNEL] = 224
    host.cupti.queued += [
        kernel(host.names, "gemm", 1, 2, 3) + bytes(8), kernel(host.names, "gemm", 3, 4, 5) + bytes(8)
    ]  # fmt: skip
    with pytest.raises(LayoutError, match="knows no activity_kernel of 224 bytes"):
        recorder.close()
    assert not (tmp_path / "one").exists() and host.cupti.enabled == {}
    host.library.sizes[KERNEL] = 216
    assert len(recorded(host, recorder, tmp_path / "two").ops) == 9


def test_a_device_that_fails_leaves_nothing_switched_on(host: Host, tmp_path: Path) -> None:
    def fails() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    recorder = CuptiRecorder()
    recorder.open(tmp_path / "one")
    host.synchronize = fails
    with pytest.raises(RuntimeError, match="illegal memory access"):
        recorder.close()
    assert host.cupti.enabled == {}


def test_a_kind_that_cannot_be_recorded_leaves_nothing_switched_on(host: Host, tmp_path: Path) -> None:
    recorder = CuptiRecorder()
    host.cupti.fails_at = [*STRUCTURES][-1]
    with pytest.raises(cuptiError, match="is not compatible"):
        recorder.open(tmp_path)
    assert host.cupti.enabled == {} and recorder.close() is None
    host.cupti.fails_at = None
    assert len(recorded(host, recorder, tmp_path).ops) == 9


def test_a_folder_that_cannot_be_made(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = CuptiRecorder()
    recorder.open(tmp_path / "file" / "window-1")
    with pytest.raises(OSError, match="window-1"):
        recorder.close()
    assert len(recorded(host, recorder, tmp_path / "two").ops) == 9


def test_an_older_torch_tells_less_of_a_device(host: Host, tmp_path: Path) -> None:
    host.properties = lambda number: SimpleNamespace(  # type: ignore[method-assign]
        name="NVIDIA L4", multi_processor_count=58
    )
    recorded(host, CuptiRecorder(), tmp_path)
    assert header(tmp_path)["devices"] == [
        {"id": 0, "name": "NVIDIA L4", "sm_count": 58, "memory_bandwidth": None, "bus_id": ""}
    ]


def test_a_module_with_two_kernel_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The longer one is of a newer CUPTI than the one that is loaded."""
    host = install(monkeypatch)
    longer = np.dtype({"names": ["kind"], "formats": ["i4"], "offsets": [0], "itemsize": 224})
    host.cupti.dtypes = DTYPES | {"activity_kernel11_dtype": longer}
    assert len(recorded(host, CuptiRecorder(), tmp_path).ops) == 9


@pytest.mark.parametrize("release", ["13.0.1", "13.4.0"])
def test_the_fake_is_no_richer_than_the_package(release: str) -> None:
    """What the recorder calls, cupti-python has; its enumerations carry the numbers that are used here."""
    real = facts_of(release)
    fake = Cupti(Library())
    verbs = ("activity_", "get_", "set_", "enable_", "subscribe")
    used = [name for name in dir(fake) if name.startswith(verbs) and callable(getattr(fake, name))]
    assert used and [name for name in used if name not in real["names"]] == []
    for name in ("CallbackDomain", "runtime_api_trace_cbid", "driver_api_trace_cbid"):
        for one in getattr(fake, name):
            assert real["numbers"][name][one.name] == one, one
    assert real["cuptiError_is_one"]
    resources = real["numbers"]["CallbackIdResource"]
    assert (resources["GRAPHNODE_CREATED"], resources["GRAPHNODE_CLONED"]) == (NODE_CREATED, NODE_CLONED)
