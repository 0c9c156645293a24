"""Records as columns and strings, and the file that holds them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.sglang import cupti_dump
from profkit.sglang.cupti_dump import columns_of, demangler, write_dump
from profkit.sglang.cupti_records import MARKER, MEMCPY, SYNCHRONIZATION, records_of
from profkit.traces import cupti_dump as reader
from tests.sglang.fake_cupti import BY_KIND, Names, buffers, call, closes, kernel, opens, record


def columns(*records: bytes, text_at: Callable[[int], str] | None = None) -> tuple[dict[str, list[int]], list[str]]:
    arrays, strings = columns_of(records_of(buffers(records, 999), BY_KIND), text_at or demangler())
    return {name: values.tolist() for name, values in arrays.items()}, strings


def test_every_column_of_every_kind() -> None:
    names = Names()
    found, strings = columns(
        kernel(names, "_Z4gemmPf", 10, 20, 5, device_id=1, graph_id=3, graph_node_id=(3 << 32) | 1),
        record(MEMCPY, start=30, end=35, bytes=4096, copy_kind=8, correlation_id=6, stream_id=9),
        call(1, 4, 5, cbid=211),
        opens(names, "draft", 2, 77),
        closes(9, 77),
        record(SYNCHRONIZATION, start=40, end=50, correlation_id=8, stream_id=7, type=3),
    )
    assert strings == ["gemm(float*)", "draft", "profkit"]
    assert {name: values for name, values in found.items() if values} == {
        "kernels.start": [10], "kernels.end": [20], "kernels.device": [1], "kernels.stream": [7],
        "kernels.correlation": [5], "kernels.graph": [3], "kernels.graph_node": [(3 << 32) | 1], "kernels.name": [0],
        "copies.start": [30], "copies.end": [35], "copies.device": [0], "copies.stream": [9],
        "copies.correlation": [6], "copies.graph": [0], "copies.graph_node": [0], "copies.bytes": [4096],
        "copies.copy_kind": [8],
        "runtime.start": [1], "runtime.end": [4], "runtime.thread": [500], "runtime.correlation": [5],
        "runtime.number": [211],
        "markers.time": [2, 9], "markers.flags": [2, 4], "markers.id": [77, 77], "markers.name": [1, -1],
        "markers.domain": [2, -1], "markers.thread": [500, 500],
        "synchronisations.start": [40], "synchronisations.end": [50], "synchronisations.correlation": [8],
        "synchronisations.stream": [7], "synchronisations.type": [3],
    }  # fmt: skip


def test_writer_and_reader_know_the_same_columns() -> None:
    """Both sides write them down; the reader leaves synchronisations alone, and nodes come from the recorder."""
    written = {name for name, _ in columns_of({kind: np.empty(0, BY_KIND[kind]) for kind in BY_KIND}, str)[0].items()}
    read = {f"{table}.{column}" for table, own in reader.COLUMNS.items() if table != "nodes" for column in own}
    assert read == {name for name in written if not name.startswith("synchronisations.")}
    assert (reader.SCHEMA, reader.SUFFIX) == (cupti_dump.SCHEMA, cupti_dump.SUFFIX)


def test_a_string_is_read_once_for_each_address() -> None:
    names, asked = Names(), []

    def text_at(address: int) -> str:
        asked.append(address)
        return ctypes.string_at(address).decode()

    found, strings = columns(*[kernel(names, text, 1, 2, 3) for text in "abcabcaab"], text_at=text_at)
    assert sorted(strings) == ["a", "b", "c"] and len(asked) == 3
    assert "".join(strings[number] for number in found["kernels.name"]) == "abcabcaab"


def test_equal_texts_at_two_addresses_are_one_string() -> None:
    found, strings = columns(kernel(Names(), "gemm", 1, 2, 3), kernel(held := Names(), "gemm", 3, 4, 5))
    assert (strings, found["kernels.name"], bool(held)) == (["gemm"], [0, 0], True)


def test_a_kernel_without_a_name() -> None:
    found, strings = columns(kernel(Names(), None, 1, 2, 3))
    assert (found["kernels.name"], strings) == ([-1], [])


MANGLED = {
    b"_ZN2at6native18elementwise_kernelILi128ELi4EEEvi": "void at::native::elementwise_kernel<128, 4>(int)",
    b"_ZN7cutlass4gemmEv": "cutlass::gemm()",
    b"ampere_sgemm_128x64_nn": "ampere_sgemm_128x64_nn",
    b"_Zno mangling": "_Zno mangling",
    b"_start\xff": "_start\ufffd",
    b"": "",
}


@pytest.mark.parametrize("raw", MANGLED)
def test_names_are_demangled(raw: bytes) -> None:
    held = ctypes.create_string_buffer(raw)
    assert demangler()(ctypes.addressof(held)) == MANGLED[raw]


def test_without_a_demangler_names_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    held = ctypes.create_string_buffer(b"_ZN7cutlass4gemmEv")
    assert demangler()(ctypes.addressof(held)) == "_ZN7cutlass4gemmEv"


def test_a_dump_is_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "7.cupti"
    write_dump(file, {"pid": 7, "strings": ["ü"]}, {"kernels.start": np.array([1, 2])})
    assert [one.name for one in tmp_path.iterdir()] == ["7.cupti"]
    assert reader.is_dump(file.read_bytes()[:64]), "the header comes first: by it the file is told from others"
    with np.load(file, allow_pickle=False) as archive:
        header = json.loads(archive["header"].tobytes())
        assert archive["kernels.start"].tolist() == [1, 2]
    assert header == {"schema": "profkit.cupti/1", "pid": 7, "strings": ["ü"]}


def test_a_dump_of_the_same_records_has_the_same_bytes(tmp_path: Path) -> None:
    arrays, strings = columns_of(records_of(buffers([record(MARKER)], 99), BY_KIND), demangler())
    for name in ("one", "two"):
        write_dump(tmp_path / name, {"pid": 7, "strings": strings}, arrays)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
