"""Which of the host's GPUs are those of a trace, and what NVML knows of them that the recorder does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from profkit.traces import Device, Trace

from .machine import Row


def known_devices(trace: Trace, machine: Mapping[str, Any], ordinals: Sequence[int]) -> tuple[Device, ...]:
    """The trace's GPUs with bus, DRAM bandwidth and link, as far as recorder or ``machine`` tell them.

    The PCI bus tells which of the machine's GPUs one is. A recorder that names no bus, as the PyTorch profiler, has
    CUDA's numbers: ``ordinals`` are those of the machine's used GPUs, in the same order.
    """
    devices = trace.devices
    if not any(device.bus_id for device in devices):
        by_number = {gpu["index"]: gpu for gpu in machine.get("gpus", [])}
        used = {cuda: by_number.get(number) for cuda, number in zip(ordinals, machine.get("used", []), strict=False)}
        devices = tuple(_on_bus(device, used.get(device.device)) for device in devices)
    return tuple(_with_bandwidths(device, machine) for device in devices)


def on_devices_of(devices: Sequence[Device], rows: Sequence[Row], machine: Mapping[str, Any]) -> list[Row]:
    """NVML's samples under the trace's numbers of its ``devices``: NVML counts all of the host's.

    Samples of other GPUs are left out; where no device names its bus, NVML's numbers stay.
    """
    if not any(device.bus_id for device in devices):
        return list(rows)
    numbers = {
        gpu["index"]: device.device
        for gpu in machine.get("gpus", [])
        for device in devices
        if _same_bus(gpu["bus_id"], device.bus_id)
    }
    return [(time, numbers[gpu], counter, value) for time, gpu, counter, value in rows if gpu in numbers]


def _on_bus(device: Device, gpu: Mapping[str, Any] | None) -> Device:
    """``device`` with the bus of ``gpu``, unless their names say that they are not the same."""
    if gpu is None or (device.name and gpu.get("name") and device.name != gpu["name"]):
        return device
    return replace(device, bus_id=gpu["bus_id"].lower()[-len("0000:00:00.0") :])


def _with_bandwidths(device: Device, machine: Mapping[str, Any]) -> Device:
    """DRAM's, and that of the link that joins the GPU to its peers, where it can only be PCIe."""
    gpu: Mapping[str, Any] = next(
        (one for one in machine.get("gpus", []) if _same_bus(one["bus_id"], device.bus_id)), {}
    )
    over_nvlink = any(pair["nvlink"] for pair in machine.get("topology", []))
    link = None if over_nvlink and not machine.get("p2p_disabled") else gpu.get("pcie_bytes_per_s")
    return replace(
        device,
        memory_bandwidth=device.memory_bandwidth or gpu.get("memory_bytes_per_s"),
        link_bandwidth=device.link_bandwidth or link,
    )


def _same_bus(one: str, other: str) -> bool:
    """NVML writes eight digits of the PCI domain, nsys four."""
    return bool(one) and bool(other) and one.lower()[-10:] == other.lower()[-10:]
