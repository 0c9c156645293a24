"""The machine: GPUs, topology and versions for the record, and NVML's counters while the server runs."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np
import psutil

from profkit import __version__
from profkit.traces import Samples

from .sglang_source import sglang_version

PERIOD_S = 0.1
PCIE_BYTES_PER_LANE = {1: 250e6, 2: 500e6, 3: 985e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
"""Bytes per second and direction of one PCIe lane by generation, after line coding."""

PACKAGES = ("torch", "triton", "nvtx", "flashinfer-python", "nvidia-nccl-cu13", "nvidia-nccl-cu12", "transformers")
TOPOLOGY = {0: "same board", 10: "one switch", 20: "switches", 30: "one host bridge", 40: "one NUMA node", 50: "system"}


@contextlib.contextmanager
def nvml() -> Iterator[ModuleType | None]:
    """``pynvml``, initialised; ``None`` on a machine without it or without an NVIDIA driver."""
    if importlib.util.find_spec("pynvml") is None:
        yield None
        return
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def visible_gpus(environment: Mapping[str, str]) -> list[int]:
    """NVML's numbers of the GPUs that a process with ``environment`` would see, in its order."""
    with nvml() as library:
        uuids = _uuids(library) if library else []
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(range(len(uuids)))
    numbers: list[int] = []
    for one in map(str.strip, named.split(",")):
        found = [int(one)] if one.isdigit() else [i for i, uuid in enumerate(uuids) if one and uuid.startswith(one)]
        if one.startswith("MIG-"):
            # A part of a GPU; which one is not told here, only that there is another.
            found = [len(numbers)]
        if len(found) != 1 or found[0] >= len(uuids):
            break  # As CUDA does: what comes after an impossible entry is not seen.
        numbers += found
    return numbers


def least_memory(gpus: Sequence[int]) -> int | None:
    """Bytes of the smallest of ``gpus``; ``None`` where there are none, or their driver does not say."""
    with nvml() as library:
        asked = [_asker(library, library.nvmlDeviceGetHandleByIndex(gpu)) for gpu in gpus] if library else []
        found = [memory.total for ask in asked if (memory := ask("nvmlDeviceGetMemoryInfo"))]
    return min(map(int, found), default=None)


def _uuids(library: ModuleType) -> list[str]:
    handles = (library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount()))
    return [_text(_asker(library, handle)("nvmlDeviceGetUUID")) for handle in handles]


def describe_machine(used: Sequence[int] = ()) -> dict[str, Any]:
    """GPUs, their links and the host, for the sweep's record; no name of the host or of a user.

    ``used`` are the numbers of the GPUs that take part.
    """
    memory = psutil.virtual_memory().total
    host = {"cpus": os.cpu_count(), "memory_bytes": memory, "machine": platform.machine(), "kernel": platform.release()}
    with nvml() as library:
        if library is None:
            return {"host": host, "gpus": [], "used": list(used)}
        handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
        gpus = [_gpu(library, index, handle) for index, handle in enumerate(handles)]
        return {"host": host, "gpus": gpus, "topology": _topology(library, handles), "used": list(used)}


def _gpu(library: ModuleType, index: int, handle: Any) -> dict[str, Any]:
    ask = _asker(library, handle)
    generation, width = ask("nvmlDeviceGetMaxPcieLinkGeneration"), ask("nvmlDeviceGetMaxPcieLinkWidth")
    lane = PCIE_BYTES_PER_LANE.get(generation) if generation else None
    memory, bus = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetPciInfo")
    clock, bits = ask("nvmlDeviceGetMaxClockInfo", library.NVML_CLOCK_MEM), ask("nvmlDeviceGetMemoryBusWidth")
    return {
        "index": index,
        "name": _text(ask("nvmlDeviceGetName")),
        "bus_id": _text(bus.busId) if bus else "",
        "memory_bytes": int(memory.total) if memory else None,
        "memory_bytes_per_s": 2 * clock * 1_000_000 * bits // 8 if clock and bits else None,
        "pcie_generation": generation,
        "pcie_width": width,
        "pcie_bytes_per_s": int(lane * width) if lane and width else None,
        "power_limit_mw": ask("nvmlDeviceGetEnforcedPowerLimit"),
    }


def _asker(library: ModuleType, handle: Any) -> Callable[..., Any]:
    """A function that asks NVML one thing; the answer is ``None`` where this GPU or driver cannot say."""

    def ask(function: str, *arguments: Any) -> Any:
        try:
            return getattr(library, function)(handle, *arguments)
        except library.NVMLError:
            return None

    return ask


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _topology(library: ModuleType, handles: Sequence[Any]) -> list[dict[str, Any]]:
    """How each pair of GPUs is joined: by NVLink, and over which part of the PCIe tree."""
    pairs = []
    for first, one in enumerate(handles):
        for second in range(first + 1, len(handles)):
            ask = _asker(library, one)
            level = ask("nvmlDeviceGetTopologyCommonAncestor", handles[second])
            link = ask("nvmlDeviceGetP2PStatus", handles[second], library.NVML_P2P_CAPS_INDEX_NVLINK)
            joined = {"gpus": [first, second], "pcie": TOPOLOGY.get(level, "unknown"), "nvlink": link == 0}
            pairs.append(joined)
    return pairs


