"""What several commands share: opening recordings, and writing output whole or not at all."""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from profkit.analyzers import Recording
from profkit.traces import InputError, Opened, OutputError, open_recordings
from profkit.traces.open import READABLE

INCONCLUSIVE = 3
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class AcceptLength(click.FloatRange):
    """Tokens accepted per cycle: at least the one that plain decode gives, and finite."""

    def __init__(self) -> None:
        super().__init__(min=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that ``value`` says."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number of tokens.", param, ctx)
        return number


def recordings_at(paths: Sequence[Path]) -> list[Recording]:
    """All recordings at ``paths``, with names that tell them apart."""
    opened = [one for path in paths for one in _opened(path, alone=len(paths) == 1)]
    names = [one.name for one in opened]
    return [
        Recording(one.name if names.count(one.name) == 1 else str(one.path), str(one.path), one.trace) for one in opened
    ]


def _opened(path: Path, alone: bool) -> list[Opened]:
    try:
        return open_recordings(path)
    except InputError as error:
        if alone or error.advice != READABLE:
            raise
        raise InputError(path, error.fault, "leave it out, or name the recordings one by one") from error


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that the file is complete or not there; see ``whole_file``."""
    with whole_file(path) as part:
        part.write_text(text, "utf-8")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write to, which takes the place of ``path``, or of what that links to, once it is complete.

    Raises ``OutputError`` where that is impossible; an older file is then left as it was.
    """
    target = Path(os.path.realpath(path))
    _refuse_special(path, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    except OSError as error:
        raise OutputError(path, f"cannot write there ({error.strerror})", "choose another place with -o") from error
    os.close(descriptor)
    part = Path(name)
    try:
        yield part
        part.chmod(0o644)
        part.replace(target)
    except OSError as error:
        advice = "free some space, or choose another place" if error.errno in NO_SPACE else "choose another place"
        raise OutputError(path, f"cannot write it ({error.strerror})", f"{advice} with -o") from error
    finally:
        part.unlink(missing_ok=True)


def _refuse_special(path: Path, target: Path) -> None:
    if target.is_dir():
        raise OutputError(path, "is a folder", "name a file in it with -o")
    if os.path.lexists(target) and not target.is_file():
        raise OutputError(path, "is a device or a pipe", "name a regular file with -o")
