"""Hardware counters of GPUs while a window is open: PCIe, NVLink, DRAM, SM and tensor activity, every 50 µs and more.

The sampling itself is done by ``pm_sampler``, a process of its own for each window; what is asked of it is chosen by
``pm_efforts``, its clock set right by ``pm_clock``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from . import pm_sampler
from .machine import Row
from .pm_clock import Bracket, ClockOffset, clock_offset, in_words
from .pm_efforts import Efforts, silent_gpus
from .secrets import without_secrets

PROGRAM = Path(pm_sampler.__file__)
READY_S = 15.0
BEGIN_S = 5.0
WRITE_S = 30.0
END_S = 2.0


class PmSampling:
    """Samples GPUs (NVML's numbers) within its blocks; ``remarks`` say what was lost, and why.

    What a host does not allow is tried once. What fails otherwise costs the samples of one block, and a block that the
    GPU's buffer did not hold has the next ones of the same server ask for less; a GPU that gave no sample is asked for
    fewer counters, as those in ``unlinked``, which have no NVLink, are from the first. A sampler takes a second to
    start: ``prepare`` does that ahead of the block, which is entered once samples are taken. ``rows`` are
    those of the last block, in UTC nanoseconds, ``interval_ns`` is how far apart they were asked for, ``None`` where it
    has none; ``clock_error_ns`` is how exactly their times are known where they had to be moved.
    """

    def __init__(self, gpus: Sequence[int], scrub: Callable[[str], str] = str, unlinked: Collection[int] = ()) -> None:
        self._scrub = scrub
        self._file = Path()
        self._efforts = Efforts(gpus, unlinked)
        self._is_refused = False
        self._asked_ns = 0
        self._process: subprocess.Popen[str] | None = None
        self._heard: str | None = None
        self._told: dict[int, ClockOffset] = {}
        self.rows: list[Row] = []
        self.interval_ns: int | None = None
        self.clock_error_ns: int | None = None
        self.remarks: list[str] = []

    def begin_anew(self) -> None:
        """A server starts: what another one's windows were too much for need not be too much for its own."""
        self._efforts.begin_anew()

    def prepare(self, scratch: Path) -> None:
        """Start the sampler of the next block, whose file goes into ``scratch``; without one, a block does nothing."""
        self._file = scratch / "counters.npz"
        self.rows, self.interval_ns, self.clock_error_ns = [], None, None
        effort = self._efforts.next
        if effort and not self._is_refused and self._process is None:
            try:
                self._start(effort.interval_ns)
            except OSError as error:
                self._lose(f"their sampler cannot be started ({error.strerror})")

    def __enter__(self) -> Self:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write("\n")
                self._process.stdin.flush()
            self._heard = _line(self._process, BEGIN_S)
            if self._heard is None:
                self._remark(
                    f"GPU counters were not sampled yet {BEGIN_S:.0f} s after they were to be: some are missing"
                )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            # The end of its input is the second line that the sampler waits for.
            rest, _ = process.communicate(timeout=WRITE_S)
        except subprocess.TimeoutExpired:
            self._lose(f"their sampler did not answer within {WRITE_S:.0f} s{self._last_error()}")
        else:
            said = [word for word in (self._heard, *rest.split("\n")) if word and word != "sampling"]
            self._take(said[-1].strip() if said else "", process.returncode)
        finally:
            _end(process)

    def end(self) -> None:
        """End a sampler that no block has used."""
        if self._process is not None:
            _end(self._process)
            self._process = None

    def _start(self, interval_ns: int) -> None:
        """Start a sampler, or note why there is none."""
        self._file.unlink(missing_ok=True)
        self._asked_ns = interval_ns
        asked = [f"{gpu}={','.join(counters)}" for gpu, counters in self._efforts.counters().items()]
        with self._errors.open("wb") as errors:
            process = self._process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), str(self._file), str(interval_ns), *asked],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        said = _line(process, READY_S)
        if said and said.startswith("ready"):
            return
        self._process = None
        _end(process, END_S if said is not None else 0.0)
        if said is None:
            self._lose(f"their sampler did not answer within {READY_S:.0f} s{self._last_error()}")
        else:
            self._take(said, process.returncode)

    @property
    def _errors(self) -> Path:
        return self._file.with_suffix(".log")

    def _last_error(self) -> str:
        """The last line that the sampler, or a library in it, has written to its standard error."""
        lines = self._errors.read_text("utf-8", "replace").split("\n") if self._errors.is_file() else []
        return next((f": {line.strip()[:200]}" for line in reversed(lines) if line.strip()), "")

    def _take(self, said: str, status: int) -> None:
        """Take the samples of a sampler that has ended, or note what it said instead."""
        word, _, reason = said.partition(" ")
        if said == "written":
            self._read()
        elif said == "too much":
            self._ease()
        elif word == "refused":
            self._is_refused = True
            self._remark(f"GPU counters are not sampled: {reason}")
        elif word == "failed":
            self._lose(reason)
        else:
            how = f"said '{said[:200]}'" if said else _ended(status)
            self._lose(f"their sampler {how}{self._last_error()}")

    def _lose(self, reason: str) -> None:
        self._remark(f"the GPU counters of a window were lost: {reason}")

    def _remark(self, text: str) -> None:
        if (scrubbed := self._scrub(text)) not in self.remarks:
            self.remarks.append(scrubbed)

    def _ease(self) -> None:
        """Sample less in the next block."""
        self._efforts.ease()
        is_left = self._efforts.next is not None
        then = "the next ones of this server are sampled less" if is_left else "this server's are sampled no more"
        self._lose(f"they were more than the GPU's buffer holds; {then}")

    def _read(self) -> None:
        try:
            with np.load(self._file, allow_pickle=False) as archive:
                self._set_to_utc(found := dict(archive))
            silent = silent_gpus(found, self._asked_ns)
            names = found["counters"].tolist()
            columns = [found[name].tolist() for name in ("time", "device", "counter", "value")]
        except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
            self._lose(f"{self._file.name} cannot be read ({type(error).__name__}: {error})")
            return
        self.rows = [
            (when, device, names[counter], value) for when, device, counter, value in zip(*columns, strict=True)
        ]
        # A remark tells of silent GPUs; without one, what keeps the samples says that there are none.
        self.interval_ns = self._asked_ns if self.rows or not silent else None
        for remark in self._efforts.learn({row[1] for row in self.rows}, silent):
            self._remark(remark)

    def _set_to_utc(self, found: dict[str, Any]) -> None:
        """Move the samples of GPUs whose clock is not UTC; what is told of a clock is told once."""
        for gpu, bracket in zip(found["devices"].tolist(), found["brackets"].tolist(), strict=True):
            mine = found["device"] == gpu
            offset = clock_offset(found["time"][mine], self._asked_ns, Bracket(*bracket))
            if offset is None or not offset.shift_ns:
                continue
            found["time"][mine] -= offset.shift_ns
            self.clock_error_ns = max(self.clock_error_ns or 0, offset.error_ns)
            if gpu not in self._told or not offset.overlaps(self._told[gpu]):
                self._told[gpu] = offset
                self._remark(in_words(gpu, offset))


def _environment() -> dict[str, str]:
    """All GPUs, under NVML's numbers."""
    inherited = {key: value for key, value in without_secrets(os.environ).items() if key != "CUDA_VISIBLE_DEVICES"}
    return {**inherited, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _line(process: subprocess.Popen[str], patience_s: float) -> str | None:
    """What the sampler says next: ``None`` where it is silent for too long, nothing where it is gone.

    It says no two words without an answer between them, so nothing of the next one is read with it.
    """
    if process.stdout is None or not select.select([process.stdout], [], [], patience_s)[0]:
        return None
    return process.stdout.readline().strip()


def _end(process: subprocess.Popen[str], patience_s: float = 0.0) -> None:
    """See that ``process`` is gone; it may still end by itself for ``patience_s``."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _ended(status: int) -> str:
    """How a process ended, in words."""
    if status < 0:
        return f"was ended by signal {-status} ({signal.strsignal(-status)})"
    return f"ended with status {status}"
