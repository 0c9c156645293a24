"""CUPTI's buffers as arrays: any interleaving of records, and layouts chosen by the records' length."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.sglang.cupti_buffers import record_sizes
from profkit.sglang.cupti_records import (
    DRIVER,
    KERNEL,
    MARKER,
    MEMCPY,
    MEMSET,
    RUNTIME,
    STRUCTURES,
    LayoutError,
    layouts_of,
    records_of,
)
from tests.sglang.fake_cupti import BY_KIND, DTYPES, Library, buffers, record
from tests.sglang.real_cupti import facts_of, flat

MODULE = SimpleNamespace(**DTYPES)


@settings(max_examples=50, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(BY_KIND)), max_size=30),
    cuts=st.lists(st.integers(min_value=216, max_value=900), min_size=1, max_size=2),
)
def test_any_interleaving_gives_the_same_rows(kinds: list[int], cuts: list[int]) -> None:
    """However records are spread over buffers, each kind's rows are those that were written, in their order."""
    records = [record(kind, **_numbered(kind, number)) for number, kind in enumerate(kinds)]
    for size in cuts:
        found = records_of(buffers(records, size), BY_KIND)
        assert set(found) == set(BY_KIND)
        for kind, rows in found.items():
            written = b"".join(one for one, own in zip(records, kinds, strict=True) if own == kind)
            assert rows.dtype == BY_KIND[kind]
            assert rows.tobytes() == written


def _numbered(kind: int, number: int) -> dict[str, int]:
    return {"timestamp" if kind == MARKER else "start": number + 1}


def test_values_of_records() -> None:
    kernel = record(
        KERNEL, start=10, end=2**63, device_id=3, stream_id=7, correlation_id=2**32 - 1, graph_id=2, graph_node_id=8
    )
    (row,) = records_of(buffers([record(MEMSET), kernel, record(MARKER, thread=500)], 999), BY_KIND)[KERNEL]
    fields = ("kind", "start", "end", "device_id", "stream_id", "correlation_id", "graph_id", "graph_node_id")
    assert [int(row[field]) for field in fields] == [10, 10, 2**63, 3, 7, 2**32 - 1, 2, 8]


def test_no_buffers_and_empty_ones() -> None:
    empty = np.empty(0, np.uint8)
    for given_buffers in ([], [empty], [empty, empty]):
        assert {kind: len(rows) for kind, rows in records_of(given_buffers, BY_KIND).items()} == dict.fromkeys(
            BY_KIND, 0
        )


@pytest.mark.parametrize("kind", [0, 3, 13, 999])
def test_a_record_of_another_kind(kind: int) -> None:
    strange = np.array([kind, *[0] * 9], np.uint32).tobytes()
    with pytest.raises(LayoutError, match=f"a record of kind {kind} at byte 40 of 80 is not one that was asked for"):
        records_of(buffers([record(RUNTIME), strange], 999), BY_KIND)


@pytest.mark.parametrize("left", range(1, 40))
def test_a_record_cut_short(left: int) -> None:
    whole = record(MEMCPY) + record(RUNTIME)[:left]
    with pytest.raises(LayoutError, match=f"at byte 96 of {96 + left} is not one"):
        records_of([np.frombuffer(whole, np.uint8)], BY_KIND)


# -- Layouts -----------------------------------------------------------------------------------------------------------


def test_layouts_of_the_only_release() -> None:
    assert layouts_of(MODULE, {}) == BY_KIND
    assert layouts_of(MODULE, {kind: dtype.itemsize for kind, dtype in BY_KIND.items()}) == BY_KIND


def kernels_of_two_releases() -> SimpleNamespace:
    """A module that also knows the older, shorter kernel record, which sorts behind by name."""
    ten = DTYPES["activity_kernel10_dtype"]
    fields: Any = ten.fields
    names = [name for name in ten.names or () if fields[name][1] < 200]
    nine = np.dtype(
        {
            "names": names,
            "formats": [fields[name][0] for name in names],
            "offsets": [fields[name][1] for name in names],
            "itemsize": 200,
        }
    )
    bare = np.dtype({"names": ["kind"], "formats": ["i4"], "offsets": [0], "itemsize": 144})
    return SimpleNamespace(**DTYPES, activity_kernel9_dtype=nine, activity_kernel_dtype=bare, activity_kernels_dtype=0)


@pytest.mark.parametrize(("size", "length"), [(None, 216), (216, 216), (200, 200), (144, 144)])
def test_the_records_length_chooses_the_layout(size: int | None, length: int) -> None:
    sizes = {} if size is None else {KERNEL: size}
    assert layouts_of(kernels_of_two_releases(), sizes)[KERNEL].itemsize == length


def test_records_of_the_older_release_are_read() -> None:
    module, library = kernels_of_two_releases(), Library({**Library().sizes, KERNEL: 200})
    older = [record(KERNEL, start=number, correlation_id=5)[:200] for number in (1, 2)]
    held = list(buffers([older[0], record(DRIVER), older[1]], 999))
    rows = records_of(held, layouts_of(module, record_sizes(library, held)))[KERNEL]  # type: ignore[arg-type]
    assert (rows["start"].tolist(), rows["correlation_id"].tolist()) == ([1, 2], [5, 5])


def test_a_length_that_is_not_known() -> None:
    said = "cupti-python knows no activity_kernel of 224 bytes: install the release of your CUPTI"
    with pytest.raises(LayoutError, match=said):
        layouts_of(kernels_of_two_releases(), {KERNEL: 224})


def test_a_layout_that_is_missing() -> None:
    del (module := SimpleNamespace(**DTYPES)).activity_marker2_dtype
    with pytest.raises(LayoutError, match="knows no activity_marker of None bytes"):
        layouts_of(module, {})


def test_layouts_are_those_of_the_package() -> None:
    """It needs no GPU for this."""
    real = facts_of("13.0.1")["fields"]
    for kind, own in BY_KIND.items():
        size, fields = real[str(int(kind))]
        assert own.itemsize == size
        assert [list(one) for one in flat(own)] == fields, STRUCTURES[kind]


# -- Lengths, as CUPTI steps through buffers ------------------------------------------------------------------------


def test_lengths_of_records() -> None:
    records = [record(kind) for kind in (KERNEL, MARKER, MARKER, RUNTIME, KERNEL, MEMCPY)]
    for size in (216, 400, 10_000):
        assert record_sizes(Library(), buffers(records, size)) == {  # type: ignore[arg-type]
            KERNEL: 216, MARKER: 56, RUNTIME: 40, MEMCPY: 96
        }  # fmt: skip


def test_lengths_where_nothing_was_recorded() -> None:
    for held in ([], [np.empty(0, np.uint8)]):
        assert record_sizes(Library(), held) == {}  # type: ignore[arg-type]


def test_only_the_beginning_of_a_buffer_is_stepped_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.sglang.cupti_buffers.SAMPLED", 3)
    records = [record(RUNTIME), record(RUNTIME), record(RUNTIME), record(MEMSET)]
    assert record_sizes(Library(), buffers(records, 999)) == {RUNTIME: 40}  # type: ignore[arg-type]


def test_the_fake_knows_every_kind() -> None:
    assert set(BY_KIND) == set(STRUCTURES)
