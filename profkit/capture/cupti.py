"""Where CUPTI is on this host: its library, and the Python package that records with it."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

LIBRARY = "libcupti.so.1?"
TOOLKIT = "extras/CUPTI/lib64"
TOOLKITS = Path("/usr/local")
PACKAGE = "cupti-python"
COUNTERS = "pm_sampling"
"""The module of the package ``cupti`` that samples hardware counters."""


def cupti_library() -> Path | None:
    """The ``libcupti.so`` that the server's processes would load; ``None`` where there is none.

    Wheels come first (beside ``cupti-python`` and PyTorch), then toolkits, then what the system's loader knows; of
    several in one place the newest. A name without a folder is one that only the loader can find.
    """
    for folder in (*_wheels(), *_toolkits()):
        found = sorted(folder.glob(LIBRARY), key=_number)
        if found:
            return found[-1]
    name = ctypes.util.find_library("cupti")
    return Path(name) if name else None


def cupti_version() -> str:
    """The release of ``cupti-python``; empty where the package is not installed."""
    if importlib.util.find_spec("cupti") is None:
        return ""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return "unknown release"


def samples_counters() -> bool:
    """Whether the package ``cupti`` can sample hardware counters; it is not imported for that."""
    spec = importlib.util.find_spec("cupti")
    places = spec.submodule_search_locations or [] if spec else []
    return any(True for place in places for _ in Path(place).glob(f"{COUNTERS}*"))


def _wheels() -> Iterator[Path]:
    """``nvidia/*/lib`` of this Python, the newest CUPTI first: one for CUDA 12 may lie beside one for CUDA 13."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in spec.submodule_search_locations or []] if spec else []
    files = [file for place in places for file in place.glob(f"*/lib/{LIBRARY}")]
    return (file.parent for file in sorted(files, key=_number, reverse=True))


def _toolkits() -> Iterator[Path]:
    named = os.environ.get("CUDA_HOME")
    if named:
        yield Path(named) / TOOLKIT
    yield from (folder / TOOLKIT for folder in sorted(TOOLKITS.glob("cuda*")))


def _number(file: Path) -> int:
    digits = re.search(r"\.so\.(\d+)", file.name)
    return int(digits[1]) if digits else 0
