"""A CUPTI without a GPU: the layouts of cupti-python 13.0.1, its module, its library, and records to deliver.

``Cupti`` stands for the module ``cupti.cupti`` and ``Library`` for ``libcupti.so``: records that are ``queued`` reach
profkit as real ones do, in buffers that the library asks the two registered callbacks for.
"""

# ruff: noqa: N802, N815 -- the names are CUPTI's
from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

from profkit.sglang.cupti_records import (
    DRIVER,
    KERNEL,
    MARKER,
    MEMCPY,
    MEMSET,
    PEER_COPY,
    RUNTIME,
    SYNCHRONIZATION,
)

END_OF_BUFFER = 12
STARTS, ENDS = 2, 4
FIELD = re.compile(r"(\S+):(\S+)@(\d+)")
CONFIG = np.dtype([("requested_executed", "u1")])
UNION = {
    "config": np.dtype({"names": ["both", "config"], "formats": ["u1", CONFIG], "offsets": [0, 0], "itemsize": 1}),
    "object": np.dtype(
        {
            "names": ["pt", "dcs"],
            "formats": [
                np.dtype([("process_id", "u4"), ("thread_id", "u4")]),
                np.dtype([("device_id", "u4"), ("context_id", "u4"), ("stream_id", "u4")]),
            ],
            "offsets": [0, 0],
            "itemsize": 12,
        }
    ),
}

LAYOUTS = {
    "activity_kernel10_dtype": (216, """
        kind:i4@0 cache_config:config@4 shared_memory_config:u1@5 registers_per_thread:u2@6
        partitioned_global_cache_requested:i4@8 partitioned_global_cache_executed:i4@12 start:u8@16 end:u8@24
        completed:u8@32 device_id:u4@40 context_id:u4@44 stream_id:u4@48 grid_x:i4@52 grid_y:i4@56 grid_z:i4@60
        block_x:i4@64 block_y:i4@68 block_z:i4@72 static_shared_memory:i4@76 dynamic_shared_memory:i4@80
        local_memory_per_thread:u4@84 local_memory_total:u4@88 correlation_id:u4@92 grid_id:i8@96 name:i8@104
        reserved0:i8@112 queued:u8@120 submitted:u8@128 launch_type:u1@136 is_shared_memory_carveout_requested:u1@137
        shared_memory_carveout_requested:u1@138 padding:u1@139 shared_memory_executed:u4@140 graph_node_id:u8@144
        shmem_limit_config:i4@152 graph_id:u4@156 p_access_policy_window:i8@160 channel_id:u4@168 channel_type:i4@172
        cluster_x:u4@176 cluster_y:u4@180 cluster_z:u4@184 cluster_scheduling_policy:u4@188 local_memory_total_v2:u8@192
        max_potential_cluster_size:u4@200 max_active_clusters:u4@204 is_device_launched:u1@208 padding3:7u1@209"""),
    "activity_memcpy6_dtype": (96, """
        kind:i4@0 copy_kind:u1@4 src_kind:u1@5 dst_kind:u1@6 flags_:u1@7 bytes:u8@8 start:u8@16 end:u8@24
        device_id:u4@32 context_id:u4@36 stream_id:u4@40 correlation_id:u4@44 runtime_correlation_id:u4@48 pad:u4@52
        reserved0:i8@56 graph_node_id:u8@64 graph_id:u4@72 channel_id:u4@76 channel_type:i4@80 is_device_launched:u1@84
        pad2:3u1@85 copy_count:u8@88"""),
    "activity_memcpy_pto_p4_dtype": (96, """
        kind:i4@0 copy_kind:u1@4 src_kind:u1@5 dst_kind:u1@6 flags_:u1@7 bytes:u8@8 start:u8@16 end:u8@24
        device_id:u4@32 context_id:u4@36 stream_id:u4@40 src_device_id:u4@44 src_context_id:u4@48 dst_device_id:u4@52
        dst_context_id:u4@56 correlation_id:u4@60 reserved0:i8@64 graph_node_id:u8@72 graph_id:u4@80 channel_id:u4@84
        channel_type:i4@88"""),
    "activity_memset4_dtype": (88, """
        kind:i4@0 value:u4@4 bytes:u8@8 start:u8@16 end:u8@24 device_id:u4@32 context_id:u4@36 stream_id:u4@40
        correlation_id:u4@44 flags_:u2@48 memory_kind:u2@50 pad:u4@52 reserved0:i8@56 graph_node_id:u8@64 graph_id:u4@72
        channel_id:u4@76 channel_type:i4@80 is_device_launched:u1@84 pad2:3u1@85"""),
    "activity_api_dtype": (40, """
        kind:i4@0 cbid:u4@4 start:u8@8 end:u8@16 process_id:u4@24 thread_id:u4@28 correlation_id:u4@32
        return_value:u4@36"""),
    "activity_marker2_dtype": (56, """
        kind:i4@0 flags_:i4@4 timestamp:u8@8 id:u4@16 object_kind:i4@20 object_id:object@24 pad:u4@36 name:i8@40
        domain:i8@48"""),
    "activity_synchronization2_dtype": (56, """
        kind:i4@0 type:i4@4 start:u8@8 end:u8@16 correlation_id:u4@24 context_id:u4@28 stream_id:u4@32
        cuda_event_id:u4@36 cuda_event_sync_id:u8@40 return_value:u4@48 pad:u4@52"""),
}  # fmt: skip
"""Length in bytes, and each field with its type and the byte at which it begins, of the records of CUPTI 13.0.1."""


