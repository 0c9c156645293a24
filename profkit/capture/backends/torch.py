"""SGLang's own profiler, which is PyTorch's: a file of JSON for each rank and window."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profkit.traces import UsageError, open_ranks
from profkit.traces.compression import read_head

from . import Recorded
from .folders import OLD_PROFILER, checked, folder_of, folders

FILES = "*.trace.json.gz"
BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
HEAD_BYTES = 1 << 20


class TorchBackend:
    """``torch.profiler`` in each rank: kernels, API calls and ranges, without stacks and shapes to keep it cheap."""

    importer = None
    holds_environment = False

    def __init__(self, *, on_gpu: bool) -> None:
        self._on_gpu = on_gpu

    def check(self) -> None:
        if importlib.util.find_spec("torch") is None:
            advice = "run profkit with the Python that serves, or choose another --backend"
            raise UsageError(f"PyTorch is not installed for this Python; {advice}")

    def version(self) -> str:
        try:
            return importlib.metadata.version("torch")
        except importlib.metadata.PackageNotFoundError:
            return "unknown release"

    def wrapper(self, scratch: Path) -> list[str]:
        return []

    def environment(self) -> Mapping[str, str]:
        return OLD_PROFILER

    def window(self, number: int, steps: int, scratch: Path) -> dict[str, Any]:
        return {
            "activities": ["CPU", "GPU"] if self._on_gpu else ["CPU"],
            "with_stack": False,
            "record_shapes": False,
            "num_steps": steps,
            "output_dir": str(folder_of(number, scratch)),
        }

    def reports(self, scratch: Path) -> dict[int, Path]:
        return folders(scratch, FILES)

    def read(self, report: Path, scratch: Path) -> Recorded:
        files = sorted(report.glob(FILES))
        return Recorded(checked(open_ranks(files)), min(map(_base, files)))


def _base(file: Path) -> int:
    """The UTC nanosecond from which the times of ``file`` count; older files count from the epoch itself."""
    found = BASE.search(read_head(file, HEAD_BYTES))
    return int(found[1]) if found else 0
