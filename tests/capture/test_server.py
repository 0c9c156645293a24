"""A server's start, its log, the load on it and the record, where they fail without a server."""

from __future__ import annotations

import io
import json
import os
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from profkit.capture import load_settings, make_plan
from profkit.capture.endpoints import Endpoints, NoAnswerError, RefusedError
from profkit.capture.load import Load, LoadError
from profkit.capture.plan import Plan
from profkit.capture.run import _wait_for_port, environment_of
from profkit.capture.secrets import Scrubber
from profkit.capture.server import Server, ServerError
from profkit.capture.server_log import LOCKED, ServerLog
from profkit.capture.settings import LoadSettings
from profkit.capture.surroundings import log_beside, temporary_places
from profkit.traces import OutputError, Sweep, load_sweep, save_sweep
from tests.capture import places


def server_in(folder: Path, command: str) -> Server:
    log = ServerLog(folder / "server.log", Scrubber({}))
    return Server([command], [command], dict(os.environ), places.free_port(), folder, log)


def test_a_server_that_cannot_be_run(tmp_path: Path) -> None:
    server = server_in(tmp_path, "/nowhere/nsys")
    with pytest.raises(ServerError, match=r"start: /nowhere/nsys cannot be run.*No such file"):
        server.start()
    assert server.stop(1, 1) == []


def test_a_recorder_that_never_starts_the_server_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "recorder").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "recorder").chmod(0o755)
    server = server_in(tmp_path, str(tmp_path / "recorder"))
    server.start()
    began = time.monotonic()
    assert server.stop(60, 60) == []
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("said", ["Agent launcher failed.", "Agent launcher failed.\nready", "OSError: no space"])
def test_a_recorder_that_a_killed_one_locks_out(tmp_path: Path, said: str) -> None:
    """Nsight Systems 2022.4 says just this where one that was killed within its first 0.1 s left its lock."""
    log = ServerLog(tmp_path / "server.log", Scrubber({}))
    log.follow(io.BytesIO(f"{said}\n\n".encode()))
    log.close()
    expected = {"Agent launcher failed.": LOCKED, "OSError: no space": "OSError: no space"}
    assert log.cause() == expected.get(said)
    assert "remove /dev/shm/NSys-*" in LOCKED


def test_a_port_that_another_program_took_between_two_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.capture.run.PORT_WAIT_S", 0.3)
    server = server_in(tmp_path, "sh")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ServerError, match=r"start: port \d+ cannot be used"):
            _wait_for_port(server, taken.getsockname()[1])
    _wait_for_port(server, places.free_port())


def test_a_log_on_a_full_disk_goes_on_reading(tmp_path: Path) -> None:
    log = ServerLog(Path("/dev/full"), Scrubber({}))
    log.follow(io.BytesIO(b"one\ntwo\nthree\n"))  # type: ignore[arg-type]
    log.close()
    assert log.tail() == ["one", "profkit: full cannot be written any more (No space left on device)", "two", "three"]


def test_what_is_said_never_raises(tmp_path: Path) -> None:
    """The server has to be stopped though the terminal is gone and the disk is full."""
    said: list[str] = []

    def broken(line: str) -> None:
        said.append(line)
        raise BrokenPipeError(32, "Broken pipe")

    with log_beside(tmp_path / "capture.log", broken, Scrubber({})) as tell:
        tell("one")
        tell("two")
    assert len(said) == 1
    assert [line.split()[-1] for line in (tmp_path / "capture.log").read_text().splitlines()] == ["one", "two"]
    with log_beside(Path("/dev/full"), said.append, Scrubber({})) as tell:
        tell("three")
        tell("four")
    assert said[1].endswith("three\nfull cannot be written any more (No space left on device)")
    assert said[2].endswith("four")


def test_a_record_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_sweep(Sweep(schema="profkit.sweep/1", config="first", runs=[]), tmp_path)
    part = tmp_path / "sweep.part"
    part.symlink_to("/dev/full")
    with pytest.raises(OutputError, match=r"sweep.json: cannot write the record \(No space left on device\)"):
        save_sweep(Sweep(schema="profkit.sweep/1", config="second", runs=[]), tmp_path)
    assert load_sweep(tmp_path).config == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["sweep.json"]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.syspath_prepend(str(places.write_package(tmp_path)))
    own = ["env.PYTHONPATH=/theirs", "env.SGLANG_PLUGINS=other", "env.PROFKIT_SGLANG=0", "env.TMPDIR=/theirs"]
    return make_plan(load_settings(str(places.write_configuration(tmp_path)), own), [1], tmp_path / "out")


def test_variables_of_the_configuration_are_added_to(plan: Plan, tmp_path: Path) -> None:
    added = environment_of(plan, "nsys", tmp_path, tmp_path / "plugin")
    assert added["PYTHONPATH"].split(os.pathsep)[-1] == "/theirs"
    assert str(places.ROOT) in added["PYTHONPATH"]
    assert (added["SGLANG_PLUGINS"], added["PROFKIT_SGLANG"]) == ("other,profkit", "1")
    assert added["PROFKIT_RECORDER"] == "nsys"
    assert added["NSYS_NVTX_PROFILER_REGISTER_ONLY"] == "0"
    assert temporary_places(tmp_path, {**added, "TORCHINDUCTOR_CACHE_DIR": "/kept"}) == {
        "TMPDIR": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": "/kept"
    }  # fmt: skip


class Answers(BaseHTTPRequestHandler):
    """Refuses to start a profile, and never says whether it stopped one."""

    def log_message(self, *_: object) -> None:
        return

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/stop_profile":
            time.sleep(1.0)
        body = json.dumps({"meta_info": {"completion_tokens": 1, "finish_reason": {"type": "length"}}})
        self.send_response(500 if "profile" in self.path else 200)
        self.end_headers()
        self.wfile.write(f"data: {body}\n\n".encode())


@pytest.fixture
def endpoints():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield Endpoints(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_a_refusal_is_told_from_no_answer(endpoints: Endpoints) -> None:
    with pytest.raises(RefusedError, match="/start_profile: the server answered 500"):
        endpoints.start_profile({}, 5)
    with pytest.raises(NoAnswerError, match=r"/stop_profile: no answer \(ReadTimeout\)"):
        endpoints.stop_profile(0.2)
    endpoints.close()


def broken_load(endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch, after: int) -> Load:
    """A load whose prompts raise something that nobody expects."""

    def prompts(_: LoadSettings):
        for _ in range(after):
            yield {"text": "x"}
        raise KeyError("a bug")

    monkeypatch.setattr("profkit.capture.load.prompts", prompts)
    return Load(endpoints, 2, LoadSettings(output_len=1))


def test_any_error_in_the_load_is_its_failure(endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    with broken_load(endpoints, monkeypatch, 20) as load:
        places.wait_for(lambda: not load._thread.is_alive(), 10)
        with pytest.raises(LoadError, match="the load broke down: KeyError: 'a bug'"):
            load.check(60)
    endpoints.close()


def test_a_load_that_ends_while_it_is_stopped(endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop is closed by then, and cannot be told to end."""
    load = broken_load(endpoints, monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt), load:
        places.wait_for(lambda: not load._thread.is_alive(), 10)
        raise KeyboardInterrupt
    endpoints.close()
