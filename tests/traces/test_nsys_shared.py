"""Exports recorded by others, from the shared folder, beside what ``nsys stats`` says of them."""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from profkit import InputError, Recording, Trace, analyze, open_trace
from profkit.analyzers.owners import launch_of_op
from profkit.traces import UNKNOWN, OpKind
from tests.shared_files import shared

PAIR = {"A": "nsys_3.25.0_h100x2_nccl_after", "B": "nsys_3.25.0_h100x2_nccl_before"}


@cache
def public(name: str) -> Trace:
    trace = open_trace(shared(f"public-traces/nsys/{name}.sqlite.gz"))
    trace.check()
    return trace


def stats(name: str) -> list[dict[str, str]]:
    """The rows of a table that nsys wrote."""
    path: Path = shared(f"public-traces/nsys_stats_csv/{name}")
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    return list(csv.DictReader(io.StringIO(text)))


def kernels_of(trace: Trace) -> np.ndarray:
    return np.flatnonzero(trace.ops.kind == OpKind.KERNEL)


# -- The pair ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("which", "kernels", "orphans"), [("A", 3_587, 10), ("B", 4_010, 24)])
def test_pair(which: str, kernels: int, orphans: int) -> None:
    trace = public(PAIR[which])
    rows = kernels_of(trace)
    assert len(np.unique(trace.ops.pid)) == 2 and np.unique(trace.ops.device).tolist() == [0, 1]
    assert len(rows) == kernels
    assert int((launch_of_op(trace.ops, trace.launches)[rows] == UNKNOWN).sum()) == orphans
    # No TARGET_INFO_GPU: the devices are known by number only.
    assert [device.name for device in trace.devices] == ["", ""]


@pytest.mark.parametrize("which", PAIR)
def test_kernel_totals(which: str) -> None:
    """nsys's kernel summary is right: it counts kernels without a launch record too. By name, grids summed up."""
    trace = public(PAIR[which])
    found, expected = Counter[str](), Counter[str]()
    for row in kernels_of(trace).tolist():
        found[trace.strings[trace.ops.name[row]]] += int(trace.ops.end[row] - trace.ops.start[row])
    for line in stats(f"oracle_mfu{which}_gpukernsum.csv"):
        expected[line["Name"]] += int(line["Total Time (ns)"])
    assert found == expected


@pytest.mark.parametrize(("which", "left_out"), [("A", 10), ("B", 24)])
def test_launch_of_every_kernel(which: str, left_out: int) -> None:
    """nsys's launch table is right about the kernels in it; it leaves out those without a launch record."""
    trace = public(PAIR[which])
    launch = launch_of_op(trace.ops, trace.launches)
    found = Counter[tuple[int, ...]]()
    for row in kernels_of(trace).tolist():
        call = int(launch[row])
        if call != UNKNOWN:
            api = (int(trace.launches.start[call]), int(trace.launches.end[call] - trace.launches.start[call]))
            start, end, device = int(trace.ops.start[row]), int(trace.ops.end[row]), int(trace.ops.device[row])
            found[(*api, start, end - start, int(trace.launches.pid[call]), device)] += 1
    columns = ("API Start (ns)", "API Dur (ns)", "Kernel Start (ns)", "Kernel Dur (ns)", "PID", "DevId")
    lines = stats(f"oracle_mfu{which}_kernexectrace.csv.gz")
    assert found == Counter(tuple(int(line[column]) for column in columns) for line in lines)
    assert len(kernels_of(trace)) - len(lines) == left_out


def projected(trace: Trace) -> Iterator[tuple[str, int, int, int, int, int]]:
    """Of every range that launched something: name, process, start, and its ops' first start, span and number."""
    launch = launch_of_op(trace.ops, trace.launches)
    known = np.flatnonzero(launch != UNKNOWN)
    order = known[np.argsort(trace.launches.start[launch[known]], kind="stable")]
    call, thread = launch[order], trace.launches.tid[launch[order]]
    for tid in np.unique(trace.ranges.tid).tolist():
        mine = order[thread == tid]
        begun = trace.launches.start[call[thread == tid]]
        rows = np.flatnonzero(trace.ranges.tid == tid)
        first = np.searchsorted(begun, trace.ranges.start[rows])
        behind = np.searchsorted(begun, trace.ranges.end[rows])
        for row, low, high in zip(rows.tolist(), first.tolist(), behind.tolist(), strict=True):
            if high > low:
                ops = trace.ops.take(mine[low:high])
                start, end = int(ops.start.min()), int(ops.end.max())
                name = trace.strings[trace.ranges.text[row]]
                yield name, int(trace.ranges.pid[row]), int(trace.ranges.start[row]), start, end - start, high - low


