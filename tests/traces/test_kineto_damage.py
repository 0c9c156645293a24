"""Files that other programs cannot read: each gives what it holds, or one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.traces import InputError, OpKind
from profkit.traces.kineto import looks_like_kineto, read_kineto
from tests.traces.kineto_files import checked, kernel, names, write

CASES = Path(__file__).parent / "cases" / "kineto"


def test_a_copy_of_no_bytes_with_infinite_bandwidth() -> None:  # pytorch/kineto#105
    trace = checked(CASES / "bare_inf_and_nan.json")
    assert trace.ops.start.tolist() == trace.ops.end.tolist() == [5000, 6000, 7000, 8000]
    assert set(trace.ops.kind.tolist()) == {OpKind.MEMCPY}
    assert trace.ops.bytes.tolist() == [0, 0, 0, 0]
    assert trace.notes == ()


def test_an_integer_above_int64() -> None:  # HolisticTraceAnalysis#324
    assert names(checked(CASES / "int_above_int64.json")) == ["gemm"]


def test_bytes_that_are_no_utf_8() -> None:  # HolisticTraceAnalysis#324, #64
    assert names(checked(CASES / "latin_1_name.json")) == ["réduction", "gemm"]


def test_quotes_that_nobody_escaped() -> None:  # HolisticTraceAnalysis#324
    trace = checked(CASES / "unescaped_quotes.json")
    assert names(trace) == ['says "hi" twice, "hi"', "gemm"]
    assert trace.ops.correlation.tolist() == [1, 1]


def test_a_raw_control_character() -> None:  # google/perfetto#598
    assert names(checked(CASES / "control_character.json")) == ["ge\x01mm"]


def test_an_array_cut_inside_its_third_event() -> None:  # google/trace-viewer#145
    trace = checked(CASES / "cut_in_third_event.json")
    assert names(trace) == ["one", "two"]
    assert trace.notes_of("truncated") == ("the file breaks off; 2 complete events were read",)


def test_a_file_cut_inside_a_string() -> None:  # mlcommons/chakra#192
    trace = checked(CASES / "cut_in_string.json")
    assert names(trace) == ["gemm"] * 40
    assert trace.notes_of("truncated") == ("the file breaks off; 40 complete events were read",)


def test_an_event_that_nobody_can_read_costs_no_other() -> None:
    trace = checked(CASES / "broken_event_between.json")
    assert names(trace) == ["one", "three"]
    assert trace.notes_of("warning") == ("1 unreadable event left out",)


def test_only_metadata_events() -> None:  # HolisticTraceAnalysis#337
    trace = checked(CASES / "only_metadata.json")
    assert len(trace.ops) == len(trace.launches) == len(trace.ranges) == 0
    assert (trace.processes, trace.devices) == ((), ())


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "[]", '\ufeff{"traceEvents": []}'])
def test_a_trace_without_events(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.json").write_text(text, encoding="utf-8")
    assert len(checked(tmp_path / "trace.json").ops) == 0


@pytest.mark.parametrize("cut", range(1, 240, 3))
def test_any_cut_gives_the_events_before_it_or_one_line(tmp_path: Path, cut: int) -> None:
    whole = write(tmp_path / "whole.json", kernel(1, 2), kernel(4, 2)).read_bytes()
    (tmp_path / "cut.json").write_bytes(whole[:cut])
    complete = whole[:cut].count(b"}}")
    if complete:
        assert len(checked(tmp_path / "cut.json").ops) == complete
    else:
        with pytest.raises(InputError, match=r"cut\.json: "):
            read_kineto([tmp_path / "cut.json"])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("hello", "no PyTorch profiler trace"),
        ("[1, 2]", "no PyTorch profiler trace"),
        ("{}", "no PyTorch profiler trace"),
        ('{"schema": "another/1", "rows": []}', "no PyTorch profiler trace"),
        ('{"traceEvents": null}', "no PyTorch profiler trace"),
        ('[{"a": 1}]', "no PyTorch profiler trace"),
        ('{"traceEvents": [{"ph": "X", "na', "holds no complete event"),
        ('{"a": ' + "[" * 100_000, "no PyTorch profiler trace"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_kineto([path])
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and fault in message and "; " in message and "\n" not in message


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'{"schemaVersion": 1,', True),
        (b'\n{\n  "INFO": ["long', True),
        (b'[\n  {"ph": "X"', True),
        (b"[]", True),
        (b'\xef\xbb\xbf{"traceEvents"', True),
        (b"[1, 2]", False),
        (b"SQLite format 3\0", False),
        (b"", False),
        (b"hello", False),
    ],
)
def test_detection_by_content(head: bytes, expected: bool) -> None:
    assert looks_like_kineto(head) is expected
