"""Recording windows with CUPTI from inside a process of the server, for hosts without Nsight Systems.

Within a window CUPTI notes kernels, copies, API calls, markers and synchronisations in its own buffers; they become
``PID.cupti`` when the window is closed (``cupti_dump``). Nodes of CUDA graphs are noted as they are created, window or
not, because graphs are captured before any window: a kernel in a replay names its node.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import re
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .cupti_buffers import Buffers, library, record_sizes
from .cupti_dump import SUFFIX, Arrays, columns_of, demangler, write_dump
from .cupti_records import STRUCTURES, layouts_of, records_of

SYSTEM_THREAD_IDS = 1
NODE_CREATED, NODE_CLONED = 13, 20
NO_NODE = -1
QUERIES = re.compile(
    r"cuda(GetDevice|SetDevice|DeviceGetAttribute|DriverGetVersion|RuntimeGetVersion|GetLastError|PeekAtLastError"
    r"|FuncGetAttributes|Occupancy|StreamIsCapturing|StreamGetCaptureInfo|StreamGetPriority|StreamGetDevice"
    r"|PointerGetAttributes|ThreadExchangeStreamCaptureMode|GetDriverEntryPoint|GetSymbol)"
    r"|cu(Ctx(Get|Set|Push|Pop)|DeviceGet|DevicePrimaryCtx|FuncGet|Occupancy|PointerGetAttribute|StreamIsCapturing"
    r"|StreamGet|KernelGet|LibraryGet|GetProcAddress|GetErrorString|ModuleGetFunction|MemPoolGetAttribute)"
)
"""Calls that only ask, hundreds of them in a step; Nsight Systems does not record them either."""


class CuptiRecorder:
    """The recorder of this process. Raises ``ImportError`` without cupti-python, ``LayoutError`` with a strange one."""

    def __init__(self) -> None:
        self._cupti: Any = importlib.import_module("cupti.cupti")
        layouts_of(self._cupti, {})
        self._cupti.set_thread_id_type(SYSTEM_THREAD_IDS)
        self._library = library()
        self._buffers = Buffers()
        self._nodes = array("q")
        self._subscriber: int | None = None
        self._opened: tuple[Path, int] | None = None

    def note_graph_nodes(self) -> None:
        """From now on note each node of a CUDA graph that is created or cloned. Call it before graphs are captured."""
        if self._subscriber is not None:
            return
        cupti = self._cupti
        # Not subscribe_v2: its structure changes with cupti-python's releases, and CUPTI takes only its own.
        self._subscriber = cupti.subscribe(self._on_node, None)
        for event in (NODE_CREATED, NODE_CLONED):
            cupti.enable_callback(1, self._subscriber, cupti.CallbackDomain.RESOURCE, event)

    def _on_node(self, userdata: Any, domain: int, event: int, data: Any) -> None:
        now = time.time_ns()
        node = self._cupti.GraphData.from_ptr(data.resource_descriptor)
        number = self._cupti.get_graph_node_id
        original = number(node.original_node) if event == NODE_CLONED else NO_NODE
        self._nodes.extend((now, threading.get_native_id(), number(node.node), original))

    def open(self, folder: Path) -> None:
        """Begin a window, whose dump goes into ``folder``."""
        if self._opened is not None:
            return
        self._buffers.clear()
        self._buffers.register(self._library)
        self._dropped()  # the count begins anew with each reading
        try:
            self._enable()
        except Exception:
            self._disable()
            raise
        self._opened = folder, time.time_ns()

    def _enable(self) -> None:
        for kind in STRUCTURES:
            self._cupti.activity_enable(kind)
        ignore = {
            "runtime_api_trace_cbid": self._cupti.activity_enable_runtime_api,
            "driver_api_trace_cbid": self._cupti.activity_enable_driver_api,
        }
        for enumeration, enable in ignore.items():
            for number in self._numbers(enumeration):
                # cupti-python may know calls that an older CUPTI does not.
                with contextlib.suppress(self._cupti.cuptiError):
                    enable(number, 0)

    def _disable(self) -> None:
        """Record nothing more, and have all buffers back."""
        self._cupti.activity_flush_all(0)
        for kind in STRUCTURES:
            self._cupti.activity_disable(kind)
        self._cupti.activity_flush_all(1)

    def close(self, when_ended: Callable[[], None] = lambda: None) -> str | None:
        """End the window and write its dump; what the user should know of it, if anything.

        ``when_ended`` is called once the GPU is done with what is recorded, long before the dump is written.

        Raises ``LayoutError`` where the records are not those of the installed cupti-python, ``OSError`` where the
        dump cannot be written; the next window can be opened all the same.
        """
        if self._opened is None:
            return None
        (folder, began), self._opened = self._opened, None
        try:
            importlib.import_module("torch").cuda.synchronize()
        finally:
            ended = time.time_ns()
            when_ended()
            self._disable()
        dropped = self._dropped()
        sizes = record_sizes(self._library, self._buffers.filled())
        records = records_of(self._buffers.filled(), layouts_of(self._cupti, sizes))
        arrays, strings = columns_of(records, demangler())
        header = {
            "pid": os.getpid(),
            "version": self._version(),
            "driver": _driver(),
            "devices": [_device(number) for number in _distinct(arrays, "device")],
            "dropped": dropped,
            "began_ns": began,
            "ended_ns": ended,
            "apis": self._apis(arrays),
            "strings": strings,
        }
        folder.mkdir(parents=True, exist_ok=True)
        write_dump(folder / f"{os.getpid()}{SUFFIX}", header, arrays | self._node_columns())
        return f"CUPTI had no room for {dropped} records: record fewer steps" if dropped else None

    def _numbers(self, enumeration: str) -> list[int]:
        return [int(one) for one in getattr(self._cupti, enumeration) if QUERIES.match(one.name)]

    def _apis(self, arrays: Arrays) -> dict[str, dict[int, str]]:
        domains = self._cupti.CallbackDomain
        return {
            table: {
                number: str(self._cupti.get_callback_name(domain, number))
                for number in np.unique(arrays[f"{table}.number"]).tolist()
            }
            for table, domain in {"runtime": domains.RUNTIME_API, "driver": domains.DRIVER_API}.items()
        }

    def _node_columns(self) -> Arrays:
        rows = np.array(self._nodes, np.int64).reshape(-1, 4)
        return {f"nodes.{name}": rows[:, column] for column, name in enumerate(("time", "thread", "node", "original"))}

    def _dropped(self) -> int:
        count = ctypes.c_size_t()
        self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(count))
        return count.value

    def _version(self) -> str:
        number = ctypes.c_uint32()
        self._library.cuptiGetVersion(ctypes.byref(number))
        return f"{number.value // 10_000}.{number.value // 100 % 100}.{number.value % 100}"


def _distinct(arrays: Arrays, column: str) -> Iterable[int]:
    found = [np.unique(values) for name, values in arrays.items() if name.endswith(f".{column}")]
    distinct: list[int] = np.unique(np.concatenate(found)).tolist() if found else []
    return distinct


def _device(number: int) -> dict[str, Any]:
    """What torch says of a GPU, as far as its release says it; memory moves data twice a clock."""
    known = importlib.import_module("torch").cuda.get_device_properties(number)
    clock_khz, width = getattr(known, "memory_clock_rate", 0), getattr(known, "memory_bus_width", 0)
    bus = [int(getattr(known, name, -1)) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    return {
        "id": number,
        "name": str(known.name),
        "sm_count": int(known.multi_processor_count),
        "memory_bandwidth": 2 * clock_khz * 1000 * width // 8 or None,
        "bus_id": "" if min(bus) < 0 else "{:04x}:{:02x}:{:02x}.0".format(*bus),
    }


def _driver() -> str:
    """The release of the NVIDIA driver, where the kernel module tells it."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else ""
