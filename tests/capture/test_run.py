"""Whole captures of the stand-in under real Nsight Systems: complete or failing cleanly, and nothing survives."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from profkit.traces import Sweep, load_sweep, open_recordings
from tests.capture import places

SECRET, WORD = "sk-planted-4f1c9a", "planted-word-77"
SOON = ("--set", "windows.hang_s=3")
PLANTED = {"PLANTED_API_KEY": SECRET, "PLANTED_WORD": WORD, "https_proxy": f"http://me:{SECRET}@127.0.0.1:9"}


def run(place: Path, mode: str, *options: str, **more: str) -> tuple[int, str, Sweep]:
    configuration = places.write_configuration(place, mode, ranks=int(more.pop("ranks", "1")))
    process = places.start_capture(place, configuration, *options, **more)
    _, said = process.communicate(timeout=240)
    return process.returncode, said, load_sweep(place / "out")


def steps_of(folder: Path) -> dict[int | None, list[str]]:
    """The texts of the recorded steps by concurrency."""
    traces = [opened.trace for opened in open_recordings(folder)]
    return {
        trace.run.concurrency: [
            text for text in (trace.strings[i] for i in trace.ranges.text) if text.startswith("step:")
        ]
        for trace in traces
    }


def test_two_ranks_at_two_concurrencies(place: Path) -> None:
    status, said, sweep = run(
        place, "slow_start", "--conc", "1,4", "--set", "windows.warm_up_s=6", ranks="2", **PLANTED
    )
    assert status == 0, said
    assert [(one.concurrency, one.trace, one.failure) for one in sweep.runs] == [(1, "c1", None), (4, "c4", None)]
    for one in sweep.runs:
        assert one.accept_len == pytest.approx(3.48, abs=0.1)
        assert one.tokens_per_s_before and one.tokens_per_s_after and one.tokens_per_s_recorded
        assert one.tokens_per_s == pytest.approx((one.tokens_per_s_before + one.tokens_per_s_after) / 2)
    assert sweep.runs[1].tokens_per_s > 2 * sweep.runs[0].tokens_per_s  # type: ignore[operator]
    assert sweep.note == ""
    assert sweep.settings["plugin"] == [[]]
    most = re.findall(r"at most (\d+) requests in flight", (place / "out" / "server.log").read_text())
    assert most == ["1", "4"], "exactly as many as asked for at any moment"
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
    first, other = sweep.runs
    assert first.tokens_per_s is not None
    assert first.failure is not None
    assert (other.concurrency, other.failure) == (4, "not tried: the server had ended")
    assert sweep.note == "the server ended early (record c1), not tried: c4"


def test_a_crash_with_graphs_is_kept_and_the_run_goes_on_without(place: Path) -> None:
    status, _, sweep = run(place, "graph_crash", "--conc", "1", "--graphs", "both")
    assert status == 0
    (failure,) = sweep.failures
    assert failure.graphs is True
    assert "'NoneType' object has no attribute 'replay'" in failure.fault
    assert [(one.graphs, one.trace) for one in sweep.runs] == [(True, None), (False, "c1-eager")]


def test_a_server_that_hangs(place: Path) -> None:
    status, said, sweep = run(place, "hang", "--conc", "1", "--set", "windows.warm_up_s=8", *SOON)
    assert status == 2
    assert "no token for 3 s: the server hangs; its last lines are in" in said
    assert sweep.failures[0].phase.endswith("c1")


def test_a_server_that_refuses_to_record(place: Path) -> None:
    status, _, sweep = run(place, "refuse_window", "--conc", "1")
    assert status == 3
    assert sweep.runs[0].failure == "/start_profile: the server answered 500; see its log"
    assert sweep.runs[0].tokens_per_s is not None


def test_a_refused_and_a_late_window_do_not_confuse_the_others(place: Path) -> None:
    """The first window is refused, the second recorded though its answer never came in time."""
    options = ("--conc", "1,4,2", "--set", "windows.record_s=2")
    status, said, sweep = run(place, "refuse_first,late_second_answer", *options)
    assert status == 0, said
    assert [(one.concurrency, one.trace) for one in sweep.runs] == [(1, None), (4, "c4"), (2, "c2")]
    assert sweep.runs[0].failure == "/start_profile: the server answered 500; see its log"
    assert steps_of(place / "out") == {4: ["step:decode bs=4"] * 4, 2: ["step:decode bs=2"] * 4}


def test_a_window_that_may_still_open_ends_the_pass(place: Path) -> None:
    status, _, sweep = run(place, "late", "--conc", "1,4", "--set", "windows.record_s=1")
    assert status == 2
    assert "whether it still opens a window is unknown, so no more are recorded" in sweep.failures[0].fault
    assert [one.failure for one in sweep.runs][1] == "not tried: the server had ended"


def test_a_recorder_that_holds_up_the_server(place: Path) -> None:
    """For longer than `hang_s`; and the plugin's faults, also those after the start, reach the user."""
    status, said, sweep = run(place, "stall,hook_fault,one_rank", "--conc", "1", *SOON, ranks="2")
    assert status == 0, said
    assert (sweep.runs[0].trace, sweep.failures) == ("c1", [])
    faults = [
        "a hook failed at batch: KeyError: 'x'",
        "no counters: not permitted",
        "the plugin ran in 1 of 2 ranks: the others' steps have no names",
    ]
    assert sweep.settings["plugin"] == [faults]
    assert all(said.count(fault) == 1 for fault in faults)


def test_a_report_that_breaks_its_reader_costs_no_other_window(place: Path) -> None:
    nsys = places.write_nsys(place, 'case "$8" in *report.2.*) echo "SQLite format 3 no more" >"$7"; exit 0;; esac')
    status, said, sweep = run(place, "", "--conc", "1,4", NSYS=nsys)
    assert status == 0, said
    assert [one.trace for one in sweep.runs] == ["c1", None]
    failure = sweep.runs[1].failure or ""
    assert re.match(r"its report could not be imported \(DatabaseError: .*; its raw report is removed", failure), (
        failure
    )
    assert "run again" in failure or "record again with --keep-raw" in failure
    assert not (place / "out" / "raw").exists()


def test_both_passes_with_prompts_from_a_file(place: Path) -> None:
    """Of a server that does not stop when it is asked to."""
    prompts = place / "prompts.jsonl"
    prompts.write_text('{"text": "tell me of the sea"}\n{"text": "and of the stars"}\n')
    options = ("--conc", "1", "--graphs", "both", "--set", f"load.prompts={prompts}")
    status, said, sweep = run(place, "slow_stop", *options)
    assert status == 0, said
    assert [(one.graphs, one.trace, one.failure) for one in sweep.runs] == [
        (True, "c1", None),
        (False, "c1-eager", None),
    ]
    assert sweep.settings["plugin"] == [[], []]
    for log in ("server.log", "server-eager.log"):
        asked = set(re.findall(r"prompt: (.*)", (place / "out" / log).read_text()))
        assert asked <= {"tell me of the sea", "and of the stars"}
        assert asked


def test_a_server_that_never_comes_up(place: Path) -> None:
    status, _, sweep = run(place, "never_ready", "--conc", "1", "--set", "windows.start_s=3")
    assert status == 2
    assert sweep.failures[0].fault == "not healthy after 3 s; raise windows.start_s if it needs longer"
    assert any("server_args" in line for line in sweep.failures[0].log)


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
