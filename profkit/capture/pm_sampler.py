"""Samples the hardware counters of GPUs, in a process of its own: ``python -P pm_sampler.py FILE NS GPU=COUNTER,…``.

CUPTI's PM sampling reads whole GPUs, whichever process uses them, so the server is left alone, and a library that fails
takes nothing with it. Each GPU has an argument, with what to sample of it. The process says ``ready COUNTER …``, or
``refused REASON`` where this host does not allow it. It samples every NS nanoseconds from one line on its standard
input, says ``sampling`` as soon as all GPUs do, goes on to the next line (or the end), writes ``FILE`` and says
``written``, or ``too much`` where the GPU's buffer was too small. Whatever goes wrong on the way, it says ``failed
REASON`` and ends. A counter that a GPU cannot serve, such as NVLink's without an active link, can leave all without
a sample, and no call fails.

``FILE`` is an ``.npz`` with the columns ``time``, ``device``, ``counter``, ``value``; ``counters`` are the names. Times
are the nanoseconds at which an interval ends, by the clock that CUPTI gives: on some hosts UTC, on others not. A value
is the mean over that interval. ``devices`` are the GPUs, and ``brackets`` has a row for each: when ``start`` was called
and returned, and when ``stop`` was, in UTC nanoseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

HARDWARE_BUFFER = 512 << 20
MOST_SAMPLES = 60_000

RATE, SHARE = ".sum.per_second", ".avg.pct_of_peak_sustained_elapsed"
COUNTERS: Mapping[str, tuple[str, ...]] = {
    "pm_pcie_read_bytes_per_s": ("PCI.TriageCompute.pcie__read_bytes" + RATE, "pcie__read_bytes" + RATE),
    "pm_pcie_write_bytes_per_s": ("PCI.TriageCompute.pcie__write_bytes" + RATE, "pcie__write_bytes" + RATE),
    "pm_nvlink_rx_bytes_per_s": ("nvlrx__bytes" + RATE,),
    "pm_nvlink_tx_bytes_per_s": ("nvltx__bytes" + RATE,),
    "pm_sm_active_percent": ("TPC.TriageCompute.sm__cycles_active" + SHARE, "sm__cycles_active" + SHARE),
    "pm_tensor_active_percent": (
        "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime" + SHARE,
        "sm__inst_executed_pipe_tensor" + SHARE,
    ),
    "pm_dram_read_percent": ("FBSP.TriageCompute.dramc__read_throughput" + SHARE, "dram__read_throughput" + SHARE),
    "pm_dram_write_percent": ("FBSP.TriageCompute.dramc__write_throughput" + SHARE, "dram__write_throughput" + SHARE),
}
"""What is sampled, and NVIDIA's metrics for it, the first that the GPU has; all have to fit into one pass."""

FIRST_WITH_SETS = 130_300
"""CUPTI 13.3 made ``CUpti_Profiler_Host_Initialize_Params`` longer by the name of a metric set."""


class SamplingError(Exception):
    """Sampling failed this time; the words say at what."""


class RefusedError(SamplingError):
    """The counters cannot be read on this host, now or later; the words say why, and what to do."""


class TooMuchError(SamplingError):
    """The GPU sampled more than its buffer holds."""


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Name ``what`` failed: cupti-python has an error of its own for every release, and some say only a number."""
    try:
        yield
    except SamplingError:
        raise
    except Exception as error:
        raise SamplingError(f"{what} ({type(error).__name__}: {error})") from error


def fit_to_library(module: Any) -> None:
    """Let cupti-python give an older CUPTI the structure that it knows: its size is how CUPTI tells versions apart."""
    loaded = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcupti.so" in line]
    version = ctypes.c_uint32()
    if loaded:
        ctypes.CDLL(loaded[0]).cuptiGetVersion(ctypes.byref(version))
    if 0 < version.value < FIRST_WITH_SETS:
        module.PROFILER_HOST_INITIALIZE_PARAMS_STRUCT_SIZE = 48


def metrics_in_one_pass(profiler_host: Any, chip: str, counters: Sequence[str]) -> dict[str, str]:
    """The metric for each counter, as far as ``chip`` has one that fits into one pass with those before it."""
    chosen: dict[str, str] = {}
    for counter in counters:
        for metric in COUNTERS[counter]:
            if _passes(profiler_host, chip, [*chosen.values(), metric]) == 1:
                chosen[counter] = metric
                break
    return chosen


def _passes(profiler_host: Any, chip: str, metrics: Sequence[str]) -> int:
    """How often the work would have to run for ``metrics``; 0 where the chip lacks one."""
    host = profiler_host.ProfilerHost(chip, profiler_host.ProfilerType.PM_SAMPLING)
    host.initialize()
    try:
        return int(profiler_host.get_num_of_passes(host.create_config_image(metrics=list(metrics))))
    except Exception:  # cupti-python has an error of its own for every release
        return 0
    finally:
        host.deinitialize()


class GpuSampler:
    """The sampler of one GPU. Raises ``RefusedError`` where the driver does not allow it.

    Here and in each method ``SamplingError`` names what failed. ``bracket`` is when ``start`` and ``stop`` were called
    and returned, in UTC nanoseconds.
    """

    def __init__(self, module: Any, profiler_host: Any, device: int, interval_ns: int, counters: Sequence[str]) -> None:
        self.device = device
        self.bracket: list[int] = []
        self._name = f"PM sampling of GPU {device}"
        with told(f"{self._name} cannot be opened"):
            self._collector = module.Collector(device)
            try:
                self._collector.enable()
            except PermissionError as error:
                advice = "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
                raise RefusedError(f"this user may not read GPU counters: {advice}") from error
        with told(f"the counters of GPU {device} cannot be chosen"):
            # The chip's name is the collector's to find out, and private to it.
            self.metrics = metrics_in_one_pass(profiler_host, self._collector._chip_name, counters)
        if not self.metrics:
            raise RefusedError("the GPU has none of the counters that profkit samples")
        with told(f"{self._name} cannot be configured"):
            self._collector.configure(
                metrics=list(self.metrics.values()), sampling_interval=interval_ns, hardware_buffer_size=HARDWARE_BUFFER
            )

    def start(self) -> None:
        """Begin to sample."""
        with told(f"{self._name} does not start"), self._noted():
            self._collector.start()

    def stop(self) -> None:
        """Sample no more."""
        with told(f"{self._name} does not stop"), self._noted():
            self._collector.stop()

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Note the time before and after."""
        called = time.time_ns()
        yield
        self.bracket += [called, time.time_ns()]

    def rows(self) -> tuple[list[int], list[list[float]]]:
        """The end of each interval in UTC ns, and the values of each metric in it.

        Raises ``TooMuchError`` where the GPU sampled more than its buffer holds.
        """
        with told(f"the samples of GPU {self.device} cannot be decoded"):
            try:
                samples = list(self._collector.decode(max_samples=MOST_SAMPLES))
            except MemoryError as error:
                raise TooMuchError from error
        return [sample.end_timestamp for sample in samples], [list(sample.metric_values) for sample in samples]


