"""Recordings kept under a name in the workspace, to compare later ones with: ``baselines/NAME``."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from profkit.traces import (
    InputError,
    Opened,
    OutputError,
    UsageError,
    open_recordings,
    save_bundle,
    save_sweep,
    sweep_of,
)
from profkit.traces.sweep import is_sweep

FOLDER = Path("baselines")
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


def find_baseline(name: str) -> Path:
    """Where the baseline ``name`` is; raises ``InputError`` where there is none."""
    place = _place(name)
    if not place.is_dir():
        kept = sorted(path.name for path in FOLDER.iterdir() if path.is_dir()) if FOLDER.is_dir() else []
        known = f"there are {', '.join(kept)}" if kept else "none is kept yet"
        raise InputError(place, f"no baseline of this name ({known})", f"keep one with --keep {name}")
    return place


def keep_baseline(name: str, path: Path) -> Path:
    """Keep the recording or sweep at ``path`` as the baseline ``name``, whole or not at all; an older one goes."""
    target = _place(name)
    opened = open_recordings(path)
    try:
        FOLDER.mkdir(exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=FOLDER))
        try:
            _save(path, opened, staged / name)
            if target.exists():
                target.replace(staged / "before")
            (staged / name).replace(target)
        finally:
            shutil.rmtree(staged)
    except OSError as error:
        raise OutputError(target, f"cannot keep it ({error.strerror})", "free space, or check permissions") from error
    return target


def _place(name: str) -> Path:
    if not NAME.match(name):
        raise UsageError(f"'{name}' cannot name a baseline; use letters, digits, dots, dashes and underscores")
    return FOLDER / name


def _save(path: Path, opened: Sequence[Opened], target: Path) -> None:
    """Recordings as bundles, whatever they were, and the record of their sweep, cut to them."""
    sweep = sweep_of(path)
    if sweep is None:
        save_bundle(opened[0].trace, target)
        return
    target.mkdir()
    alone = None if is_sweep(path) else path.resolve().name
    kept = [run for run in sweep.runs if alone in (None, run.trace)]
    folder = path.parent if path.is_file() else path
    for one in opened:
        save_bundle(one.trace, target / (alone or one.path.relative_to(folder)))
    save_sweep(replace(sweep, runs=kept), target)
