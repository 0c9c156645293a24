"""The ring of steps, as capture reads it while the server runs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.capture.step_clock import read_gaps
from profkit.sglang import step_clock
from profkit.sglang.step_clock import HEADER, HEADER_BYTES, ROW, StepClock, context_tokens


def rows(path: Path) -> tuple[tuple[bytes, int, int, int], list[tuple[int, int, int]]]:
    """The header, and the rows in the order of their slots."""
    content = path.read_bytes()
    header = HEADER.unpack_from(content)
    return header, list(ROW.iter_unpack(content[HEADER_BYTES:]))


def request(prompt: int, output: int) -> SimpleNamespace:
    return SimpleNamespace(origin_input_ids=[1] * prompt, output_ids=[1] * output)


BATCH = SimpleNamespace(reqs=[request(5, 1), request(4, 2)])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_clock, "CAPACITY", 4)


def test_rows_of_steps(small: None, tmp_path: Path) -> None:
    path = tmp_path / "steps-7.bin"
    clock = StepClock(path)
    assert rows(path) == ((b"PKSTEPS2", 4, 0, os.getpid()), [(0, 0, 0)] * 4)
    clock.note(2**62, 32, True, BATCH)
    clock.note(2**62 + 5, 1, False, BATCH)
    header, written = rows(path)
    assert header == (b"PKSTEPS2", 4, 2, os.getpid())
    assert written[:2] == [(2**62, 32, 1 + 2 * 12), (2**62 + 5, 1, 0)]


def test_the_ring_goes_round(small: None, tmp_path: Path) -> None:
    path = tmp_path / "steps-7.bin"
    clock = StepClock(path)
    for number in range(10):
        clock.note(number, number, True, None)
    header, written = rows(path)
    assert header[2] == 10
    assert written == [(8, 8, 1), (9, 9, 1), (6, 6, 1), (7, 7, 1)]


def test_contexts_are_counted_after_a_prefill_and_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "steps-7.bin"
    clock = StepClock(path)
    for number in range(40):
        clock.note(number, 2, number != 20, BATCH)
    counted = [number for number, row in enumerate(rows(path)[1][:40]) if row[2] > 1]
    assert counted == [0, 16, 21, 37]
    assert [row[2] & 1 for row in rows(path)[1][:40]] == [1] * 20 + [0] + [1] * 19


@pytest.mark.parametrize(
    ("batch", "tokens"),
    [
        (BATCH, 12),
        (SimpleNamespace(reqs=[SimpleNamespace(origin_input_ids=range(2**30), output_ids=[])]), 2**30 - 1),
        (SimpleNamespace(reqs=[SimpleNamespace(output_ids=[])]), 0),
        (SimpleNamespace(), 0),
        (None, 0),
    ],
)
def test_contexts_of_a_batch(batch: object, tokens: int) -> None:
    assert context_tokens(batch) == tokens


def test_its_size_and_the_largest_batch(tmp_path: Path) -> None:
    path = tmp_path / "steps-7.bin"
    StepClock(path).note(1, 2**31 - 1, True, None)
    assert path.stat().st_size == 64 + 65_536 * 16
    assert rows(path)[1][0] == (1, 2**31 - 1, 1)


def test_a_restarted_process_begins_anew(small: None, tmp_path: Path) -> None:
    path = tmp_path / "steps-7.bin"
    StepClock(path).note(9, 9, True, None)
    StepClock(path)
    assert rows(path)[0][2] == 0 and rows(path)[1] == [(0, 0, 0)] * 4


def test_capture_reads_what_the_plugin_writes(tmp_path: Path) -> None:
    clock = StepClock(tmp_path / f"steps-{os.getpid()}.bin")
    for began, decode in ((100, True), (130, True), (170, False), (180, True), (300, True)):
        clock.note(began, 4, decode, BATCH)
    assert {pid: gaps["ns"].tolist() for pid, gaps in read_gaps(tmp_path, 0, 10**9, 4).items()} == {
        os.getpid(): [30, 120]
    }


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="steps-7"):
        StepClock(tmp_path / "none" / "steps-7.bin")
