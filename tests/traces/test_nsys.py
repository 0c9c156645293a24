"""Nsight Systems exports: each fact that readers must honour, each with an input written for it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from profkit import InputError, Recording, Trace, analyze, open_trace
from profkit.analyzers.owners import launch_of_op
from profkit.analyzers.result import TraceFigures
from profkit.traces import UNKNOWN, OpKind
from tests.nsys_files import LAYOUTS, START_END, NsysFile, process, small_step, thread
from tests.resources import calls_of


def read(folder: Path, file: NsysFile) -> Trace:
    trace = open_trace(file.write(folder / "any.name"))
    trace.check()
    return trace


def names(trace: Trace) -> list[str]:
    return [trace.strings[name] for name in trace.ops.name.tolist()]


def ranges(trace: Trace) -> list[tuple[str, str, int, int]]:
    table, strings = trace.ranges, trace.strings
    rows = zip(table.domain, table.text, table.start, table.end, strict=True)
    return [(strings[domain], strings[text], int(start), int(end)) for domain, text, start, end in rows]


def launch_starts(trace: Trace) -> list[int | None]:
    rows = launch_of_op(trace.ops, trace.launches).tolist()
    return [None if row == UNKNOWN else int(trace.launches.start[row]) for row in rows]


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("export", "export", trace)])[0].traces[0]


# -- Schemas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", LAYOUTS)
def test_every_schema_gives_the_same_trace(schema: str, tmp_path: Path) -> None:
    """Metadata in either table, runtime rows doubled or not, columns there or not, empty tables there or not."""
    trace = read(tmp_path, small_step(schema))
    assert (trace.source.schema_version, trace.source.tool_version) == (schema, LAYOUTS[schema].product)
    assert names(trace) == ["nvjet_tst(int)", "rms_norm"]
    assert launch_starts(trace) == [20, 40]
    assert ranges(trace) == [("profkit", "step:decode bs=1", 0, 900), ("profkit", "target", 10, 200)]
    device = figures_of(trace).devices["0"]
    assert device.partition_ns | {"compute": 0, "gap_queue": 0} == dict.fromkeys(device.partition_ns, 0)
    assert (device.partition_ns["compute"], device.partition_ns["gap_queue"], device.gpu) == (150, 50, "NVIDIA H200")


def test_columns_in_any_order(tmp_path: Path) -> None:
    file = small_step().write(tmp_path / "export.sqlite")
    expected = open_trace(file)
    with sqlite3.connect(file) as connection:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            turned = ", ".join(f'"{name}"' for name in reversed(columns))
            connection.execute(f"CREATE TABLE turned AS SELECT {turned} FROM {table}")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE turned RENAME TO {table}")
    connection.close()
    found = open_trace(file)
    assert names(found) == names(expected) and ranges(found) == ranges(expected)
    assert launch_starts(found) == launch_starts(expected)


@pytest.mark.parametrize("table", ["NVTX_EVENTS", "StringIds", "PROCESSES", "META_DATA_CAPTURE", "TARGET_INFO_GPU"])
def test_missing_table(table: str, tmp_path: Path) -> None:
    """nsys-ai#291: without NVTX_EVENTS there are no ranges, and that is all."""
    file = small_step()
    file.without = (table,)
    trace = read(tmp_path, file)
    assert trace.ops.start.tolist() == [100, 250]
    assert len(trace.ranges) == (0 if table == "NVTX_EVENTS" else 2)


@pytest.mark.parametrize("column", ["graphNodeId", "demangledName", "textId", "returnValue", "domainId", "copyKind"])
def test_column_that_comes_and_goes(column: str, tmp_path: Path) -> None:
    file = small_step().copy(300, 310, 2)
    file.without = (column,)
    trace = read(tmp_path, file)
    assert trace.ops.start.tolist() == [100, 250, 300]
    assert launch_starts(trace) == [20, 40, 40]


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "start"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "end"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
        ("NVTX_EVENTS", "start"),
        ("NVTX_EVENTS", "eventType"),
    ],
)
def test_column_that_nothing_can_do_without(table: str, column: str, tmp_path: Path) -> None:
    """nsys-ai#237, flameox#190: a renamed column must be named, not read as if it held something."""
    file = small_step()
    file.without = (f"{table}.{column}",)
    with pytest.raises(InputError, match=f"{table}.*{column}"):
        read(tmp_path, file)


