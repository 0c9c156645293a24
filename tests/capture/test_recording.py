"""When counters are sampled: from before a window is opened to its last step, whatever a recorder does after it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from profkit.capture import recording
from profkit.capture.importing import Window
from profkit.capture.load import Load
from profkit.capture.recording import record_window
from profkit.capture.secrets import Scrubber
from profkit.capture.server import Server
from profkit.capture.server_log import ServerLog
from profkit.capture.settings import Settings
from profkit.capture.step_clock import GAP, Gaps, latest_context
from profkit.capture.window_ends import ends_since, remove_ends
from profkit.sglang.step_clock import StepClock
from profkit.sglang.window_ends import note_end

from .test_step_clock import write_ring

STEP_S, DUMP_S = 0.02, 0.6
Scene = Callable[..., tuple[float, Gaps]]


class Counters:
    """Notes when it began to sample, and when it was told to sample no more."""

    interval_ns, clock_error_ns, began_ns, ended = 50_000, None, 0, 0.0

    def __init__(self) -> None:
        self.rows = [(1, 0, "pm_sm_active_percent", 1.0)]
        self.remarks = ["one", "another"]

    def prepare(self, scratch: Path) -> None: ...

    def __enter__(self) -> Counters:
        time.sleep(0.05)
        self.began_ns = time.time_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = time.monotonic()


class Endpoints:
    """A server of one rank: when a window is asked for it runs steps, and ends it in the given order."""

    def __init__(self, order: list[str], folder: Path, voice: int) -> None:
        self.order, self.folder, self.voice = order, folder, voice
        self.last_step = 0.0
        self.thread = threading.Thread(target=self.run)

    def start_profile(self, body: dict[str, object], timeout_s: float) -> None:
        self.say("Profiling starts")
        self.thread.start()

    def say(self, text: str) -> None:
        os.write(self.voice, f"[TP0] {text}\n".encode())

    def run(self) -> None:
        clock = StepClock(self.folder / "steps-1.bin")
        time.sleep(0.2)  # until capture has read the line before
        for _ in range(6):
            clock.note(time.monotonic_ns(), 1, True, None)
            time.sleep(STEP_S)
        self.last_step = time.monotonic()
        for what in self.order:
            if what == "dump":
                time.sleep(DUMP_S)
                clock.note(time.monotonic_ns(), 1, True, None)  # another rank may go on meanwhile
                clock.note(time.monotonic_ns(), 1, True, None)
            elif what == "note":
                note_end(self.folder)
            else:
                self.say(what)
        os.close(self.voice)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    threads = []

    def play(order: list[str], gap_s: float = 0.0) -> tuple[float, Gaps]:
        """How long after the last step the counters ended, and the recorded gaps."""
        reads, writes = os.pipe()
        log = ServerLog(tmp_path / "server.log", Scrubber({}))
        log.follow(os.fdopen(reads, "rb"))
        server = Server(["true"], [], {}, 1, tmp_path, log)
        endpoints, counters = Endpoints(order, tmp_path, writes), Counters()
        threads.append(endpoints.thread)
        server.endpoints = endpoints  # type: ignore[assignment]
        load: Any = SimpleNamespace(
            accept_length=lambda: 1.0, room=lambda: 1000, progress=lambda: 0.47, expect_tokens=lambda: None
        )
        backend = SimpleNamespace(window=lambda *_: {}, importer=None)
        plan = SimpleNamespace(settings=Settings(name="x"), block_size=None)
        said: list[str] = []
        context: Any = SimpleNamespace(
            plan=plan, counters=counters, windows=[], backend=backend, plugin_folder=tmp_path, say=lambda text: None,
            record=SimpleNamespace(remark=lambda text, say: said.append(text)),
        )  # fmt: skip
        window = Window(1, True, "c1")
        if gap_s:
            window.gaps_before = {1: np.array([(gap_s * 1e9, 0.0)] * 3, GAP)}
        record_window(context, server, load, window, tmp_path, lambda: None, lambda: None)
        assert (window.counter_interval_ns, window.counters, said) == (50_000, counters.rows, ["one", "another"])
        assert counters.began_ns <= window.opened_ns, "sampling has begun before the window is opened"
        return counters.ended - endpoints.last_step, window.gaps_recorded

    yield play
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    "order",
    [
        ["note", "dump", "Stop profiling...", "Profiling done"],
        ["Stop profiling...", "dump", "Profiling done"],
        ["Stop profiling-DECODE...", "dump", "Profiling done"],
    ],
    ids=["cupti", "nsys and torch", "a stage"],
)
def test_counters_end_before_the_recorder_writes(scene: Scene, order: list[str]) -> None:
    after, gaps = scene(order)
    assert 0 <= after < DUMP_S / 2
    assert [len(own) for own in gaps.values()] == [4], "five gaps without the first; none from after the end"


def test_counters_go_on_while_the_gpu_works_on_what_the_host_has_ended(scene: Scene) -> None:
    """A host that is a step of 100 ms ahead ends its last step 100 ms before the GPU does."""
    after, _ = scene(["note", "dump", "Stop profiling...", "Profiling done"], gap_s=0.1)
    assert 0.15 <= after < DUMP_S


def test_a_server_that_notes_no_end_is_told_by_its_log(scene: Scene) -> None:
    after, _ = scene(["dump", "Stop profiling...", "Profiling done"])
    assert DUMP_S <= after < 2 * DUMP_S


def test_ends_of_other_windows_are_older(tmp_path: Path) -> None:
    note_end(tmp_path)
    between = time.monotonic_ns()
    assert ends_since(tmp_path, between) == []
    note_end(tmp_path)
    (end,) = ends_since(tmp_path, between)
    assert between <= end <= time.monotonic_ns()
    with next(tmp_path.glob("ends-*.txt")).open("a") as file:
        file.write("99999999999999999")
    (tmp_path / "ends-2.txt").write_text("\nno number\n")
    assert ends_since(tmp_path, between) == [end], "a line is complete with its end"
    remove_ends(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_nothing_is_noted(tmp_path: Path) -> None:
    note_end(None)
    note_end(tmp_path / "gone")
    assert ends_since(tmp_path, 0) == []


class Clock:
    """Stands in for the module ``time``: sleeping is all that makes it go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Spot:
    """A place for 20 steps whose contexts stay ``off`` typical ones, of a load with room for ``tokens``."""

    steps = 20

    def __init__(self, off: float, tokens: int = 10**6) -> None:
        self.off, self.load = lambda: off, SimpleNamespace(room=lambda: tokens, accept_length=lambda: 3.5)


