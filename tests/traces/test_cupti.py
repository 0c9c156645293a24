"""CUPTI's dumps as a trace: exact tables, what is refused, and names that hide what a file is."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit import InputError, Trace, load_bundle, open_trace, save_bundle
from profkit.traces import Device, Note, Process, Source, open_recordings
from profkit.traces.cupti import read_cupti, zero_utc_ns
from profkit.traces.model import Table
from tests.resources import user_without_rights
from tests.traces import kineto_files
from tests.traces.cupti_files import BASE, CuptiFile, small_step

CHECKOUT = Path(__file__).resolve().parents[2]


def read(folder: Path, *files: CuptiFile) -> Trace:
    for file in files:
        file.write(folder)
    trace = open_trace(folder)
    trace.check()
    return trace


def table(trace: Trace, rows: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a table by row, with strings for their ids."""
    texts = {"name", "api", "text", "domain"}
    values = [getattr(rows, column).tolist() for column in columns]
    named = [
        [trace.strings[one] for one in own] if column in texts else own
        for column, own in zip(columns, values, strict=True)
    ]
    return list(zip(*named, strict=True))


# -- Exact tables --------------------------------------------------------------------------------------------------


def two_ranks() -> tuple[CuptiFile, CuptiFile]:
    """Each rank calls its GPU number 0; the second one's window opens a little later."""
    first = CuptiFile(11, began=100, ended=900).device(0, "0000:19:00.0")
    first.node(50, 1 << 32 | 4).node(60, 2 << 32 | 4, 1 << 32 | 4, thread=501)
    first.closes(110, 70).opens("step:decode bs=4", 120, 71).opens("draft", 130, 72).closes(180, 72)
    first.opens("target", 190, 73).closes(700, 71).opens("step:decode bs=4", 710, 74)
    first.call(311, 140, 150, 1).kernel("gemm(float*)", 200, 260, 1, graph=2, node=4)
    first.kernel("ncclDevKernel", 250, 300, 1, graph=2, node=5, stream=13).memset(64, 300, 301, 1, graph=2, node=6)
    first.call(41, 195, 199, 2).copy(2, 4096, 310, 330, 2).call(17, 331, 400, 3)
    second = CuptiFile(22, began=150, ended=950).device(0, "0000:3b:00.0")
    second.call(211, 160, 170, 1, thread=600).kernel("gemm(float*)", 205, 270, 1).peer_copy(8, 280, 290, 0, device=0)
    second.call(652, 300, 0, 9, thread=600)
    return first, second


def test_ops_of_two_ranks(tmp_path: Path) -> None:
    trace = read(tmp_path, *two_ranks())
    columns = ("start", "end", "device", "stream", "pid", "correlation", "kind", "name", "graph_launch", "graph_node")
    graph = 2 << 32
    assert table(trace, trace.ops, *columns, "bytes") == [
        (200, 260, 0, 7, 11, 1, 0, "gemm(float*)", 1, graph | 4, -1),
        (205, 270, 1, 7, 22, 1, 0, "gemm(float*)", -1, -1, -1),
        (250, 300, 0, 13, 11, 1, 0, "ncclDevKernel", 1, graph | 5, -1),
        (280, 290, 1, 7, 22, -1, 1, "memcpy PtoP", -1, -1, 8),
        (300, 301, 0, 7, 11, 1, 2, "memset", 1, graph | 6, 64),
        (310, 330, 0, 7, 11, 2, 1, "memcpy DtoH", -1, -1, 4096),
    ]


def test_launches_of_two_ranks(tmp_path: Path) -> None:
    """Names lose the version that CUPTI gives them; a call that had not returned ends where it starts."""
    trace = read(tmp_path, *two_ranks())
    assert table(trace, trace.launches, "start", "end", "pid", "tid", "correlation", "api") == [
        (140, 150, 11, 500, 1, "cudaGraphLaunch"),
        (160, 170, 22, 600, 1, "cudaLaunchKernel"),
        (195, 199, 11, 500, 2, "cudaMemcpyAsync"),
        (300, 300, 22, 600, 9, "cuLaunchKernelEx_ptsz"),
        (331, 400, 11, 500, 3, "cuCtxSynchronize"),
    ]


