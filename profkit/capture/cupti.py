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
COUNTERS = ("pm_sampling", "profiler_host")
"""The modules of the package ``cupti`` that sample hardware counters."""

SAMPLES_FROM = (13, 3)
"""The first release of ``cupti-python`` whose modules do that."""


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


def sampling_lacks() -> str:
    """What is missing to sample hardware counters, in words; empty where nothing is. Nothing is imported for that."""
    version = cupti_version()
    if not version:
        return "the package cupti is not installed"
    if version[0].isdigit() and _release(version) < SAMPLES_FROM:
        return f"{PACKAGE} {version} does not sample them"
    absent = [name for name in COUNTERS if not _has_module("cupti", name)]
    if absent:
        return f"{PACKAGE} {version} has no {' and no '.join(absent)}"
    return "" if _has_module("cuda", "bindings") else "the package cuda.bindings is not installed"


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _has_module(package: str, name: str) -> bool:
    """Whether ``package`` has a module ``name``, as a folder, as source or compiled."""
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations or [] if spec else []
    return any(file.name.split(".")[0] == name for place in places for file in Path(place).glob(f"{name}*"))


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