def waited(monkeypatch: pytest.MonkeyPatch, spot: Spot) -> float:
    clock = Clock()
    monkeypatch.setattr(recording, "time", clock)
    recording._wait_for_room(cast(recording._Place, spot), 8, lambda: None)
    return clock.now


@pytest.mark.parametrize(("off", "until_s"), [(0.0, 0), (0.009, 0), (0.02, 12), (0.03, 12), (0.08, 30), (0.4, 30)])
def test_a_window_waits_for_typical_contexts_and_then_for_less(
    monkeypatch: pytest.MonkeyPatch, off: float, until_s: float
) -> None:
    assert waited(monkeypatch, Spot(off)) == pytest.approx(until_s, abs=0.1)


def test_a_window_waits_no_longer_for_room_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, Spot(0.0, tokens=5)) == pytest.approx(recording.ROOM_WAIT_S, abs=0.1)


def place_at(tmp_path: Path, progress: float, typical: int | None) -> recording._Place:
    """Of 4 requests with 1,000 tokens out, for a window of 20 steps at accept length 3.5: half of it is 0.035."""
    plan = SimpleNamespace(settings=SimpleNamespace(load=SimpleNamespace(output_len=1000)))
    context = SimpleNamespace(plan=plan, plugin_folder=tmp_path)
    load = SimpleNamespace(progress=lambda: progress, accept_length=lambda: 3.5)
    return recording._Place(cast(Any, context), cast(Load, load), 4, 20, typical)


def test_a_window_begins_half_of_itself_before_typical_contexts(tmp_path: Path) -> None:
    """The engine has counted 2,460 tokens, typical are 2,600, and until the middle of the window come 140 more."""
    assert place_at(tmp_path, 0.465, None).off() == pytest.approx(0.0)
    assert place_at(tmp_path, 0.5, None).off() == pytest.approx(0.035)
    write_ring(tmp_path, 7, (1, 4, 1 + 2 * 2400), (2, 4, 1 + 2 * 2460))
    assert place_at(tmp_path, 0.1, 2600).off() == pytest.approx(0.0)
    assert place_at(tmp_path, 0.1, 2700).off() == pytest.approx(0.025)
    assert place_at(tmp_path, 0.5, None).off() == pytest.approx(0.035)
    assert latest_context(tmp_path, 3) is None


def test_the_latest_context_is_that_of_a_decode_step(tmp_path: Path) -> None:
    assert latest_context(tmp_path, 4) is None
    write_ring(tmp_path, 7, *((at, 4, 1 + 2 * 10 * at) for at in range(1, 200)), capacity=256)
    assert latest_context(tmp_path, 4) == 1990
    write_ring(tmp_path, 8, (1, 4, 1 + 2 * 3000), (2, 4, 0))
    assert latest_context(tmp_path, 4) == 1990