def without_nvlink(gpus: Sequence[int]) -> list[int]:
    """Those of ``gpus`` none of whose NVLinks is active; not those of which NVML cannot tell."""
    with nvml() as library:
        return [gpu for gpu in gpus if library and _is_unlinked(library, gpu)]


def _is_unlinked(library: ModuleType, gpu: int) -> bool:
    """A link that the GPU does not have is refused as an argument, all of them where it has no NVLink at all."""
    missing = (library.NVMLError_NotSupported, library.NVMLError_InvalidArgument)
    try:
        handle = library.nvmlDeviceGetHandleByIndex(gpu)
        for link in range(library.NVML_NVLINK_MAX_LINKS):
            with contextlib.suppress(*missing):
                if library.nvmlDeviceGetNvLinkState(handle, link) != library.NVML_FEATURE_DISABLED:
                    return False
    except library.NVMLError:
        return False
    return True


def versions(package: Path) -> dict[str, str]:
    """The versions of what takes part; ``package`` is SGLang's folder."""
    found = {"profkit": __version__, "python": platform.python_version(), "sglang": sglang_version(package)}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    with nvml() as library:
        if library:
            found["driver"] = _text(library.nvmlSystemGetDriverVersion())
            cuda = int(library.nvmlSystemGetCudaDriverVersion())
            found["cuda"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    return found


Row = tuple[int, int, str, float]
"""UTC nanoseconds, device, counter, value."""


class Sampler:
    """Samples NVML in one thread per GPU while the block runs: reading PCIe counters blocks for 20 ms each."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self._gpus = gpus
        self._rows: list[Row] = []
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._library = contextlib.ExitStack()

    def __enter__(self) -> Self:
        library = self._library.enter_context(nvml())
        for device in self._gpus if library else ():
            thread = threading.Thread(target=self._sample, args=(library, device), name=f"nvml-{device}", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=5)
        self._library.close()

    def between(self, start_ns: int, end_ns: int) -> list[Row]:
        """The samples taken in a span of UTC nanoseconds."""
        return [row for row in list(self._rows) if start_ns <= row[0] <= end_ns]

    def _sample(self, library: ModuleType, device: int) -> None:
        ask = _asker(library, library.nvmlDeviceGetHandleByIndex(device))
        while not self._ended.wait(PERIOD_S):
            for counter, value in _counters(library, ask):
                self._rows.append((time.time_ns(), device, counter, value))


def _counters(library: ModuleType, ask: Callable[..., Any]) -> Iterator[tuple[str, float]]:
    """PCIe in bytes per second, clocks in MHz, power in watts, utilisation in per cent, throttle reasons as bits."""
    asked = (
        ("pcie_tx_bytes_per_s", "nvmlDeviceGetPcieThroughput", (library.NVML_PCIE_UTIL_TX_BYTES,), 1000.0),
        ("pcie_rx_bytes_per_s", "nvmlDeviceGetPcieThroughput", (library.NVML_PCIE_UTIL_RX_BYTES,), 1000.0),
        ("sm_clock_mhz", "nvmlDeviceGetClockInfo", (library.NVML_CLOCK_SM,), 1.0),
        ("memory_clock_mhz", "nvmlDeviceGetClockInfo", (library.NVML_CLOCK_MEM,), 1.0),
        ("power_w", "nvmlDeviceGetPowerUsage", (), 0.001),
        ("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", (), 1.0),
    )
    for counter, function, arguments, unit in asked:
        value = ask(function, *arguments)
        if value is not None:
            yield counter, value * unit
    used = ask("nvmlDeviceGetUtilizationRates")
    if used is not None:
        yield "gpu_utilisation_percent", float(used.gpu)
        yield "memory_utilisation_percent", float(used.memory)


def as_samples(rows: Sequence[Row], strings: Sequence[str], zero_utc_ns: int) -> tuple[Samples, tuple[str, ...]]:
    """The rows on a trace's clock, whose zero is at ``zero_utc_ns``, and the strings with the counters' names."""
    if not rows:
        return Samples(), tuple(strings)
    names = sorted({row[2] for row in rows} - set(strings))
    known = {text: number for number, text in enumerate((*strings, *names))}
    table = Samples(
        time=np.array([row[0] - zero_utc_ns for row in rows], np.int64),
        device=np.array([row[1] for row in rows], np.int32),
        counter=np.array([known[row[2]] for row in rows], np.int32),
        value=np.array([row[3] for row in rows], np.float64),
    )
    return table, (*strings, *names)
