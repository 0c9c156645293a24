"""NVTX, by which the names of steps reach nsys and CUPTI: for which recorders the installed package will not do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass

SEEN_BY_ALL, SEES_NEWER = (0, 2, 11), 2025
"""The last release of nvtx whose ranges every nsys records, and the year of the first nsys that records later ones."""

NEEDED_BY = ("nsys", "cupti")
"""The PyTorch profiler has ranges of its own."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What is amiss with NVTX, for which recorders, and what to do."""

    recorders: tuple[str, ...]
    found: str
    remedy: str


def nvtx_version() -> str:
    """The release of the package ``nvtx``; empty where it is not installed."""
    if importlib.util.find_spec("nvtx") is None:
        return ""
    try:
        return importlib.metadata.version("nvtx")
    except importlib.metadata.PackageNotFoundError:
        return "installed, version unknown"


def nvtx_lack(version: str, nsys: tuple[int, ...]) -> Lack | None:
    """What is amiss with release ``version`` of nvtx beside release ``nsys`` (empty where there is none or unknown)."""
    if not version:
        return Lack(NEEDED_BY, "the package nvtx is not installed", "pip install 'profkit[capture]'")
    newer = tuple(int(part) for part in version.split(".") if part.isdigit()) > SEEN_BY_ALL
    if not nsys or nsys >= (SEES_NEWER,) or not newer:
        return None
    known = ".".join(map(str, SEEN_BY_ALL))
    remedy = f"pip install nvtx=={known}, or nsys {SEES_NEWER} or newer"
    return Lack(("nsys",), f"{version}, whose ranges this nsys does not see", remedy)
