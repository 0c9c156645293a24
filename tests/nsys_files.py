"""Nsight Systems exports, row by row, in the layout of a chosen schema version, with secrets planted where real
exports hold them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

SECRET = "hunter2-do-not-keep"
"""Stands in every place of an export where the target's environment, command line or output may stand."""

VM = 0x1000000000000
PUSH_POP, START_END, DOMAIN = 59, 60, 75


@dataclass(frozen=True)
class Layout:
    """What one schema version has: where its metadata is, which columns, and whether runtime rows come twice."""

    product: str
    metadata: str = "META_DATA_EXPORT"
    doubled: bool = False
    empty_tables: bool = False
    green: bool = True
    process_table: bool = True


LAYOUTS = {
    "2.9.1": Layout("2022.2.1.31", "EXPORT_META_DATA", doubled=True, empty_tables=True, green=False),
    "3.0.0": Layout("2022.4.2.1", "EXPORT_META_DATA", green=False),
    "3.4.1": Layout("2023.2.1.122", green=False),
    "3.13.2": Layout("2024.4.2.133"),
    "3.20.3": Layout("2025.3.2.0"),
    "3.25.0": Layout("2026.1.1.0", empty_tables=True),
}

KERNEL = (
    "start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName mangledName "
    "launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory "
    "dynamicSharedMemory gridId graphNodeId sharedMemoryLimitConfig"
)
MEMCPY = (
    "start end deviceId contextId greenContextId streamId correlationId globalPid bytes copyKind deprecatedSrcId "
    "srcKind dstKind graphNodeId virtualAddress"
)
MEMSET = "start end deviceId contextId greenContextId streamId correlationId globalPid value bytes graphNodeId memKind"
GRAPH = "start end deviceId contextId greenContextId streamId correlationId globalPid graphId graphExecId"
RUNTIME = "start end eventClass globalTid correlationId nameId returnValue callchainId"
NVTX = (
    "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value jsonTextId "
    "jsonText binaryData"
)
OVERHEAD = "start end globalTid nameId returnValue"
NODES = "start end eventClass globalTid nameId graphNodeId originalGraphNodeId"

TABLES = {
    "StringIds": "id value",
    "ProcessStreams": "globalPid filenameId contentId",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    "PROCESSES": "globalPid pid name",
    "ThreadNames": "nameId priority globalTid",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "TARGET_INFO_GPU": "vmId id name busLocation memoryBandwidth smCount",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "META_DATA_CAPTURE": "name value",
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": MEMCPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": MEMSET,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": GRAPH,
    "CUPTI_ACTIVITY_KIND_RUNTIME": RUNTIME,
    "CUDA_GRAPH_NODE_EVENTS": NODES,
    "PROFILER_OVERHEAD": OVERHEAD,
    "NVTX_EVENTS": NVTX,
}

TEXT = {"value", "name", "text", "devStateName", "busLocation", "jsonText", "binaryData"}


