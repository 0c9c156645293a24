"""Runs a command as a child process and says what it took; and on what machine."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Taken:
    """Wall, user and system time in seconds, and the largest resident size in bytes."""

    wall: float
    user: float
    system: float
    peak: int

    @property
    def cpu(self) -> float:
        """Processor time in seconds."""
        return self.user + self.system


def measure(command: Sequence[str], environment: Mapping[str, str], repeats: int) -> Taken:
    """Run ``command`` ``repeats`` times; returns the quickest run, since other work on the machine only adds time.

    Raises ``CalledProcessError`` where the command fails.
    """
    return min((_run(command, environment) for _ in range(repeats)), key=lambda run: run.wall)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> Taken:
    begin = time.perf_counter()
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    unit = 1 if platform.system() == "Darwin" else 1024
    return Taken(wall, used.ru_utime, used.ru_stime, used.ru_maxrss * unit)


def machine() -> str:
    """Processor, memory, versions and how busy the machine is, in a line."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "msgspec"))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB; {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, {packages}, SQLite {sqlite3.sqlite_version}; "
        f"load average {os.getloadavg()[0]:.1f}"
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown processor")