@pytest.mark.parametrize("which", PAIR)
def test_ops_of_every_range(which: str) -> None:
    """nsys projects ranges onto the GPU as profkit does: what was launched in a range, on its thread, is its own."""
    lines = stats(f"oracle_mfu{which}_nvtxgpuproj.csv.gz")
    columns = ("PID", "Orig Start (ns)", "Projected Start (ns)", "Projected Duration (ns)", "NumGPUOps")
    expected = Counter((line["Name"], *(int(line[column]) for column in columns)) for line in lines)
    found = Counter(projected(public(PAIR[which])))
    assert found == expected


# -- The others ----------------------------------------------------------------------------------------------------


def test_two_runtime_rows_are_one_launch() -> None:
    trace = public("nsys_2.9.1_a100_all_tables_dup_runtime")
    rows = kernels_of(trace)
    assert len(rows) == 5
    launch = launch_of_op(trace.ops, trace.launches)[rows]
    assert len(np.unique(launch)) == 5 and {trace.strings[api] for api in trace.launches.api[launch]} == {
        "cudaLaunchKernel"
    }
    with_id = np.isin(trace.launches.correlation, trace.ops.correlation[rows])
    assert int(with_id.sum()) == 10
    assert trace.source.schema_version == "2.9.1" and trace.source.tool_version == "2022.2.1.31"


def test_graph_mode() -> None:
    trace = public("nsys_3.24.0_rtx3060_graphmode_graph_trace")
    apis = Counter(trace.strings[api] for api in trace.launches.api.tolist())
    assert (apis["cudaLaunchKernel"], len(kernels_of(trace))) == (4, 3)
    assert int((trace.ops.kind == OpKind.GRAPH).sum()) == apis["cudaGraphLaunch"] == 2
    figures = analyze([Recording("graph mode", "", trace)])[0].traces[0]
    assert figures.health.status == "abstain" and figures.devices["0"].idle_ns is None
    assert figures.summary.startswith("No verdict: 2 graph launches were recorded whole")


def test_aborted_export() -> None:
    with pytest.raises(InputError, match="holds no CUDA and no NVTX events"):
        open_trace(shared("public-traces/nsys/nsys_aborted_export_a2000_no_events.sqlite.gz"))


@pytest.mark.parametrize(
    ("name", "ops", "launches", "gpu"),
    [
        ("nsys_3.6.0_gh200_jacobi", 5_004, 6_017, "NVIDIA GH200 120GB"),
        ("nsys_3.13.2_a100_cloverleaf", 1_591, 3_048, "NVIDIA A100-SXM4-80GB"),
        ("nsys_3.17.1_h200_nvfuser", 24, 990, "NVIDIA H200"),
    ],
)
def test_other_schemas(name: str, ops: int, launches: int, gpu: str) -> None:
    trace = public(name)
    assert (len(trace.ops), len(trace.launches)) == (ops, launches)
    assert [device.name for device in trace.devices] == [gpu]
    assert int((launch_of_op(trace.ops, trace.launches) == UNKNOWN).sum()) == 0
    assert trace.source.schema_version == name.split("_")[1]


def test_no_decode_steps_in_other_programmes() -> None:
    for name in ("nsys_3.6.0_gh200_jacobi", "nsys_3.13.2_a100_cloverleaf", PAIR["A"]):
        figures = analyze([Recording(name, "", public(name))])[0].traces[0]
        assert (figures.health.status, figures.cycle.kind, figures.verdict) == ("abstain", None, ())
        assert "no decode step found" in figures.summary