def test_column_with_something_else_than_numbers(tmp_path: Path) -> None:
    file = small_step().kernel("soon", 400, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="column start of table CUPTI_ACTIVITY_KIND_KERNEL"):
        read(tmp_path, file)


# -- Joins -----------------------------------------------------------------------------------------------------------


def test_processes_reuse_correlation_ids(tmp_path: Path) -> None:
    file = NsysFile().call(10, 20, 1, pid=100).call(500, 520, 1, pid=200)
    file.kernel(30, 40, 1).kernel(600, 610, 1, globalPid=process(200), deviceId=1)
    trace = read(tmp_path, file)
    assert launch_starts(trace) == [10, 500]
    assert trace.ops.pid.tolist() == [100, 200]


def test_process_is_bits_24_to_47(tmp_path: Path) -> None:
    """A thread id below and a machine id above it belong to something else; ids reach 2**22 and more."""
    pid, tid = 4_194_303, 4_194_305
    file = NsysFile().call(10, 20, 1, pid=pid, tid=tid).kernel(30, 40, 1, globalPid=process(pid))
    trace = read(tmp_path, file)
    assert (trace.ops.pid.tolist(), trace.launches.pid.tolist(), trace.launches.tid.tolist()) == ([pid], [pid], [tid])
    assert launch_starts(trace) == [10]


def test_two_runtime_rows_for_one_id(tmp_path: Path) -> None:
    """2.9: a runtime row and the driver row inside it. One launch a kernel, and the outer call is the launch."""
    trace = read(tmp_path, small_step("2.9.1"))
    assert len(trace.launches) == 4
    assert len(trace.ops) == 2
    assert launch_starts(trace) == [20, 40]
    assert figures_of(trace).devices["0"].ops == 2


def test_ops_without_launch_and_launches_without_op(tmp_path: Path) -> None:
    """PyProf#98, chakra#128: an id that no table has, 0, -1 and NULL are orphans; a query launches nothing."""
    file = NsysFile().call(10, 20, 1).call(25, 26, 2, "cudaEventQuery_v3020")
    file.kernel(30, 40, 1).kernel(50, 60, 99).kernel(70, 80, 0).kernel(90, 95, -1).kernel(96, 99, None)
    trace = read(tmp_path, file)
    assert launch_starts(trace) == [10, None, None, None, None]
    assert len(trace.launches) == 2


def test_one_graph_launch_owns_many_ops(tmp_path: Path) -> None:
    file = NsysFile().call(10, 90, 5, "cudaGraphLaunch_v10000").call(100, 110, 6)
    for number in range(1_000):
        file.kernel(200 + 10 * number, 209 + 10 * number, 5, graphNodeId=number + 1)
    file.copy(20_000, 20_010, 5).memset(20_020, 20_021, 5).kernel(30_000, 30_001, 6)
    trace = read(tmp_path, file)
    assert (trace.ops.graph_launch == 5).tolist() == [True] * 1_002 + [False]
    assert trace.ops.graph_node[:1_000].tolist() == list(range(1, 1_001))
    assert set(launch_starts(trace)[:-1]) == {10}


def test_replay_without_the_capture(tmp_path: Path) -> None:
    """TraceLens#973: no node creations in the file; the replay alone is a graph launch with its kernels."""
    file = NsysFile().domain(1, "profkit").range(0, 90, "step:decode bs=1").call(10, 30, 5, "cudaGraphLaunch_v10000")
    trace = read(tmp_path, file.kernel(50, 60, 5).kernel(60, 70, 5))
    assert len(trace.graph_nodes) == 0
    assert figures_of(trace).graphs["0"].nodes_per_launch == {"step_other": 2}


