"""The ring of step starts, and the step times that come of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from profkit.capture.step_clock import GAP, Gaps, read_gaps, remove_rings, step_times, without_first
from profkit.sglang.step_clock import HEADER, HEADER_BYTES, MAGIC, ROW
from profkit.traces import StepTimes

ALWAYS = (0, 10**9)


def write_ring(
    folder: Path, pid: int, *rows: tuple[int, int, int], capacity: int = 8, count: int | None = None
) -> Path:
    """As the plugin writes it: row number i in slot i modulo the capacity."""
    content = bytearray(HEADER_BYTES + capacity * ROW.size)
    HEADER.pack_into(content, 0, MAGIC, capacity, len(rows) if count is None else count, pid)
    for number, row in enumerate(rows):
        ROW.pack_into(content, HEADER_BYTES + number % capacity * ROW.size, *row)
    file = folder / f"steps-{pid}.bin"
    file.write_bytes(content)
    return file


def gaps_of(*ns: int, context: float = float("nan")) -> npt.NDArray[np.void]:
    return np.array([(one, context) for one in ns], GAP)


def listed(gaps: Gaps) -> dict[int, list[int]]:
    return {pid: own["ns"].tolist() for pid, own in gaps.items()}


@pytest.mark.parametrize(
    ("rows", "span", "gaps"),
    [
        ([(10, 4, 1), (20, 4, 1), (35, 4, 1)], ALWAYS, [10, 15]),
        ([(10, 4, 1), (20, 4, 0), (35, 4, 1), (50, 4, 1)], ALWAYS, [15]),  # a prefill
        ([(10, 4, 1), (20, 3, 1), (35, 3, 1), (50, 4, 1)], ALWAYS, []),  # other batch sizes
        ([(10, 4, 1), (20, 4, 1), (35, 4, 1), (50, 4, 1)], (15, 40), [15]),
        ([(10, 4, 1)], ALWAYS, []),
        ([], ALWAYS, []),
    ],
)
def test_gaps_of_decode_steps(
    rows: list[tuple[int, int, int]], span: tuple[int, int], gaps: list[int], tmp_path: Path
) -> None:
    write_ring(tmp_path, 7, *rows)
    assert listed(read_gaps(tmp_path, *span, 4)) == ({7: gaps} if gaps else {})


def test_a_ring_that_went_round(tmp_path: Path) -> None:
    """Of eight slots the oldest may just be written over: seven rows are certain."""
    write_ring(tmp_path, 7, *((number**2, 1, 1) for number in range(20)))
    assert listed(read_gaps(tmp_path, *ALWAYS, 1)) == {7: [2 * number + 1 for number in range(13, 19)]}


def test_what_is_no_ring_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "steps-1.bin").write_bytes(b"")
    (tmp_path / "steps-2.bin").write_bytes(b"PKSTEPS0" + bytes(200))
    cut = write_ring(tmp_path, 3, (1, 1, 1), (2, 1, 1))
    cut.write_bytes(cut.read_bytes()[:-1])
    write_ring(tmp_path, 4, count=0)
    assert read_gaps(tmp_path, *ALWAYS, 1) == {}
    remove_rings(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_slowest_process_counts() -> None:
    before = {1: gaps_of(*[100] * 9), 2: gaps_of(90, 110)}
    after = {1: gaps_of(100), 2: gaps_of(120, 130, 140)}
    assert step_times(before, after) == StepTimes(median_ns=120, low_ns=98, high_ns=136, steps=5)
    assert step_times(after) == StepTimes(130, 122, 138, 3)
    assert step_times({}, {}) is None


def test_step_times_hold_the_median_context_where_it_was_counted() -> None:
    gaps = gaps_of(10, 20, 30, 40)
    gaps["context"] = [100, 300, float("nan"), 200]
    assert step_times({1: gaps}) == StepTimes(25, 13, 37, 4, context=200)
    gaps["context"] = float("nan")
    assert step_times({1: gaps}) == StepTimes(25, 13, 37, 4)


def test_the_first_step_of_a_recording_is_left_out() -> None:
    assert listed(without_first({1: gaps_of(900, 5, 6), 2: gaps_of(900)})) == {1: [5, 6]}


def test_contexts_grow_evenly_between_two_counts(tmp_path: Path) -> None:
    """Counted in the first step after a prefill and in the third: 100, 120, and 7 after the next prefill."""
    steps = [(0, 1, 1 + 2 * 100), (1, 1, 1), (2, 1, 1 + 2 * 120), (3, 1, 1), (4, 1, 1), (5, 1, 0)]
    write_ring(tmp_path, 7, *steps, (6, 1, 1 + 2 * 7), (7, 1, 1), capacity=16)
    (gaps,) = read_gaps(tmp_path, *ALWAYS, 1).values()
    assert gaps["context"].tolist() == [100, 110, 120, 130, 7]


def test_contexts_that_no_one_counted_are_unknown(tmp_path: Path) -> None:
    write_ring(tmp_path, 7, (0, 1, 1), (1, 1, 1), (2, 1, 0), (3, 1, 1 + 2 * 5), (4, 1, 1))
    (gaps,) = read_gaps(tmp_path, *ALWAYS, 1).values()
    assert np.isnan(gaps["context"]).tolist() == [True, False]