def test_ranges_nested_and_cut_by_the_window(tmp_path: Path) -> None:
    """What was open before the window has no name and is left out; what is open at its end, ends with it."""
    trace = read(tmp_path, *two_ranks())
    assert table(trace, trace.ranges, "start", "end", "pid", "tid", "domain", "text", "depth", "parent") == [
        (120, 700, 11, 500, "profkit", "step:decode bs=4", 0, -1),
        (130, 180, 11, 500, "profkit", "draft", 1, 0),
        (190, 900, 11, 500, "profkit", "target", 1, 0),
        (710, 900, 11, 500, "profkit", "step:decode bs=4", 2, 2),
    ]


def test_nodes_devices_and_source(tmp_path: Path) -> None:
    (tmp_path / "window-1").mkdir()
    trace = read(tmp_path / "window-1", *two_ranks())
    assert table(trace, trace.graph_nodes, "pid", "tid", "node", "original_node", "created") == [
        (11, 500, 1 << 32 | 4, -1, 50),
        (11, 501, 2 << 32 | 4, 1 << 32 | 4, 60),
    ]
    assert trace.processes == (Process(11), Process(22))
    assert trace.devices == (
        Device(0, "NVIDIA H200", 132, 4_916_736_000_000, None, "0000:19:00.0"),
        Device(1, "NVIDIA H200", 132, 4_916_736_000_000, None, "0000:3b:00.0"),
    )
    assert trace.source == Source("cupti", "CUPTI", "13.0.1", "1", "580.65.06", "window-1")
    assert trace.notes == (Note("graph_mode", "node"),)
    assert zero_utc_ns(tmp_path / "window-1") == BASE


def test_times_count_from_the_first_windows_second(tmp_path: Path) -> None:
    one = small_step(11)
    one.header.update(began_ns=BASE + 2_300_000_000, ended_ns=BASE + 2_400_000_000)
    trace = read(tmp_path, one, small_step(22))
    assert (zero_utc_ns(tmp_path), trace.ops.start.tolist()) == (BASE, [40, 40])
    (tmp_path / "22.cupti").unlink()
    assert zero_utc_ns(tmp_path) == BASE + 2 * 10**9
    assert read_cupti(tmp_path).ops.start.tolist() == [40 - 2 * 10**9]


def test_devices_that_processes_share_and_number_differently(tmp_path: Path) -> None:
    """One GPU by its bus id, whatever a process calls it; two by one number are told apart."""
    one = CuptiFile(1).device(0, "a").device(1, "b").kernel("k", 1, 2, 1).kernel("k", 1, 3, 1, device=1)
    two = CuptiFile(2).device(0, "b").device(1, "c").kernel("k", 1, 4, 1).kernel("k", 1, 5, 1, device=1)
    three = CuptiFile(3).device(0, "d").kernel("k", 1, 6, 1)
    trace = read(tmp_path, one, two, three)
    assert [(device.device, device.bus_id) for device in trace.devices] == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert trace.ops.device.tolist() == [0, 1, 1, 2, 3]


def test_records_without_times_are_counted(tmp_path: Path) -> None:
    file = small_step().kernel("never ran", -BASE, -BASE, 2).kernel("ends before it starts", 90, 80, 3)
    trace = read(tmp_path, file)
    assert len(trace.ops) == 1
    assert trace.notes_of("bad_times") == ("2 of 3 GPU records have no usable time and were left out",)


def test_what_has_no_name(tmp_path: Path) -> None:
    """A kernel, a domain, a copy of a new kind, and a call that CUPTI did not name."""
    file = CuptiFile(11).kernel("a", 1, 2, 1).kernel(None, 3, 4, 1).copy(99, 1, 5, 6, 1).call(999, 1, 2, 1)
    trace = read(tmp_path, file.range("r", 1, 2, 1, domain=None))
    assert [name for (name,) in table(trace, trace.ops, "name")] == ["a", "unknown", "memcpy unknown"]
    assert table(trace, trace.launches, "api") == [("runtime call 999",)]
    assert table(trace, trace.ranges, "domain", "text") == [("", "r")]


def test_a_window_of_nothing(tmp_path: Path) -> None:
    trace = read(tmp_path, CuptiFile(11))
    assert {name: len(rows) for name, rows in trace.tables().items()} == dict.fromkeys(trace.tables(), 0)


def test_dropped_records_of_all_ranks_are_noted(tmp_path: Path) -> None:
    trace = read(tmp_path, CuptiFile(1, dropped=5), CuptiFile(2, dropped=7), CuptiFile(3))
    assert trace.notes_of("dropped_records") == ("12",)


