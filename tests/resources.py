"""Machines that lack something: a full disk, a file that may not grow, a user without rights; and what work costs."""

from __future__ import annotations

import cProfile
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
LITTLE = 128 * 1024


@contextmanager
def little_disk(folder: Path) -> Iterator[Path]:
    """A disk of 128 kB; skips the test where none may be mounted."""
    disk = folder / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", f"size={LITTLE}", "tmpfs", disk]
    if not mount or os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], capture_output=True, check=True)


@contextmanager
def limited_file_size(folder: Path) -> Iterator[Path]:
    """A folder in which no file can grow beyond 128 kB, as at a quota."""
    place = folder / "limited"
    place.mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LITTLE, before[1]))
    try:
        yield place
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def user_without_rights() -> Iterator[Path]:
    """A folder of our own while we are nobody: root may read everything, so it steps down for as long."""
    folder = Path(tempfile.mkdtemp(prefix="profkit-test-"))
    root = os.geteuid() == 0
    if root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700)
        shutil.rmtree(folder)


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of functions ``work`` makes: what it costs, in a measure that no busy machine changes."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(int(row.callcount) for row in profile.getstats())
