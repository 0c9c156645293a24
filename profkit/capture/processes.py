"""A process tree that ends completely: the server, its workers, and whatever its recorder left behind.

Children that outlive their parents, sessions of their own (nsys puts its target and its agent into new ones) and
rewritten process titles defeat each single way of finding them, so three are used together: children seen at any
moment, members of a session that one of them leads, and processes that carry the marker in their environment.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterable

import psutil

MARKER = "PROFKIT_CAPTURE_RUN"
POLL_S = 0.05
GONE = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)


class ProcessTree:
    """All processes that descend from one command. Pass ``marker`` to it in the environment variable ``MARKER``."""

    def __init__(self) -> None:
        self.marker = uuid.uuid4().hex
        self._known: dict[int, psutil.Process] = {}

    def add(self, pid: int) -> None:
        """Take the process ``pid`` as a root of the tree."""
        try:
            self._known[pid] = psutil.Process(pid)
        except psutil.NoSuchProcess:
            return

    def watch(self) -> None:
        """Note the children of the moment: cheap enough to be done while the server is measured."""
        self._drop_dead()
        for process in list(self._known.values()):
            self._take(children_of(process))

    def refresh(self) -> list[psutil.Process]:
        """Look through all processes of the host for members, and return those that live."""
        self.watch()
        sessions = {session for process in self._known.values() if (session := _led_session(process))}
        others = (process for process in psutil.process_iter() if process.pid not in self._known)
        self._take(process for process in others if self._belongs(process, sessions))
        return list(self._known.values())

    def named(self, name: str) -> list[psutil.Process]:
        """The living members whose program is ``name``."""
        self.watch()
        return [process for process in self._known.values() if _name(process) == name]

    def end(self, patience_s: float) -> list[int]:
        """Terminate all members, kill those that linger, and return the pids that even so survived."""
        for sent, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
            members = self.refresh()
            send(members, sent)
            still_alive(members, wait_s)
        deadline = time.monotonic() + 10.0
        while (members := self.refresh()) and time.monotonic() < deadline:
            send(members, signal.SIGKILL)
            still_alive(members, 0.2)
        return [process.pid for process in members]

    def _drop_dead(self) -> None:
        self._known = {pid: process for pid, process in self._known.items() if is_alive(process)}

    def _take(self, processes: Iterable[psutil.Process]) -> None:
        for process in processes:
            if process.pid != os.getpid() and is_alive(process):
                self._known.setdefault(process.pid, process)

    def _belongs(self, process: psutil.Process, sessions: set[int]) -> bool:
        try:
            return os.getsid(process.pid) in sessions or process.environ().get(MARKER) == self.marker
        except (*GONE, OSError):
            return False


def is_alive(process: psutil.Process) -> bool:
    """Whether ``process`` runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except GONE:
        return False


def still_alive(
    processes: list[psutil.Process], timeout_s: float, is_urgent: Callable[[], bool] = lambda: False
) -> list[psutil.Process]:
    """Those of ``processes`` that live when the time is up or it is urgent; a zombie that nobody reaps does not."""
    deadline = time.monotonic() + timeout_s
    while (alive := [one for one in processes if is_alive(one)]) and time.monotonic() < deadline and not is_urgent():
        time.sleep(POLL_S)
    return alive


def children_of(process: psutil.Process) -> list[psutil.Process]:
    """All descendants of ``process``; none where it is gone."""
    try:
        return list(process.children(recursive=True))
    except GONE:
        return []


def _led_session(process: psutil.Process) -> int | None:
    """The session of ``process`` if it is not ours."""
    try:
        session = os.getsid(process.pid)
    except OSError:
        return None
    return session if session != os.getsid(0) else None


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except GONE:
        return ""


def send(processes: Iterable[psutil.Process], sent: signal.Signals) -> None:
    """Send a signal to those of ``processes`` that still are there."""
    for process in processes:
        try:
            process.send_signal(sent)
        except GONE:
            continue