# -- The same bytes every time -------------------------------------------------------------------------------------


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_bundles_of_one_recording_have_the_same_bytes(tmp_path: Path) -> None:
    """Read again, and in a process whose hashes fall out otherwise."""
    recorded = tmp_path / "window-1"
    recorded.mkdir()
    for file in two_ranks():
        file.write(recorded)
    for name in ("one", "two"):
        save_bundle(open_trace(recorded), tmp_path / name)
    script = (
        "import sys, pathlib, profkit; profkit.save_bundle(profkit.open_trace(sys.argv[1]), pathlib.Path(sys.argv[2]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", script, str(recorded), str(tmp_path / "three")]
    subprocess.run(command, env=environment, check=True)
    assert content(tmp_path / "one") == content(tmp_path / "two") == content(tmp_path / "three")
    assert "ops.parquet" in content(tmp_path / "one")


def test_a_bundle_holds_the_same_tables(tmp_path: Path) -> None:
    trace = read(tmp_path, *two_ranks())
    save_bundle(trace, tmp_path / "bundle")
    again = load_bundle(tmp_path / "bundle")
    for rows, columns in (("ops", ("start", "end", "name")), ("ranges", ("text", "parent")), ("launches", ("api",))):
        assert table(again, getattr(again, rows), *columns) == table(trace, getattr(trace, rows), *columns)
    assert (again.devices, again.notes, again.source) == (trace.devices, trace.notes, trace.source)


# -- The content decides -------------------------------------------------------------------------------------------

NAMES = ("11.cupti", "meaningless", "trace.json", "export.sqlite", "a b'c.txt")


@pytest.mark.parametrize("name", NAMES)
def test_a_single_file_under_any_name(name: str, tmp_path: Path) -> None:
    file = small_step().write(tmp_path / name)
    assert len(open_trace(file).ops) == 1
    assert open_recordings(file)[0].name == name.removesuffix(".cupti").removesuffix(".json").removesuffix(".sqlite")
    file.write_bytes(gzip.compress(file.read_bytes()))
    assert len(open_trace(file).ops) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_files_under_any_name(name: str, tmp_path: Path) -> None:
    small_step(11).write(tmp_path / name)
    small_step(22).write(tmp_path / f"second {name}")
    (tmp_path / "README.md").write_text("how these were recorded", "utf-8")
    (tmp_path / "11.part").write_bytes(b"PK\x03\x04")
    trace = open_trace(tmp_path)
    assert (trace.source.format, trace.ops.pid.tolist()) == ("cupti", [11, 22])


def test_other_recordings_named_like_a_dump(tmp_path: Path) -> None:
    kineto_files.write(tmp_path / "rank0.cupti", kineto_files.launch(1, 2), kineto_files.kernel(5, 3))
    for path in (tmp_path, tmp_path / "rank0.cupti"):
        assert open_trace(path).source.format == "kineto"


def test_an_archive_of_something_else(tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", layer=np.zeros(3))
    with pytest.raises(InputError, match=r"weights\.npz: not a recording that profkit knows; give a bundle"):
        open_trace(tmp_path / "weights.npz")
    with pytest.raises(InputError, match="the folder holds no recording; give a bundle"):
        open_trace(tmp_path)
    small_step().write(tmp_path)
    assert len(open_trace(tmp_path).ops) == 1, "it may lie beside a recording"


# -- What is refused -----------------------------------------------------------------------------------------------


def refused(path: Path) -> str:
    """The one line that a user gets."""
    with pytest.raises(InputError) as caught:
        open_trace(path)
    said = str(caught.value)
    assert "\n" not in said and caught.value.fault and caught.value.advice
    return said.replace(f"{path.parent}/", "", 1)


FOREIGN = {
    "empty": (b"", "the file is empty; record again"),
    "text": (b"pid,kernel\n1,gemm\n", "no dump of CUPTI's records; record again"),
    "one array": (b"\x93NUMPY\x01\x00", "no dump of CUPTI's records; record again"),
    "cut in its first member": (b"PK\x03\x04" + bytes(20), "no dump of CUPTI's records; record again"),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("beside", [False, True])
def test_a_file_that_only_has_the_name(kind: str, beside: bool, tmp_path: Path) -> None:
    """A rank is never left out in silence, alone or beside sound ones."""
    data, said = FOREIGN[kind]
    folder = tmp_path / "window"
    folder.mkdir()
    (folder / "22.cupti").write_bytes(data)
    if beside:
        small_step(11).write(folder)
    assert refused(folder) == f"window/22.cupti: {said}"


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.999])
def test_a_truncated_dump(share: float, tmp_path: Path) -> None:
    whole = small_step().write(tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: int(len(whole) * share)])
    assert refused(tmp_path / "cut").startswith("cut: a damaged dump of CUPTI's records (")


