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
from .processes import MARKER, ProcessTree, children_of, is_alive, send, still_alive
from .server_log import ServerLog

POLL_S = 0.25
WATCH_EVERY_S = 2.0
SHOW_EVERY_S = 10.0
PID_WAIT_S = 3.0
EXIT_WAIT_S = 30.0
CHILDREN_WAIT_S = 2.0
"""For what the main process has left behind when it is gone; it ends its workers before itself."""

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
        self,
        command: Sequence[str],
        wrapper: Sequence[str],
        environment: Mapping[str, str],
        port: int,
        scratch: Path,
        log: ServerLog,
    ) -> None:
        self.endpoints = Endpoints(f"http://127.0.0.1:{port}")
        self.phase = "start"
        self.log = log
        self._pid_file = scratch / "server.pid"
        self._command = [*wrapper, *WITH_PID, str(self._pid_file), *command]
        self._environment = dict(environment)
        self._tree = ProcessTree()
        self._popen: subprocess.Popen[bytes] | None = None
        self._watched = 0.0

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches only us."""
        try:
            self._popen = subprocess.Popen(
                self._command,
                env={**self._environment, MARKER: self._tree.marker},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise self.fail(f"{self._command[0]} cannot be run ({error.strerror})") from error
        self._tree.add(self._popen.pid)
        if self._popen.stdout is not None:
            self.log.follow(self._popen.stdout)

    def wait_until_healthy(self, timeout_s: float, say: Callable[[str], None]) -> None:
        """Wait for ``/health``, telling every few seconds what the server last said."""
        began = shown = time.monotonic()
        while not self.endpoints.is_healthy():
            self.check()
            now = time.monotonic()
            if now - began > timeout_s:
                raise self.fail(f"not healthy after {timeout_s:.0f} s; raise windows.start_s if it needs longer")
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
        if not self._has_ended() and not self._main_is_dead():
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
        return self.wait_until(lambda: self.log.find(pattern, since) is not None, timeout_s, check)

    def wait_until(self, is_so: Callable[[], object], timeout_s: float, check: Callable[[], None]) -> bool:
        """Wait until ``is_so`` gives something true; ``False`` if that does not come within the time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if is_so():
                return True
            check()
            time.sleep(0.05)
        return False

    def wait_while_runs(self, program: str, timeout_s: float) -> None:
        """Wait until no process of the tree is ``program`` any more, or the time is up."""
        deadline = time.monotonic() + timeout_s
        while self._tree.named(program) and time.monotonic() < deadline:
            self.check()
            time.sleep(POLL_S)

    def stop(self, patience_s: float, recorder_s: float, pressed: Callable[[], int] = lambda: 0) -> list[int]:
        """Stop the server gently, give its recorder time to write, then end whatever is left.

        ``pressed`` counts the signals that have come since: the first ends the patience with the server, the second
        the one with its recorder. Returns the pids that could not be ended; none unless the kernel refuses.
        """
        try:
            if self._ask_main_to_stop(patience_s, lambda: pressed() > 0):
                self._wait_for_end(recorder_s, lambda: pressed() > 1)
        finally:
            survivors = self._tree.end(2.0)
            self._wait_for_end(2.0, lambda: False)
            self.endpoints.close()
            self.log.close()
        return survivors

    def _main(self) -> psutil.Process | None:
        try:
            return psutil.Process(int(self._pid_file.read_text()))
        except (OSError, ValueError, psutil.NoSuchProcess):
            return None

    def _main_is_dead(self) -> bool:
        """Whether the server has started and is gone, though its recorder still runs."""
        if not self._has_started():
            return False
        main = self._main()
        return main is None or not is_alive(main)

    def _has_started(self) -> bool:
        """Whether the recorder has started the server."""
        return self._pid_file.is_file() and bool(self._pid_file.read_text().strip())

    def _has_ended(self) -> bool:
        return self._popen is None or self._popen.poll() is not None

    def _exit_status(self) -> int | None:
        """The exit status; a recorder passes on that of its target once it has written its report."""
        self._wait_for_end(EXIT_WAIT_S, lambda: False)
        return self._popen.poll() if self._popen else None

    def _ask_main_to_stop(self, patience_s: float, is_urgent: Callable[[], bool]) -> bool:
        """Whether there was a server to stop: one that its recorder never starts is not waited for."""
        deadline = time.monotonic() + PID_WAIT_S
        while not self._has_started():
            if self._has_ended() or is_urgent() or time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        main = self._main()
        if main is None:
            return True
        children = children_of(main)
        send([main], signal.SIGTERM)
        lingering = still_alive([main], patience_s, is_urgent)
        lingering += still_alive(children, min(patience_s, CHILDREN_WAIT_S), is_urgent)
        send(lingering, signal.SIGKILL)
        still_alive(lingering, patience_s)
        return True

    def _wait_for_end(self, timeout_s: float, is_urgent: Callable[[], bool]) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._has_ended() and time.monotonic() < deadline and not is_urgent():
            time.sleep(0.05)


def _meaning(status: int | None) -> str:
    if status is None:
        return "exit status unknown"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    if status > 128 and status - 128 in {one.value for one in signal.Signals}:
        return f"exit status {status}, {signal.Signals(status - 128).name}"
    return f"exit status {status}"