@dataclass
class NsysFile:
    """Collects the rows of an export; ``write`` writes them in the layout of ``schema``."""

    schema: str = "3.20.3"
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def add(self, table: str, **row: Any) -> Self:
        """A row of any table."""
        self.rows.setdefault(table, []).append(row)
        return self

    def string(self, text: str) -> int:
        """The id of ``text`` in StringIds."""
        return self.strings.setdefault(text, len(self.strings) + 1)

    def kernel(self, start: int, end: int, correlation: int | None = 1, name: str = "gemm", **more: Any) -> Self:
        """A kernel on GPU 0, stream 7, of process 100."""
        demangled = self.string(name)
        row = {"demangledName": demangled, "shortName": self.string(name.split("(")[0]), "mangledName": demangled}
        return self.add("CUPTI_ACTIVITY_KIND_KERNEL", **(activity(start, end, correlation) | row | more))

    def copy(self, start: int, end: int, correlation: int = 1, kind: int = 1, **more: Any) -> Self:
        """A memory copy; ``kind`` 1 is from host to device."""
        row = activity(start, end, correlation) | {"copyKind": kind, "bytes": 4096}
        return self.add("CUPTI_ACTIVITY_KIND_MEMCPY", **(row | more))

    def memset(self, start: int, end: int, correlation: int = 1, **more: Any) -> Self:
        """A memset."""
        return self.add("CUPTI_ACTIVITY_KIND_MEMSET", **(activity(start, end, correlation) | {"bytes": 64} | more))

    def whole_graph(self, start: int, end: int, correlation: int = 1, **more: Any) -> Self:
        """A graph that was recorded as one activity."""
        return self.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **(activity(start, end, correlation) | more))

    def call(
        self, start: int, end: int | None, correlation: int = 1, api: str = "cudaLaunchKernel_v7000",
        pid: int = 100, tid: int | None = None,
    ) -> Self:  # fmt: skip
        """A runtime call on the main thread; in a layout with doubled rows the driver's call stands inside it."""
        row = {"eventClass": 0, "globalTid": thread(pid, tid), "correlationId": correlation, "returnValue": 0}
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, nameId=self.string(api), **row)
        if LAYOUTS[self.schema].doubled and end is not None:
            inner = self.string("cuLaunchKernel" if "Kernel" in api else f"cu{api[4:].split('_')[0]}")
            times = {"start": min(start + 1, end), "end": max(end - 1, min(start + 1, end))}
            self.add("CUPTI_ACTIVITY_KIND_RUNTIME", nameId=inner, **times, **(row | {"eventClass": 67}))
        return self

    def overhead(self, start: int, end: int, name: str, pid: int = 100, tid: int | None = None) -> Self:
        """What the recorder itself did on the main thread."""
        where = {"start": start, "end": end, "globalTid": thread(pid, tid)}
        return self.add("PROFILER_OVERHEAD", **where, nameId=self.string(name), returnValue=0)

    def range(
        self, start: int, end: int | None, text: str, domain: int = 1, kind: int = PUSH_POP, registered: bool = False,
        pid: int = 100, tid: int | None = None,
    ) -> Self:  # fmt: skip
        """An NVTX range, its text in the row or in StringIds."""
        where = {"textId": self.string(text)} if registered else {"text": text}
        row = {"start": start, "end": end, "eventType": kind, "globalTid": thread(pid, tid), "domainId": domain}
        return self.add("NVTX_EVENTS", **row, **where)

    def domain(self, number: int, name: str, pid: int = 100) -> Self:
        """The name of an NVTX domain of a process."""
        row = {"start": -5, "eventType": DOMAIN, "globalTid": thread(pid, None), "domainId": number, "text": name}
        return self.add("NVTX_EVENTS", **row)

    def graph_node(self, created: int, node: int, original: int | None = None, pid: int = 100) -> Self:
        """The creation of a graph node."""
        row = {"start": created, "end": created, "eventClass": 0, "nameId": self.string("cudaGraphAddKernelNode")}
        return self.add(
            "CUDA_GRAPH_NODE_EVENTS", **row, globalTid=thread(pid, None), graphNodeId=node, originalGraphNodeId=original
        )

    def setting(self, name: str, value: str) -> Self:
        """A setting of the recorder."""
        return self.add("META_DATA_CAPTURE", name=name, value=value)

    def diagnostic(self, text: str, severity: int = 2) -> Self:
        """A message of the recorder."""
        return self.add("DIAGNOSTIC_EVENT", timestamp=0, timestampType=1, source=3, severity=severity, text=text)

    def gpu(self, number: int, name: str = "NVIDIA H200", sms: int = 132) -> Self:
        """A GPU of the host."""
        row = {"vmId": 0, "id": number, "name": name, "smCount": sms, "memoryBandwidth": 4_800_000_000_000}
        return self.add("TARGET_INFO_GPU", **row, busLocation=f"0000:0{number}:00.0")

    def with_secrets(self) -> Self:
        """Plants ``SECRET`` where real exports hold environment, command line and output."""
        block = self.string(f"SHELL=/bin/sh\0API_KEY={SECRET}\0HOME=/root\0")
        output = self.string(f"Logged in with {SECRET}\n")
        self.add("TARGET_INFO_SYSTEM_ENV", globalVid=VM, devStateName="Local", name="API_KEY", nameEnum=1, value=SECRET)
        self.add("TARGET_INFO_SYSTEM_ENV", globalVid=VM, devStateName="Local", name="EnvVars", nameEnum=2, value=SECRET)
        self.add("ProcessStreams", globalPid=process(100), filenameId=block, contentId=output)
        self.add("ThreadNames", nameId=self.string(f"worker {SECRET}"), priority=0, globalTid=thread(100, None))
        self.add("PROCESSES", globalPid=process(100), pid=100, name=f"/opt/{SECRET}/python3 serve --api-key {SECRET}")
        self.setting("PROCESS_0:COMMAND", f"serve-{SECRET}").setting("PROCESS_0:ARGUMENT_1", f"--api-key={SECRET}")
        self.setting("PROCESS_0:ENVIRONMENT_VARIABLE_1", f"API_KEY={SECRET}")
        self.diagnostic(f"The buffer was full while running serve --api-key={SECRET} /data/{SECRET}/log")
        return self

    def write(self, path: Path) -> Path:
        """Write the export to ``path``."""
        layout = LAYOUTS[self.schema]
        metadata = {"EXPORT_PRODUCT_VERSION": layout.product, "EXPORT_SCHEMA_VERSION": self.schema}
        metadata |= {"EXPORT_HOST": SECRET, "EXPORT_PARAM_INPUT_FILE": SECRET}
        tables = {**TABLES, layout.metadata: "name value"}
        rows = dict(self.rows)
        rows[layout.metadata] = [{"name": name, "value": value} for name, value in metadata.items()]
        rows["StringIds"] = [{"id": number, "value": text} for text, number in self.strings.items()]
        with sqlite3.connect(path) as connection:
            for table, names in tables.items():
                if (rows.get(table) or layout.empty_tables) and table not in self.without:
                    self._write(connection, table, names.split(), rows.get(table, []))
        connection.close()
        return path

    def _write(self, connection: sqlite3.Connection, table: str, names: list[str], rows: list[dict[str, Any]]) -> None:
        gone = {"" if LAYOUTS[self.schema].green else "greenContextId"} | set(self.without)
        kept = [name for name in names if name not in gone and f"{table}.{name}" not in gone]
        columns = ", ".join(f'"{name}" {"TEXT" if name in TEXT else "INTEGER"}' for name in kept)
        connection.execute(f'CREATE TABLE "{table}" ({columns})')
        marks = ", ".join("?" * len(kept))
        values = [[row.get(name) for name in kept] for row in rows]
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)