COLUMN = np.arange(1)
CHANGES = {
    "a part is missing": ({"kernels__start": None}, {}, "a part of it is missing (kernels.start"),
    "lengths differ": ({"kernels__start": np.arange(2)}, {}, "the columns of kernels differ in length"),
    "two dimensions": ({"kernels__start": np.zeros((1, 1), np.int64)}, {}, "kernels.start is no column of whole"),
    "fractions": ({"kernels__start": np.array([0.5])}, {}, "kernels.start is no column of whole numbers"),
    "texts": ({"kernels__start": np.array(["0"])}, {}, "kernels.start is no column of whole numbers"),
    "a string too many": ({"kernels__name": COLUMN + 3}, {}, "a record names a string that is not there"),
    "a string below none": ({"kernels__name": COLUMN - 2}, {}, "a record names a string that is not there"),
    "a device too large": ({"kernels__device": COLUMN + 2**40}, {}, "a record names a device that there cannot be"),
    "a device just too large": ({"kernels__device": COLUMN + 2**31}, {}, "a record names a device that there cannot"),
    "a device below none": ({"kernels__device": COLUMN - 2}, {}, "a record names a device that there cannot be"),
    "a header's device too large": ({}, {"devices": [{"id": 2**31}]}, "records (Expected `int` <= 2147483647"),
    "a window that ends first": ({}, {"began_ns": 2**61}, "its window ends before it begins"),
    "a newer schema": ({}, {"schema": "profkit.cupti/9", "pid": "new"}, "unknown schema 'profkit.cupti/9'; update"),
    "no process": ({}, {"pid": "eleven"}, "a damaged dump of CUPTI's records (Expected `int`, got `str`"),
    "no schema": ({}, {"schema": None}, "a damaged dump of CUPTI's records (Expected `str`, got `null`"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_dump_that_makes_no_sense(change: str, tmp_path: Path) -> None:
    columns, header, said = CHANGES[change]
    file = small_step()
    file.header.update(header)
    path = file.write(tmp_path / "11.cupti", **columns)
    found = refused(path)
    assert found.startswith("11.cupti: ") and said in found
    assert found.split("; ")[-1] in ("record again", "update profkit")


def test_the_largest_device(tmp_path: Path) -> None:
    file = small_step().device(2**31 - 1, "0000:01:00.0")
    trace = read_cupti(file.write(tmp_path / "11.cupti", kernels__device=COLUMN + 2**31 - 1))
    assert trace.ops.device.tolist() == [device.device for device in trace.devices]


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", header=np.array([print], dtype=object))
    assert "Object arrays cannot be loaded" in refused(tmp_path / "x.npz")


def test_two_dumps_of_one_process(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    file = small_step().write(tmp_path / "w")
    (tmp_path / "w" / "copy of 11").write_bytes(file.read_bytes())
    said = "w/copy of 11: a second dump of process 11, beside 11.cupti; move one of them away"
    assert refused(tmp_path / "w") == said


def test_a_dump_that_may_not_be_read() -> None:
    with user_without_rights() as folder:
        file = small_step().write(folder)
        file.chmod(0)
        with pytest.raises(InputError, match=r"11\.cupti: may not be read; change its permissions"):
            read_cupti(folder)


def test_a_folder_without_dumps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no process left a \.cupti file here; record again"):
        read_cupti(tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255), tail=st.booleans())
def test_any_flipped_byte_is_noticed_or_harmless(place: float, bits: int, tail: bool, tmp_path: Path) -> None:
    """Checksums cover the arrays; the archive's own directory, its tail, has none and may be read past."""
    whole = bytearray(small_step().write(tmp_path / "whole").read_bytes())
    expected = read_cupti(tmp_path / "whole")
    directory = whole.index(b"PK\x01\x02")
    first, last = (directory, len(whole)) if tail else (0, len(whole))
    whole[first + int(place * (last - first))] ^= bits
    (tmp_path / "flipped").write_bytes(whole)
    try:
        found = open_trace(tmp_path / "flipped")
    except InputError as error:
        assert "\n" not in str(error) and str(tmp_path / "flipped") in str(error)
        return
    assert found.strings == expected.strings
    for name, rows in found.tables().items():
        for column, values in rows.columns().items():
            assert np.array_equal(values, getattr(getattr(expected, name), column)), (name, column)
