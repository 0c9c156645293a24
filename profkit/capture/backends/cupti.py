"""CUPTI in the server's own processes: the plugin records, and leaves a dump for each rank and window."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profkit.traces import UsageError
from profkit.traces.cupti import read_cupti, zero_utc_ns

from ..cupti import cupti_library, cupti_version
from . import Recorded
from .folders import OLD_PROFILER, checked, folder_of, folders

FILES = "*.cupti"
INJECTION = "NVTX_INJECTION64_PATH"
"""The library that NVTX hands ranges to: CUPTI itself, which then records them as markers."""


class CuptiBackend:
    """``cupti-python`` in each rank, for hosts without Nsight Systems."""

    importer = None
    holds_environment = False

    def __init__(self, *, on_gpu: bool) -> None:
        self._on_gpu = on_gpu

    def check(self) -> None:
        if not self._on_gpu:
            raise UsageError("--backend cupti: it records GPUs, and the configuration takes none; choose another")
        if not cupti_version():
            raise UsageError("--backend cupti: the package cupti is missing; pip install 'profkit[capture]'")
        if cupti_library() is None:
            advice = "pip install nvidia-cuda-cupti, or set $CUDA_HOME to a CUDA toolkit"
            raise UsageError(f"--backend cupti: libcupti.so was not found; {advice}")

    def version(self) -> str:
        return cupti_version()

    def wrapper(self, scratch: Path) -> list[str]:
        return []

    def environment(self) -> Mapping[str, str]:
        return {**OLD_PROFILER, INJECTION: str(cupti_library() or "libcupti.so")}

    def window(self, number: int, steps: int, scratch: Path) -> dict[str, Any]:
        return {
            "activities": ["CUDA_PROFILER"],
            "num_steps": steps,
            "output_dir": str(folder_of(number, scratch)),
        }

    def reports(self, scratch: Path) -> dict[int, Path]:
        return folders(scratch, FILES)

    def read(self, report: Path, scratch: Path) -> Recorded:
        return Recorded(checked(read_cupti(report)), zero_utc_ns(report))