def process(pid: int) -> int:
    """The global id of a process: bits 24 to 47 are the process id."""
    return VM | pid << 24


def thread(pid: int, tid: int | None) -> int:
    """The global id of a thread, by default of the main thread."""
    return process(pid) | (pid if tid is None else tid)


def activity(start: int, end: int, correlation: int | None) -> dict[str, Any]:
    """What all GPU activities have, on GPU 0, stream 7, of process 100."""
    where = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": process(100)}
    return {"start": start, "end": end, "correlationId": correlation, **where}


def small_step(schema: str = "3.20.3") -> NsysFile:
    """A decode step of two kernels under profkit's ranges, with the registered text of one of them in StringIds."""
    file = NsysFile(schema).domain(1, "profkit").gpu(0)
    file.range(0, 900, "step:decode bs=1").range(10, 200, "target", registered=True)
    file.call(20, 30, 1).kernel(100, 200, 1, "nvjet_tst(int)").call(40, 50, 2).kernel(250, 300, 2, "rms_norm")
    return file


def to_parquet(file: Path, folder: Path) -> Path:
    """The tables of the SQLite export ``file`` as nsys writes them with ``--type parquetdir``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    with sqlite3.connect(file) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = connection.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
            pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), folder / f"{table}.parquet")
    connection.close()
    return folder
