"""Ctrl-C and SIGTERM at each moment of a capture of the stand-in: what was recorded stays, and nothing survives."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from profkit.traces import Sweep, load_sweep
from tests.capture import places


def start(place: Path, mode: str, *options: str, **more: str) -> subprocess.Popen[str]:
    return places.start_capture(place, places.write_configuration(place, mode), *options, **more)


def reach(place: Path, words: str) -> None:
    log = place / "out" / "capture.log"
    places.wait_for(lambda: log.is_file() and words in log.read_text(), 60)


def end(process: subprocess.Popen[str], place: Path) -> Sweep:
    table, said = process.communicate(timeout=90)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "profkit: stopped"
    assert "windows recorded" in table
    return load_sweep(place / "out")


def test_before_the_server_exists_and_pressed_in_a_burst(place: Path) -> None:
    """Nobody waits for a report of nothing: ``end`` does not wait as long as for one."""
    process = start(place, "slow_start", "--conc", "1", "--set", "windows.report_s=300")
    reach(place, "starting SGLang")
    places.press(process, signal.SIGINT, times=10_000, apart_s=0.001)
    sweep = end(process, place)
    assert (sweep.runs, sweep.note) == ([], "stopped before its end")


def test_while_the_server_starts(place: Path) -> None:
    process = start(place, "slow_start", "--conc", "1")
    log = place / "out" / "server.log"
    places.wait_for(lambda: log.is_file() and "server_args" in log.read_text())
    places.press(process, signal.SIGINT)
    assert end(process, place).runs == []


def test_again_and_again_after_the_first_window(place: Path) -> None:
    """While a server stops that would be given 300 s for it, which ``end`` does not wait for."""
    process = start(place, "slow_stop", "--conc", "1,4", "--set", "windows.stop_s=300")
    reach(place, "c4: warming up")
    places.press(process, signal.SIGINT, times=5)
    sweep = end(process, place)
    assert sweep.note == "stopped before its end"
    assert [(one.concurrency, one.trace) for one in sweep.runs] == [(1, "c1"), (4, None)]
    assert sweep.runs[1].failure == "stopped before it was recorded"


def test_inside_a_window(place: Path) -> None:
    """A stream without events is of no use, and holds the whole environment: it goes even with --keep-raw."""
    process = start(place, "", "--conc", "1", "--keep-raw")
    reach(place, "forward passes")
    places.press(process, signal.SIGTERM)
    (run,) = end(process, place).runs
    assert run.tokens_per_s is not None
    if run.trace is None:
        assert run.failure in ("stopped before it was recorded", EMPTY), run.failure
    assert not (place / "out" / "raw").exists()


EMPTY = "its report holds no event: the recording was broken off, or never began"


def test_during_the_import_nothing_is_lost(place: Path) -> None:
    process = start(place, "", "--conc", "1", NSYS=places.write_nsys(place, "sleep 2"))
    reach(place, "importing c1")
    places.press(process, signal.SIGINT, times=3, apart_s=0.6)
    sweep = end(process, place)
    assert [(one.trace, one.failure) for one in sweep.runs] == [("c1", None)]
    assert sweep.note == "", "it had come to its end"
    assert "the import goes on" in (place / "out" / "capture.log").read_text()


def test_during_the_import_once_more(place: Path) -> None:
    process = start(place, "", "--conc", "1", NSYS=places.write_nsys(place, "sleep 10"))
    reach(place, "importing c1")
    places.press(process, signal.SIGINT, times=2, apart_s=2.5)
    (run,) = end(process, place).runs
    assert run.trace is None
    lost = "stopped before its report was imported; its raw report is removed"
    assert run.failure and run.failure.startswith(lost) and "--keep-raw" in run.failure
