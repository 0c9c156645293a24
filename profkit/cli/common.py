"""What several commands share: opening recordings, and writing output whole or not at all."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from profkit.analyzers import Recording
from profkit.traces import OutputError, open_recordings

INCONCLUSIVE = 3


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
    opened = [one for path in paths for one in open_recordings(path)]
    names = [one.name for one in opened]
    return [
        Recording(one.name if names.count(one.name) == 1 else str(one.path), str(one.path), one.trace) for one in opened
    ]


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that the file is complete or not there.

    Raises ``OutputError`` where that is impossible; an older file is then left as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        raise OutputError(path, f"cannot write there ({error.strerror})", "choose another place with -o") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise OutputError(
            path, f"cannot write it ({error.strerror})", "free some space, or choose another place"
        ) from error
