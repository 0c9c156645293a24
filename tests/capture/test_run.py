"""Whole captures of the stand-in under real Nsight Systems: complete or failing cleanly, and nothing survives."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from profkit.traces import Sweep, load_sweep, open_recordings
from tests.capture import places

SECRET, WORD = "sk-planted-4f1c9a", "planted-word-77"
PLANTED = {"PLANTED_API_KEY": SECRET, "PLANTED_WORD": WORD, "https_proxy": f"http://me:{SECRET}@127.0.0.1:9"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if shutil.which("nsys") is None:
        reason = "nsys is not installed"
        pytest.fail(reason) if os.environ.get("PROFKIT_REQUIRE_ALL") == "1" else pytest.skip(reason)
    places.write_package(tmp_path)
    with tempfile.TemporaryDirectory(prefix="pk") as scratch:
        monkeypatch.setenv("TMPDIR", scratch)
        yield tmp_path
        assert places.survivors(tmp_path) == []
        assert list(Path(scratch).iterdir()) == [], "raw recordings hold the environment and have to go"


def run(place: Path, mode: str, *options: str, **more: str) -> tuple[int, str, Sweep]:
    configuration = places.write_configuration(place, mode, ranks=int(more.pop("ranks", "1")))
    process = places.start_capture(place, configuration, *options, **more)
    _, said = process.communicate(timeout=240)
    return process.returncode, said, load_sweep(place / "out")


def test_two_ranks_at_two_concurrencies(place: Path) -> None:
    status, said, sweep = run(place, "slow_start", "--conc", "1,4", ranks="2", **PLANTED)
    assert status == 0, said
    assert [(one.concurrency, one.trace, one.failure) for one in sweep.runs] == [(1, "c1", None), (4, "c4", None)]
    for one in sweep.runs:
        assert one.accept_len == pytest.approx(3.48, abs=0.1)
        assert one.tokens_per_s and one.tokens_per_s_recorded
    assert sweep.runs[1].tokens_per_s > 2 * sweep.runs[0].tokens_per_s  # type: ignore[operator]
    assert sweep.note == ""
    assert sweep.settings["plugin"] == []
    for opened in open_recordings(place / "out"):
        trace = opened.trace
        trace.check()
        assert sorted(process.rank for process in trace.processes) == [0, 1]  # type: ignore[type-var]
        texts = [trace.strings[i] for i in trace.ranges.text]
        steps = [text for text in texts if text.startswith("step:")]
        assert steps == [f"step:decode bs={trace.run.concurrency}"] * 8, "four steps on each of two ranks"
        assert texts.count("draft") == texts.count("kv_append") == 8
        (trimmed,) = trace.notes_of("trimmed")
        assert re.fullmatch(r"4 of 1\d recorded steps", trimmed)
    assert_no_secret(place / "out")


def assert_no_secret(folder: Path) -> None:
    """Neither the value of a secret, nor the environment as such, in any file of the sweep."""
    log = (folder / "server.log").read_text()
    assert f"environment says {WORD}" in log, "the server saw its environment, apart from secrets"
    for file in (path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        assert SECRET.encode() not in content, file
        assert file.name == "server.log" or WORD.encode() not in content, file
    for opened in open_recordings(folder):
        assert not any(SECRET in text or WORD in text or "PATH=" in text for text in opened.trace.strings)


def test_crash_while_starting(place: Path) -> None:
    status, said, sweep = run(place, "crash_start", "--conc", "1")
    assert status == 2
    assert "start: the server exited (exit status 1): OutOfMemoryError" in said.replace("\n", " ")
    (failure,) = sweep.failures
    assert (failure.phase, failure.exit_status) == ("start", 1)
    assert any("CUDA out of memory" in line for line in failure.log)


def test_crash_in_a_window_keeps_what_came_before(place: Path) -> None:
    status, _, sweep = run(place, "crash_window", "--conc", "1,4")
    assert status == 2
    (failure,) = sweep.failures
    assert failure.phase == "record c1"
    assert "illegal memory access" in failure.fault
    (first,) = sweep.runs
    assert first.tokens_per_s is not None
    assert first.failure is not None


def test_a_crash_with_graphs_is_kept_and_the_run_goes_on_without(place: Path) -> None:
    status, _, sweep = run(place, "graph_crash", "--conc", "1", "--graphs", "both")
    assert status == 0
    (failure,) = sweep.failures
    assert failure.graphs is True
    assert "'NoneType' object has no attribute 'replay'" in failure.fault
    assert [(one.graphs, one.trace) for one in sweep.runs] == [(True, None), (False, "c1-eager")]


def test_a_server_that_hangs(place: Path) -> None:
    status, said, sweep = run(place, "hang", "--conc", "1")
    assert status == 2
    assert "no token for 3 s: the server hangs" in said
    assert sweep.failures[0].phase.endswith("c1")


def test_a_server_that_does_not_stop(place: Path) -> None:
    status, said, sweep = run(place, "slow_stop", "--conc", "1")
    assert status == 0, said
    assert sweep.runs[0].trace == "c1"


def test_a_server_that_refuses_to_record(place: Path) -> None:
    status, _, sweep = run(place, "refuse_window", "--conc", "1")
    assert status == 3
    assert sweep.runs[0].failure == "/start_profile: the server answered 500; see its log"
    assert sweep.runs[0].tokens_per_s is not None


def test_port_taken(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        configuration = places.write_configuration(place, port=taken.getsockname()[1])
        process = places.start_capture(place, configuration)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "cannot be used" in said
    assert "--set server.port=30001" in said
    assert not (place / "out").exists()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_after_the_first_window(place: Path, sent: signal.Signals) -> None:
    process = places.start_capture(place, places.write_configuration(place), "--conc", "1,4")
    log = place / "out" / "capture.log"
    places.wait_for(lambda: log.is_file() and "c4: warming up" in log.read_text())
    process.send_signal(sent)
    _, said = process.communicate(timeout=90)
    assert process.returncode == 130, said
    sweep = load_sweep(place / "out")
    assert sweep.note == "stopped before its end"
    assert [(one.concurrency, one.trace) for one in sweep.runs] == [(1, "c1"), (4, None)]


def test_interrupted_while_the_server_starts(place: Path) -> None:
    process = places.start_capture(place, places.write_configuration(place, "slow_start"), "--conc", "1")
    log = place / "out" / "server.log"
    places.wait_for(lambda: log.is_file() and "server_args" in log.read_text())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert load_sweep(place / "out").runs == []
