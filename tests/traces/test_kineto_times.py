"""Times of Kineto traces: exact to the nanosecond, and left out where they cannot be true."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.traces.kineto_decode import decode_strict
from profkit.traces.kineto_tables import tables
from profkit.traces.strings import StringTable
from tests.traces.kineto_files import Time, event, kernel, launch, read, texts

YEARS = 7_400_000_000_000_000


def test_strings_of_nineteen_digits(tmp_path: Path) -> None:  # Ascend/pytorch#133
    trace = read(
        tmp_path,
        event("user_annotation", "outer", "1700000000000000.001", "10.002"),
        event("user_annotation", "inner", "1700000000000001.123", "2"),
    )
    assert texts(trace) == ["outer", "inner"]
    assert trace.ranges.start.tolist() == [1_700_000_000_000_000_001, 1_700_000_000_000_001_123]
    assert trace.ranges.end.tolist() == [1_700_000_000_000_010_003, 1_700_000_000_000_003_123]
    assert trace.ranges.parent.tolist() == [-1, 0]


def test_nanoseconds_are_not_cut_to_microseconds(tmp_path: Path) -> None:  # pytorch/kineto#853, pytorch#116830
    ops = read(tmp_path, kernel(10, 0.6), kernel(10.7, 0.6)).ops
    assert ops.start.tolist() == [10_000, 10_700]
    assert ops.end.tolist() == [10_600, 11_300]


def test_absolute_times_make_no_false_overlap(tmp_path: Path) -> None:  # pytorch/kineto#919
    first, second = Decimal("1700000000000000.101"), Decimal("1700000000000000.203")
    ops = read(tmp_path, kernel(first, Decimal("0.102")), kernel(second, Decimal("0.003"))).ops
    assert ops.end[0] == ops.start[1] == 1_700_000_000_000_000_203


def test_integer_microseconds_stay_as_they_are(tmp_path: Path) -> None:
    ops = read(tmp_path, kernel(1_683_564_902_133_354, 15)).ops
    assert ops.start.tolist() == [1_683_564_902_133_354_000]
    assert ops.end.tolist() == [1_683_564_902_133_369_000]


def test_kernel_without_times_and_a_good_launch(tmp_path: Path) -> None:  # pytorch/kineto#109
    trace = read(tmp_path, launch(5, 1), kernel(0, 0))
    assert (len(trace.ops), len(trace.launches)) == (0, 1)
    assert trace.notes_of("bad_times") == ("1 of 1 GPU records have no usable time and were left out",)


def test_second_half_of_the_trace_has_no_times(tmp_path: Path) -> None:  # pytorch/pytorch#188481, perfetto#6421
    good = [kernel(ts, 2) for ts in (10, 20, 30)]
    trace = read(tmp_path, *good, *[kernel(Decimal("0.000"), Decimal("0.000"))] * 3)
    assert trace.ops.start.tolist() == [10_000, 20_000, 30_000]
    assert trace.notes_of("bad_times") == ("3 of 6 GPU records have no usable time and were left out",)


@pytest.mark.parametrize("dur", [YEARS, float(YEARS), 10**30, -1, "soon", None])
def test_durations_that_cannot_be(tmp_path: Path, dur: Time) -> None:  # HolisticTraceAnalysis#325
    trace = read(tmp_path, kernel(10, 2), kernel(20, dur))
    assert trace.ops.start.tolist() == [10_000]
    assert trace.notes_of("bad_times") == ("1 of 2 GPU records have no usable time and were left out",)


@pytest.mark.parametrize("ts", [0, "never", None, 10**30])
def test_starts_far_from_all_others(tmp_path: Path, ts: Time) -> None:
    trace = read(tmp_path, kernel(10**12, 2), kernel(10**12 + 5, 2), kernel(ts, 3))
    assert len(trace.ops) == 2
    assert len(trace.notes_of("bad_times")) == 1


def test_launches_whose_kernels_were_lost(tmp_path: Path) -> None:  # pytorch/pytorch#192021
    launches = [launch(10 * number, 1, number) for number in range(1, 6)]
    trace = read(tmp_path, *launches, *[kernel(10 * number + 4, 2, number) for number in (3, 4, 5)])
    assert trace.launches.correlation.tolist() == [1, 2, 3, 4, 5]
    assert trace.ops.correlation.tolist() == [3, 4, 5]


def test_kernel_before_its_launch(tmp_path: Path) -> None:  # pytorch/kineto#1380
    trace = read(tmp_path, launch(10, 3), kernel(8, 4))
    assert (trace.ops.start.tolist(), trace.launches.start.tolist()) == ([8_000], [10_000])
    assert trace.notes == ()


def test_end_that_equals_the_next_start(tmp_path: Path) -> None:  # pytorch/kineto#992
    ops = read(tmp_path, kernel(1, 2), kernel(3, 2)).ops
    assert ops.end[0] == ops.start[1] == 3_000


@given(
    base=st.integers(0, 1_800_000_000_000_000_000),
    rows=st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 10**12)), min_size=1, max_size=20),
    as_text=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_nanosecond_decimals_round_trip(base: int, rows: list[tuple[int, int]], as_text: bool) -> None:
    quote = '"' if as_text else ""
    lines = [
        f'{{"ph": "X", "cat": "kernel", "ts": {quote}{_decimal(base + start)}{quote}, "dur": {_decimal(dur)}}}'
        for start, dur in rows
    ]
    data = f"[{','.join(lines)}]".encode()
    json.loads(data)
    decoded = decode_strict(data)
    assert decoded is not None
    ops = tables(decoded.events, StringTable()).ops
    expected = sorted((base + start, base + start + dur) for start, dur in rows)
    assert sorted(zip(ops.start.tolist(), ops.end.tolist(), strict=True)) == expected


def _decimal(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"