def layout(size: int, text: str) -> np.dtype[Any]:
    """The numpy type of a record that is written like those in ``LAYOUTS``."""
    found = [match.groups() for match in FIELD.finditer(text)]
    formats = [UNION.get(kind, kind) for _, kind, _ in found]
    names, offsets = [name for name, _, _ in found], [int(place) for _, _, place in found]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


DTYPES = {name: layout(*written) for name, written in LAYOUTS.items()}
BY_KIND = {
    KERNEL: DTYPES["activity_kernel10_dtype"],
    MEMCPY: DTYPES["activity_memcpy6_dtype"],
    PEER_COPY: DTYPES["activity_memcpy_pto_p4_dtype"],
    MEMSET: DTYPES["activity_memset4_dtype"],
    RUNTIME: DTYPES["activity_api_dtype"],
    DRIVER: DTYPES["activity_api_dtype"],
    MARKER: DTYPES["activity_marker2_dtype"],
    SYNCHRONIZATION: DTYPES["activity_synchronization2_dtype"],
}


class Names:
    """Strings at fixed addresses, as CUPTI's records refer to them."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def at(self, text: str | None) -> int:
        """The address of ``text``; 0 for none."""
        if text is None:
            return 0
        held = self._held.setdefault(text, ctypes.create_string_buffer(text.encode()))
        return ctypes.addressof(held)


def record(kind: int, names: Names | None = None, **values: Any) -> bytes:
    """One record; ``name`` and ``domain`` are strings, ``thread`` that of a marker."""
    row = np.zeros((), BY_KIND[kind])
    row["kind"] = kind
    for field, value in values.items():
        if field == "thread":
            row["object_id"]["pt"]["thread_id"] = value
        elif field in ("name", "domain"):
            row[field] = (names or Names()).at(value)
        else:
            row[field] = value
    return row.tobytes()


def kernel(names: Names, name: str | None, start: int, end: int, correlation: int, **more: Any) -> bytes:
    """A kernel on stream 7 of device 0."""
    on = {"stream_id": 7, "device_id": 0, **more}
    return record(KERNEL, names, name=name, start=start, end=end, correlation_id=correlation, **on)


def call(start: int, end: int, correlation: int, cbid: int, thread: int = 500, kind: int = RUNTIME) -> bytes:
    """An API call of ``thread``."""
    return record(kind, start=start, end=end, correlation_id=correlation, cbid=cbid, thread_id=thread)


def opens(names: Names, text: str, time: int, number: int, thread: int = 500) -> bytes:
    """The start marker of a range in the domain ``profkit``."""
    return record(MARKER, names, flags_=STARTS, timestamp=time, id=number, thread=thread, name=text, domain="profkit")


def closes(time: int, number: int, thread: int = 500) -> bytes:
    """The end marker of a range, which has no name."""
    return record(MARKER, flags_=ENDS, timestamp=time, id=number, thread=thread)


def buffers(records: Iterable[bytes], size: int) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """``records`` in buffers of at most ``size`` bytes, none cut in two."""
    held = bytearray()
    for one in records:
        if len(held) + len(one) > size:
            yield np.frombuffer(held, np.uint8)
            held = bytearray()
        held += one
    if held:
        yield np.frombuffer(held, np.uint8)


class Library:
    """``libcupti.so``; ``sizes`` are the lengths of its records by kind, where they are not those of 13.0.1."""

    def __init__(self, sizes: dict[int, int] | None = None) -> None:
        self.sizes = sizes or {kind: dtype.itemsize for kind, dtype in BY_KIND.items()}
        self.refuses = 0
        self.delivered = 0
        self._callbacks: Any = None

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:
        if not self.refuses:
            self._callbacks = requested, completed
        return self.refuses

    def cuptiActivityGetNextRecord(self, buffer: Any, size: Any, found: Any) -> int:
        record, place = found._obj, buffer.value
        if record.value:
            place = record.value + self.sizes[ctypes.c_uint32.from_address(record.value).value]
        if place >= buffer.value + size.value:
            return END_OF_BUFFER
        record.value = place
        return 0

    def cuptiGetVersion(self, found: Any) -> int:
        found._obj.value = 130_001
        return 0

    def deliver(self, records: Sequence[bytes]) -> None:
        """Write ``records`` into as many buffers as they need, and give those back."""
        requested, completed = self._callbacks
        left = list(records)
        while left:
            place, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(1)
            requested(ctypes.byref(place), ctypes.byref(size), ctypes.byref(most))
            assert place.value and not most.value
            used = 0
            while left and used + len(left[0]) <= size.value:
                ctypes.memmove(place.value + used, left[0], len(left[0]))
                used += len(left.pop(0))
            assert used, "a buffer too small for a record"
            completed(None, 0, place, size, used)
            self.delivered += 1


class RuntimeCalls(IntEnum):
    INVALID = 0
    cudaGetDevice_v3020 = 17
    cudaLaunchKernel_v7000 = 211
    cudaStreamIsCapturing_v10000 = 317
    cudaGraphLaunch_v10000 = 311


class DriverCalls(IntEnum):
    INVALID = 0
    cuCtxGetCurrent = 304
    cuCtxSynchronize = 17
    cuLaunchKernelEx = 652


class CallbackDomain(IntEnum):
    DRIVER_API = 1
    RUNTIME_API = 2
    RESOURCE = 3


class cuptiError(Exception):  # noqa: N801
    """What the module raises where CUPTI returns a status."""


class Cupti:
    """The module ``cupti.cupti``; records that are ``queued`` arrive with the next flush, if their kind is enabled."""

    CallbackDomain = CallbackDomain
    cuptiError = cuptiError
    runtime_api_trace_cbid = RuntimeCalls
    driver_api_trace_cbid = DriverCalls

    def __init__(self, library: Library, dtypes: dict[str, np.dtype[Any]] = DTYPES) -> None:
        self.library = library
        self.dtypes = dict(dtypes)
        self.queued: list[bytes] = []
        self.dropped = 0
        self.enabled: Counter[int] = Counter()
        self.thread_ids = 0
        self.silenced: list[str] = []
        self.subscribers: list[Any] = []
        self.events: list[tuple[int, int, int, int]] = []
        self.fails_at: int | None = None
        self.unknown: set[int] = set()

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.dtypes]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["dtypes"][name]
        except KeyError:
            raise AttributeError(name) from None

    def set_thread_id_type(self, kind: int) -> None:
        self.thread_ids = kind

    def activity_enable(self, kind: int) -> None:
        if kind == self.fails_at:
            raise cuptiError(f"kind {kind} is not compatible")
        self.enabled[kind] += 1

    def activity_disable(self, kind: int) -> None:
        self.enabled.pop(kind, None)

    def activity_enable_runtime_api(self, number: int, enable: int) -> None:
        self._silence(RuntimeCalls(number), enable)

    def activity_enable_driver_api(self, number: int, enable: int) -> None:
        self._silence(DriverCalls(number), enable)

    def _silence(self, one: RuntimeCalls | DriverCalls, enable: int) -> None:
        """Refused for the numbers in ``unknown``: those of calls that an older CUPTI does not know."""
        assert not enable
        if one in self.unknown:
            raise cuptiError("ERROR_INVALID_PARAMETER (1)")
        self.silenced.append(one.name)

    def activity_flush_all(self, flag: int) -> None:
        ready = [one for one in self.queued if int.from_bytes(one[:4], "little") in self.enabled]
        self.queued.clear()
        self.library.deliver(ready)

    def activity_get_num_dropped_records(self, context: int, stream: int, found: int) -> None:
        ctypes.c_size_t.from_address(found).value = self.dropped
        self.dropped = 0

    def subscribe(self, callback: Any, userdata: Any) -> int:
        self.subscribers.append(callback)
        return 9

    def enable_callback(self, enable: int, subscriber: int, domain: int, event: int) -> None:
        self.events.append((enable, subscriber, domain, event))

    def node_event(self, event: int, node: int, original: int = 0) -> None:
        """A node of a CUDA graph is created or cloned."""
        described = SimpleNamespace(node=node, original_node=original)
        for callback in self.subscribers:
            callback(None, CallbackDomain.RESOURCE, event, SimpleNamespace(resource_descriptor=described))

    GraphData = SimpleNamespace(from_ptr=lambda described: described)

    def get_graph_node_id(self, node: int) -> int:
        return node << 32

    def get_callback_name(self, domain: int, number: int) -> str:
        return (RuntimeCalls if domain == CallbackDomain.RUNTIME_API else DriverCalls)(number).name
