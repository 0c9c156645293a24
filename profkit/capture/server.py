"""The life of a server: start, wait until it is healthy, notice when it dies, stop it and all that belongs to it."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from profkit.traces import ProfkitError

from .endpoints import Endpoints
from .processes import MARKER, ProcessTree, children_of, is_alive, send
from .secrets import Scrubber
from .server_log import ServerLog

POLL_S = 0.25
WATCH_EVERY_S = 2.0
SHOW_EVERY_S = 10.0
WITH_PID = ("/bin/sh", "-c", 'echo $$ >"$0"; exec "$@"')
"""Runs a command and leaves its process id in a file: under a recorder it is not our own child."""


class ServerError(ProfkitError):
    """The server died, hung or never came up. ``phase`` says when, ``log`` holds its last lines."""

    def __init__(self, phase: str, fault: str, exit_status: int | None, log: Sequence[str]) -> None:
        super().__init__(f"{phase}: {fault}")
        self.phase = phase
        self.fault = fault
        self.server_exit_status = exit_status
        self.log = list(log)


class Server:
    """A server process. ``wrapper`` is the recorder's command line, which runs the server as its child."""

    def __init__(
        self, command: Sequence[str], wrapper: Sequence[str], environment: Mapping[str, str], port: int, scratch: Path
    ) -> None:
        self.endpoints = Endpoints(f"http://127.0.0.1:{port}")
        self.phase = "start"
        self.log: ServerLog
        self._pid_file = scratch / "server.pid"
        self._command = [*wrapper, *WITH_PID, str(self._pid_file), *command]
        self._environment = dict(environment)
        self._tree = ProcessTree()
        self._popen: subprocess.Popen[bytes]
        self._watched = 0.0

    def start(self, log_file: Path, scrub: Scrubber) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches only us."""
        self._popen = subprocess.Popen(
            self._command,
            env={**self._environment, MARKER: self._tree.marker},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._tree.add(self._popen.pid)
        if self._popen.stdout is None:
            raise ServerError(self.phase, "its output cannot be read", None, [])
        self.log = ServerLog(self._popen.stdout, log_file, scrub)

    def wait_until_healthy(self, timeout_s: float, say: Callable[[str], None]) -> None:
        """Wait for ``/health``, telling every few seconds what the server last said."""
        began = shown = time.monotonic()
        while not self.endpoints.is_healthy():
            self.check()
            now = time.monotonic()
            if now - began > timeout_s:
                fault = f"not healthy after {timeout_s:.0f} s; raise windows.start_s, or see the last lines of its log"
                raise ServerError(self.phase, fault, None, self.log.tail())
            if now - shown > SHOW_EVERY_S:
                shown = now
                said = self.log.tail(1)
                say(f"waiting for the server, {now - began:.0f} s: {said[0][:120] if said else 'no output yet'}")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raise ``ServerError`` if the server has died."""
        if time.monotonic() - self._watched > WATCH_EVERY_S:
            self._tree.watch()
            self._watched = time.monotonic()
        if self._popen.poll() is None and not self._main_is_dead():
            return
        status = self._exit_status()
        self.log.close()
        cause = self.log.cause()
        fault = f"the server exited ({_meaning(status)}){f': {cause}' if cause else ''}"
        raise ServerError(self.phase, fault, status, self.log.tail())

    def fail(self, fault: str) -> ServerError:
        """The error for a server that lives but does not do its work."""
        return ServerError(self.phase, fault, None, self.log.tail())

    def died_within(self, timeout_s: float) -> None:
        """Raise ``ServerError`` as soon as the server dies; return if it does not within the time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.check()
            time.sleep(POLL_S)

    def wait_for(self, pattern: re.Pattern[str], since: int, timeout_s: float, check: Callable[[], None]) -> bool:
        """Wait until a line of the log matches; ``False`` if none does within the time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.log.find(pattern, since):
                return True
            self.check()
            check()
            time.sleep(0.05)
        return False

    def wait_while_runs(self, program: str, timeout_s: float) -> None:
        """Wait until no process of the tree is ``program`` any more, or the time is up."""
        deadline = time.monotonic() + timeout_s
        while self._tree.named(program) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def stop(self, patience_s: float, recorder_s: float) -> list[int]:
        """Stop the server gently, give its recorder time to write, then end whatever is left.

        Returns the pids that could not be ended; the list is empty unless the kernel refuses.
        """
        try:
            self._ask_main_to_stop(patience_s)
            self._wait_for_recorder(recorder_s)
        finally:
            survivors = self._tree.end(2.0)
            self.endpoints.close()
            self.log.close()
        return survivors

    def kill(self) -> list[int]:
        """End everything at once; returns the pids that could not be ended."""
        return self._tree.end(0.0)

    def _main(self) -> psutil.Process | None:
        try:
            return psutil.Process(int(self._pid_file.read_text()))
        except (OSError, ValueError, psutil.NoSuchProcess):
            return None

    def _main_is_dead(self) -> bool:
        """Whether the server has started and is gone, though its recorder still runs."""
        if not self._pid_file.is_file() or not self._pid_file.read_text().strip():
            return False
        main = self._main()
        return main is None or not is_alive(main)

    def _exit_status(self) -> int | None:
        """The exit status; a recorder passes on that of its target once it has written its report."""
        try:
            return self._popen.wait(timeout=30)
        except subprocess.TimeoutExpired:
            return None

    def _ask_main_to_stop(self, patience_s: float) -> None:
        main = self._main()
        if main is None:
            return
        processes = [main, *children_of(main)]
        send([main], signal.SIGTERM)
        _, lingering = psutil.wait_procs(processes, timeout=patience_s)
        send(lingering, signal.SIGKILL)
        psutil.wait_procs(lingering, timeout=patience_s)

    def _wait_for_recorder(self, recorder_s: float) -> None:
        try:
            self._popen.wait(timeout=recorder_s)
        except subprocess.TimeoutExpired:
            return


def _meaning(status: int | None) -> str:
    if status is None:
        return "exit status unknown"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    if status > 128 and status - 128 in {one.value for one in signal.Signals}:
        return f"exit status {status}, {signal.Signals(status - 128).name}"
    return f"exit status {status}"