def open_samplers(interval_ns: int, counters: Mapping[int, Sequence[str]]) -> list[GpuSampler]:
    """A sampler of each GPU's ``counters``.

    Raises ``RefusedError`` where there is no way to sample, or another ``SamplingError``.
    """
    try:
        driver = importlib.import_module("cuda.bindings.driver")
        bindings = importlib.import_module("cupti.cupti")
        module, host = importlib.import_module("cupti.pm_sampling"), importlib.import_module("cupti.profiler_host")
    except ImportError as error:
        raise RefusedError(f"{error}: pip install 'cupti-python>=13.3' cuda-bindings") from error
    with told("the CUDA driver does not start"):
        (status,) = driver.cuInit(0)
    if int(status):
        raise SamplingError(f"the CUDA driver does not start (cuInit: {getattr(status, 'name', status)})")
    with told("CUPTI does not start"):
        bindings.get_timestamp()
        fit_to_library(bindings)
    return [GpuSampler(module, host, device, interval_ns, names) for device, names in counters.items()]


def write_samples(path: Path, samplers: Sequence[GpuSampler]) -> None:
    """Write what was sampled; one row for each value."""
    names = sorted({counter for sampler in samplers for counter in sampler.metrics})
    parts = []
    for sampler in samplers:
        times, values = sampler.rows()
        numbers = [names.index(counter) for counter in sampler.metrics]
        count = len(times) * len(numbers)
        parts.append(
            (
                np.repeat(np.array(times, np.int64), len(numbers)),
                np.full(count, sampler.device, np.int32),
                np.tile(np.array(numbers, np.int32), len(times)),
                np.array(values, np.float64).reshape(-1),
            )
        )
    when, device, counter, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(
            file,
            counters=np.array(names),
            time=when,
            device=device,
            counter=counter,
            value=value,
            devices=np.array([sampler.device for sampler in samplers], np.int32),
            brackets=np.array([sampler.bracket for sampler in samplers], np.int64),
        )
    part.replace(path)


def _say(voice: TextIO, *words: str) -> None:
    """One line, whatever ``words`` hold."""
    voice.write(" ".join(" ".join(words).split()) + "\n")
    voice.flush()


def _sample(arguments: Sequence[str], voice: TextIO) -> None:
    path, interval_ns, *asked = arguments
    pairs = (one.partition("=") for one in asked)
    samplers = open_samplers(int(interval_ns), {int(device): names.split(",") for device, _, names in pairs})
    _say(voice, "ready", *sorted({counter for sampler in samplers for counter in sampler.metrics}))
    sys.stdin.readline()
    for sampler in samplers:
        sampler.start()
    _say(voice, "sampling")
    sys.stdin.readline()
    for sampler in samplers:
        sampler.stop()
    with told("the samples cannot be written"):
        write_samples(Path(path), samplers)
    _say(voice, "written")


def main(arguments: Sequence[str], voice: TextIO) -> int:
    """See the module's docstring; what it says goes to ``voice``."""
    try:
        with told("its sampler failed"):
            _sample(arguments, voice)
    except TooMuchError:
        _say(voice, "too much")
    except RefusedError as error:
        _say(voice, "refused", str(error))
    except SamplingError as error:
        _say(voice, "failed", str(error))
        return 1
    return 0


if __name__ == "__main__":
    # Libraries may print what they like: it goes where errors go, and the words above stay alone.
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace") as out:
        os.dup2(2, 1)
        sys.exit(main(sys.argv[1:], out))
