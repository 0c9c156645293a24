"""Recordings kept under a name in the workspace, to compare later ones with: ``baselines/NAME``."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from profkit.traces import InputError, OutputError, UsageError, load_sweep, open_recordings, save_bundle, save_sweep
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
            if is_sweep(path):
                _save_sweep(path, staged / name)
            else:
                save_bundle(opened[0].trace, staged / name)
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


def _save_sweep(path: Path, target: Path) -> None:
    """The sweep with its recordings as bundles, whatever they were."""
    folder = path.parent if path.is_file() else path
    target.mkdir()
    for opened in open_recordings(path):
        save_bundle(opened.trace, target / opened.path.relative_to(folder))
    save_sweep(load_sweep(folder), target)