def test_the_cost_of_graph_kernels_grows_with_their_number(tmp_path: Path) -> None:
    """TraceLens#522: a search that looks at every launch for every kernel."""

    def cost(launches: int) -> int:
        file = NsysFile().domain(1, "profkit").range(0, 900, "step:decode bs=1")
        for number in range(launches):
            file.call(number, number + 1, number + 1, "cudaGraphLaunch_v10000")
        for number in range(100 * launches):
            start = 1_000 + 10 * number
            file.kernel(start, start + 9, number // 100 + 1, graphNodeId=number % 100 + 1)
        export = file.write(tmp_path / f"{launches}.sqlite")
        assert figures_of(open_trace(export)).graphs["0"].nodes_per_launch == {"step_other": 100}
        return calls_of(lambda: figures_of(open_trace(export)))

    assert cost(200) < 12 * cost(20)


def test_graph_known_by_its_nodes_alone(tmp_path: Path) -> None:
    """tracy#1330: the launch record is missing; the node id still says that the kernel ran in a graph."""
    trace = read(tmp_path, NsysFile().kernel(10, 20, 5, graphNodeId=1).kernel(30, 40, 6))
    assert trace.ops.graph_launch.tolist() == [5, UNKNOWN]


def test_versions_and_stream_variants_of_a_call_are_one_call(tmp_path: Path) -> None:
    file = NsysFile().call(1, 2, 1, "cudaLaunchKernel_v7000").call(3, 4, 2, "cudaLaunchKernel_ptsz_v7000")
    file.call(5, 6, 3, "cudaStreamSynchronize_v3020").call(7, 8, 4, "cudaMemcpyAsync_v3020_ptsz")
    trace = read(tmp_path, file.kernel(10, 20, 1))
    apis = [trace.strings[api] for api in trace.launches.api.tolist()]
    assert apis == ["cudaLaunchKernel", "cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync"]


def test_driver_table_beside_the_runtime_table(tmp_path: Path) -> None:
    """Some launches stand in the driver's table only."""
    file = NsysFile().call(10, 20, 1).kernel(30, 40, 1).kernel(50, 60, 2)
    file.write(tmp_path / "export.sqlite")
    with sqlite3.connect(tmp_path / "export.sqlite") as connection:
        row = f"35, 38, 1, {thread(100, None)}, 2, 1, 0, NULL"
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_DRIVER AS SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME")
        connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_DRIVER")
        connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_DRIVER VALUES ({row})")
    connection.close()
    assert launch_starts(open_trace(tmp_path / "export.sqlite")) == [10, 35]


def test_devices_of_the_host(tmp_path: Path) -> None:
    """Each process sees one GPU and calls it 0; TARGET_INFO_CUDA_DEVICE says which it is."""
    file = NsysFile().gpu(0).gpu(1, "NVIDIA H100", 114).call(1, 2, 1).kernel(10, 20, 1)
    file.call(1, 2, 1, pid=200).kernel(15, 30, 1, globalPid=process(200))
    file.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=100)
    file.add("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=200)
    trace = read(tmp_path, file)
    assert trace.ops.device.tolist() == [0, 1]
    assert [(device.name, device.sm_count) for device in trace.devices] == [("NVIDIA H200", 132), ("NVIDIA H100", 114)]


# -- Ranges ----------------------------------------------------------------------------------------------------------


def test_text_inline_and_registered(tmp_path: Path) -> None:
    file = NsysFile().domain(1, "profkit").domain(2, "NCCL").kernel(10, 20, 1)
    file.range(0, 9, "inline").range(1, 8, "registered", registered=True).range(2, 7, "ncclAllReduce", domain=2)
    trace = read(tmp_path, file.range(3, 6, "no domain", domain=0))
    assert ranges(trace) == [
        ("profkit", "inline", 0, 9), ("profkit", "registered", 1, 8), ("NCCL", "ncclAllReduce", 2, 7),
        ("", "no domain", 3, 6),
    ]  # fmt: skip
    assert trace.ranges.parent.tolist() == [-1, 0, 1, 2]
    calls = trace.collective_calls
    assert [trace.strings[kind] for kind in calls.kind.tolist()] == ["ncclAllReduce"]


def test_domains_belong_to_a_process(tmp_path: Path) -> None:
    file = NsysFile().domain(1, "profkit").domain(1, "NCCL", pid=200).kernel(10, 20, 1)
    trace = read(tmp_path, file.range(0, 9, "a").range(0, 9, "b", pid=200))
    assert [(domain, text) for domain, text, _, _ in ranges(trace)] == [("profkit", "a"), ("NCCL", "b")]


def test_event_types(tmp_path: Path) -> None:
    """59 push/pop and 60 start/end are ranges; 75 names a domain; a mark (34) and a rename (39) are neither."""
    file = (
        NsysFile().domain(1, "profkit").kernel(10, 20, 1).range(0, 9, "pushed").range(1, 5, "started", kind=START_END)
    )
    trace = read(tmp_path, file.range(2, None, "marked", kind=34).range(3, None, "thread name", kind=39))
    assert [text for _, text, _, _ in ranges(trace)] == ["pushed", "started"]


def test_range_that_was_open_when_the_recording_ended(tmp_path: Path) -> None:
    file = NsysFile().domain(1, "profkit").call(10, 20, 1).kernel(30, 777, 1).range(5, None, "step:decode bs=1")
    trace = read(tmp_path, file)
    assert ranges(trace) == [("profkit", "step:decode bs=1", 5, 777)]


def test_a_range_owns_what_was_launched_in_it(tmp_path: Path) -> None:
    """Both kernels run long after the drafter's range; only the first was launched in it, on its thread."""
    file = NsysFile().domain(1, "profkit").range(0, 99, "step:decode bs=1").range(10, 30, "draft")
    file.call(20, 25, 1).call(20, 25, 2, tid=7).call(40, 45, 3)
    file.kernel(500, 510, 1).kernel(12, 18, 2).kernel(600, 610, 3)
    phases = figures_of(read(tmp_path, file)).devices["0"].phases
    assert {name: phase.ops for name, phase in phases.items()} == {"draft": 1, "outside": 1, "step_other": 1}


def test_ranges_before_the_recording_are_lost_and_nodes_are_not(tmp_path: Path) -> None:
    file = small_step().graph_node(-94_000_000_000, 12, 7).graph_node(-93_000_000_000, 13)
    nodes = read(tmp_path, file).graph_nodes
    assert nodes.created.tolist() == [-94_000_000_000, -93_000_000_000]
    assert nodes.node.tolist() == [12, 13] and nodes.original_node.tolist() == [7, UNKNOWN]


# -- Times and overlap -----------------------------------------------------------------------------------------------


def test_kernels_of_one_stream_may_overlap(tmp_path: Path) -> None:
    file = small_step().kernel(150, 260, 2)
    device = figures_of(read(tmp_path, file)).devices["0"]
    assert device.busy_union_ns == 200
    assert sum(phase.sum_ns for phase in device.phases.values()) == 260


def test_unusable_times_are_left_out_and_counted(tmp_path: Path) -> None:
    """pytorch#188481: all-zero times; HTA#325: 236 years; an end before the start; a start in another century."""
    century = 100 * 365 * 86_400 * 10**9
    file = small_step().kernel(0, 0, 1).kernel(400, 399, 1).kernel(500, 500 + 7_400 * 10**15, 1)
    trace = read(tmp_path, file.copy(century, century + 5, 1))
    assert trace.ops.start.tolist() == [100, 250]
    assert trace.notes_of("bad_times") == ("4 of 6 GPU records have no usable time and were left out",)


def test_zero_length_copy_is_kept(tmp_path: Path) -> None:
    trace = read(tmp_path, small_step().copy(210, 210, 2, bytes=0))
    assert trace.ops.end.tolist() == [200, 210, 300]


def test_kinds_and_sizes_of_copies(tmp_path: Path) -> None:
    file = NsysFile().copy(1, 2, kind=1).copy(3, 4, kind=2).copy(5, 6, kind=8).copy(7, 8, kind=10).copy(9, 10, kind=77)
    trace = read(tmp_path, file.memset(11, 12))
    assert names(trace) == ["memcpy HtoD", "memcpy DtoH", "memcpy DtoD", "memcpy PtoP", "memcpy unknown", "memset"]
    assert trace.ops.bytes.tolist() == [4096] * 5 + [64]
    assert trace.ops.kind.tolist() == [OpKind.MEMCPY] * 5 + [OpKind.MEMSET]


# -- What is not in the file -----------------------------------------------------------------------------------------


def test_graph_mode_is_not_idle_time(tmp_path: Path) -> None:
    """tracy#1318: GRAPH_TRACE rows stand for kernels. No idle figure is given, and a check says why."""
    file = small_step().setting("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph")
    file.call(50, 60, 3, "cudaGraphLaunch_v10000").whole_graph(310, 800, 3)
    trace = read(tmp_path, file)
    assert trace.notes_of("graph_mode") == ("graph",)
    assert [kind for kind in trace.ops.kind.tolist() if kind == OpKind.GRAPH] == [OpKind.GRAPH]
    figures = figures_of(trace)
    assert figures.health.status == "abstain"
    assert figures.devices["0"].idle_ns is None and figures.devices["0"].partition_ns["compute"] is None
    assert "--cuda-graph-trace=node" in next(c.detail for c in figures.health.checks if c.id == "graph_nodes")


def test_calls_but_no_gpu_activity(tmp_path: Path) -> None:
    """vllm#20959: API rows only."""
    figures = figures_of(read(tmp_path, NsysFile().call(10, 20, 1).call(30, 40, 2)))
    assert (figures.health.status, figures.devices) == ("abstain", {})
    assert "no GPU activity" in figures.summary


def test_kernels_of_one_process_only(tmp_path: Path) -> None:
    """vllm#5132: two processes run steps and launch, one has kernels."""
    file = (
        small_step().domain(1, "profkit", pid=200).range(0, 900, "step:decode bs=1", pid=200).call(20, 30, 1, pid=200)
    )
    checks = {check.id: check for check in figures_of(read(tmp_path, file)).health.checks}
    assert checks["ranks"].status == "warn" and "200" in checks["ranks"].detail


def test_ranges_but_no_cuda(tmp_path: Path) -> None:
    trace = read(tmp_path, NsysFile().domain(1, "profkit").range(0, 9, "step:decode bs=1"))
    assert (len(trace.ops), len(trace.ranges)) == (0, 1)


@pytest.mark.parametrize("schema", ["2.9.1", "3.20.3"])
def test_export_without_events(schema: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no CUDA and no NVTX events"):
        read(tmp_path, NsysFile(schema).gpu(0))


def test_dropped_records_are_noted(tmp_path: Path) -> None:
    """In words of our own: a message of the recorder may hold paths and command lines."""
    file = small_step().diagnostic("CUDA buffer was full, 1,204 CUDA events were lost").diagnostic("Buffer full", 1)
    trace = read(tmp_path, file)
    assert trace.notes_of("dropped_records") == ("the recorder dropped records (1,204)",)
    assert {c.id: c.status for c in figures_of(trace).health.checks}["dropped_records"] == "warn"


def test_messages_that_every_recording_has_are_no_warnings(tmp_path: Path) -> None:
    """With a capture range, processes without a GPU and the time before the range always give these."""
    file = (
        small_step().diagnostic("Not all CUDA events might have been collected.").diagnostic("Profiling has stopped.")
    )
    file.diagnostic("No NVTX events collected. Does the process use NVTX?")
    assert read(tmp_path, file).notes == ()


def test_work_of_the_recorder_is_no_call_of_the_target(tmp_path: Path) -> None:
    """Without a thread the recorder holds none up."""
    file = small_step().overhead(210, 240, "CUPTI Buffer flush")
    file.add("PROFILER_OVERHEAD", start=300, end=310, globalTid=None, nameId=file.string("CUPTI Resource Management"))
    trace = read(tmp_path, file)
    assert "CUPTI Buffer flush" not in {trace.strings[api] for api in trace.launches.api.tolist()}
    found = trace.overheads
    assert [trace.strings[name] for name in found.name] == ["CUPTI Buffer flush"]
    times, thread = (found.start.tolist(), found.end.tolist()), (found.pid.tolist(), found.tid.tolist())
    assert (times, thread) == (([210], [240]), ([100], [100]))
