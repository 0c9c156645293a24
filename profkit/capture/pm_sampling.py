"""Hardware counters of GPUs while a window is open: PCIe, NVLink, DRAM, SM and tensor activity, every 50 µs and more.

The sampling itself is done by ``pm_sampler``, a process of its own for each window.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from . import pm_sampler
from .machine import Row
from .secrets import without_secrets

PROGRAM = Path(pm_sampler.__file__)
READY_S = 15.0
WRITE_S = 30.0

LINKS = ("pm_pcie_read_bytes_per_s", "pm_pcie_write_bytes_per_s")
ACTIVITY = ("pm_sm_active_percent", "pm_tensor_active_percent", "pm_dram_read_percent", "pm_dram_write_percent")
EVERYTHING = tuple(pm_sampler.COUNTERS)


@dataclass(frozen=True, slots=True)
class Effort:
    """Which counters are sampled, and how many nanoseconds apart."""

    counters: tuple[str, ...]
    interval_ns: int


EFFORTS = (
    Effort(EVERYTHING, 50_000),
    Effort((*LINKS, *ACTIVITY), 50_000),
    Effort(EVERYTHING, 500_000),
    Effort((*LINKS, *ACTIVITY), 200_000),
    Effort(LINKS, 100_000),
)
"""What is tried, in this order, until the GPU's buffer holds a window."""


class PmSampling:
    """Samples GPUs (NVML's numbers) within its blocks. What a host does not allow is tried once; ``remark`` says why.

    A block that the GPU's buffer did not hold has no samples, and the next one asks for less.

    A sampler takes a second to start: ``prepare`` does that ahead of the block.
    """

    def __init__(self, gpus: Sequence[int]) -> None:
        self._gpus = [str(gpu) for gpu in gpus]
        self._file = Path()
        self._efforts = list(EFFORTS) if gpus else []
        self._process: subprocess.Popen[str] | None = None
        self._rows: list[Row] = []
        self.remark: str | None = None

    def prepare(self, scratch: Path) -> None:
        """Start the sampler of the next block, whose file goes into ``scratch``; without one, a block does nothing."""
        self._file = scratch / "counters.npz"
        if self._efforts and self._process is None:
            self._start(self._efforts[0])

    def __enter__(self) -> Self:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write("\n")
                self._process.stdin.flush()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        said = ""
        try:
            said, _ = process.communicate("\n", timeout=WRITE_S)
        except (subprocess.TimeoutExpired, BrokenPipeError, ValueError):
            process.kill()
            process.wait()
        if said.startswith("too much"):
            self._ease()
        else:
            self._read()

    def between(self, start_ns: int, end_ns: int) -> list[Row]:
        """The samples taken in a span of UTC nanoseconds."""
        return [row for row in self._rows if start_ns <= row[0] <= end_ns]

    def end(self) -> None:
        """End a sampler that no block has used."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self, effort: Effort) -> None:
        """Start a sampler, or note why there will be none."""
        self._file.unlink(missing_ok=True)
        arguments = [str(self._file), str(effort.interval_ns), ",".join(effort.counters), *self._gpus]
        process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), *arguments],
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        said = _first_line(process)
        if said.startswith("ready"):
            self._process = process
            return
        process.kill()
        process.communicate()
        self._efforts.clear()
        reason = said.removeprefix("refused ") or "their sampler ended at once"
        self.remark = f"GPU counters are not sampled: {reason}"

    def _ease(self) -> None:
        """Sample less in the next block."""
        lost = "the GPU counters of a window were lost: they were more than the GPU's buffer holds"
        self._efforts.pop(0)
        self.remark = f"{lost}; {'the next ones are sampled less' if self._efforts else 'none are sampled any more'}"

    def _read(self) -> None:
        try:
            with np.load(self._file, allow_pickle=False) as archive:
                names = archive["counters"].tolist()
                columns = [archive[name].tolist() for name in ("time", "device", "counter", "value")]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            self.remark = "the GPU counters of a window were lost: their sampler ended early"
            return
        self._rows += [
            (when, device, names[counter], value) for when, device, counter, value in zip(*columns, strict=True)
        ]


def _environment() -> dict[str, str]:
    """All GPUs, under NVML's numbers."""
    inherited = {key: value for key, value in without_secrets(os.environ).items() if key != "CUDA_VISIBLE_DEVICES"}
    return {**inherited, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _first_line(process: subprocess.Popen[str]) -> str:
    """What the sampler says first; nothing where it is silent for too long, or gone."""
    if process.stdout is None or not select.select([process.stdout], [], [], READY_S)[0]:
        return ""
    return process.stdout.readline().strip()
