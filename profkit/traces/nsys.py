"""Nsight Systems exports (SQLite or Parquet, schema 2.9 to 3.25) as a ``Trace``.

Only what the analyzers use is read. The environment, command lines and output of the target, which such files
also hold, are never looked at: strings come in only where a kept row refers to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from .errors import InputError
from .model import (
    UNKNOWN,
    CollectiveCalls,
    Device,
    GraphNodes,
    Launches,
    Ops,
    Process,
    Ranges,
    Source,
    Trace,
)
from .nsys_devices import gpu_numbers, on_host_numbers, with_own_devices
from .nsys_notes import bad_time_notes, recorder_notes
from .nsys_ops import (
    DOMAIN,
    GRAPH,
    KERNEL,
    MASK,
    MEMCPY,
    MEMSET,
    NEEDED,
    NODES,
    NVTX,
    NVTX_EXTENDED_RANGES,
    PUSH_POP,
    RUNTIME,
    START_END,
    Reader,
    matching,
    process_of,
    read_launches,
    read_ops,
    read_overheads,
)
from .nsys_tables import Columns, NsysTables
from .ranges import nest
from .strings import StringTable

OF_EVERY_EXPORT = ("StringIds", "EXPORT_META_DATA", "META_DATA_EXPORT", "TARGET_INFO_GPU", "TARGET_INFO_SYSTEM_ENV")
"""Tables that an export holds even where nothing was recorded."""


def read_nsys(tables: NsysTables) -> Trace:
    """Read an export into a ``Trace``.

    Raises ``InputError`` where the export holds no events at all (an aborted or empty recording), or where a table
    lacks a column that nothing can stand for.
    """
    _refuse_strange(tables)
    _refuse_empty(tables)
    strings = StringTable()
    reader = Reader(tables, tables.texts("StringIds", "id", "value"), strings)
    launches, is_graph_launch = read_launches(reader)
    ops, bad = read_ops(reader, launches, is_graph_launch)
    ranges = _ranges(reader, _last_time(ops, launches))
    overheads, numbers = read_overheads(reader), gpu_numbers(tables)
    ops, apart = with_own_devices(on_host_numbers(ops, numbers), ranges, strings.freeze(), numbers)
    notes = [*recorder_notes(tables), *bad_time_notes(bad, len(ops) + bad), *apart]
    return Trace(
        ops=ops,
        launches=launches,
        ranges=ranges,
        graph_nodes=_graph_nodes(tables),
        collective_calls=_collective_calls(ranges, strings),
        overheads=overheads,
        processes=_processes(tables, ops, ranges),
        devices=_devices(tables, ops),
        notes=tuple(notes),
        strings=strings.freeze(),
        source=_source(tables),
    )


def _refuse_strange(tables: NsysTables) -> None:
    for table, needed in NEEDED.items():
        present = tables.columns(table)
        missing = [name for name in needed if name not in present]
        if present and missing:
            raise InputError(
                tables.path,
                f"table {table} has no column {missing[0]}, so its schema is one that profkit does not know",
                "export it with another release of nsys",
            )


def _refuse_empty(tables: NsysTables) -> None:
    known = [KERNEL, MEMCPY, MEMSET, GRAPH, RUNTIME, NVTX]
    if not any(tables.columns(table) for table in (*known, *OF_EVERY_EXPORT)):
        raise InputError(
            tables.path,
            "a SQLite database, but no export of Nsight Systems",
            "give a file that `nsys export --type sqlite` wrote",
        )
    if not any(tables.has_rows(table) for table in known):
        raise InputError(
            tables.path,
            "the export holds no CUDA and no NVTX events (an aborted recording or an empty capture range)",
            "record again, and check that the capture range was reached",
        )


def _last_time(ops: Ops, launches: Launches) -> int:
    return int(max(ops.end.max(initial=0), launches.end.max(initial=0)))


def _ranges(reader: Reader, last: int) -> Ranges:
    wanted = ["start", "end", "eventType", "globalTid", "domainId", "textId"]
    rows = reader.tables.integers(NVTX, wanted)
    kept = np.isin(rows["eventType"], (PUSH_POP, START_END, *NVTX_EXTENDED_RANGES))
    inline = _inline_texts(reader)
    domains = _domains(reader, rows, inline)
    rows_kept = {name: values[kept] for name, values in rows.items()}
    text = reader.named(rows_kept["textId"], fallback="")
    if inline:
        own = np.array(
            [reader.strings.id(inline[r]) if r in inline else UNKNOWN for r in np.flatnonzero(kept).tolist()]
        )
        text = np.where(own >= 0, own, text).astype(np.int32)
    pid = process_of(rows_kept["globalTid"])
    end = np.where(rows_kept["end"] == UNKNOWN, np.maximum(last, rows_kept["start"]), rows_kept["end"])
    order, depth, parent = nest(rows_kept["start"], end, pid, rows_kept["globalTid"] & MASK)
    domain = list(zip(pid.tolist(), np.maximum(rows_kept["domainId"], 0).tolist(), strict=True))
    domain_ids = {key: reader.strings.id(domains.get(key, "")) for key in dict.fromkeys(domain)}
    return Ranges(
        start=rows_kept["start"][order],
        end=np.maximum(end, rows_kept["start"])[order],
        pid=pid[order],
        tid=(rows_kept["globalTid"] & MASK)[order],
        domain=np.fromiter(map(domain_ids.__getitem__, domain), np.int32, len(domain))[order],
        text=text[order],
        depth=depth,
        parent=parent,
    )


def _inline_texts(reader: Reader) -> dict[int, str]:
    """Texts that stand in the row itself, by row number."""
    texts = reader.tables.rows(NVTX, ["text"]) if "text" in reader.tables.columns(NVTX) else []
    return {row: str(text) for row, (text,) in enumerate(texts) if text is not None}


def _domains(reader: Reader, rows: Columns, inline: Mapping[int, str]) -> dict[tuple[int, int], str]:
    """Domain names by (pid, domain id)."""
    named = np.flatnonzero((rows["eventType"] == DOMAIN) & (rows["globalTid"] != UNKNOWN))
    pid = process_of(rows["globalTid"][named]).tolist()
    domain, text_id = rows["domainId"][named].tolist(), rows["textId"][named].tolist()
    return {
        (p, d): inline.get(row, reader.values.get(text, ""))
        for row, p, d, text in zip(named.tolist(), pid, domain, text_id, strict=True)
    }


def _graph_nodes(tables: NsysTables) -> GraphNodes:
    rows = tables.integers(NODES, ["start", "globalTid", "graphNodeId", "originalGraphNodeId"])
    return GraphNodes(
        pid=process_of(rows["globalTid"]),
        tid=rows["globalTid"] & MASK,
        node=rows["graphNodeId"],
        original_node=rows["originalGraphNodeId"],
        created=rows["start"],
    )


def _collective_calls(ranges: Ranges, strings: StringTable) -> CollectiveCalls:
    """NCCL's own ranges. Exports up to 3.25 hold payload schemas but no payloads: size and communicator are unknown."""
    texts = strings.freeze()
    nccl = matching(texts, ranges.domain, re.compile(r"^NCCL$"))
    collective = nccl & matching(
        texts, ranges.text, re.compile(r"^nccl(All|Reduce|Broadcast|Send|Recv|Gather|Scatter)")
    )
    calls = ranges.take(collective)
    unknown = np.full(len(calls), UNKNOWN, np.int64)
    return CollectiveCalls(
        pid=calls.pid, tid=calls.tid, start=calls.start, end=calls.end, comm=unknown.astype(np.int32), kind=calls.text,
        count=unknown, dtype=unknown.astype(np.int32), bytes=unknown,
    )  # fmt: skip


def _processes(tables: NsysTables, ops: Ops, ranges: Ranges) -> tuple[Process, ...]:
    pids = np.union1d(np.unique(ops.pid), np.unique(ranges.pid)).tolist()
    names = {
        (global_pid >> 24) & MASK: str(name or "").split("\0")[0].split(" ")[0].rsplit("/", 1)[-1]
        for global_pid, name in tables.rows("PROCESSES", ["globalPid", "name"])
        if global_pid is not None
    }
    return tuple(Process(pid=pid, name=names.get(pid, "")) for pid in pids)


def _devices(tables: NsysTables, ops: Ops) -> tuple[Device, ...]:
    wanted = ["id", "name", "smCount", "memoryBandwidth", "busLocation"]
    known = {
        number: Device(number, name or "", sms, bandwidth, None, bus or "")
        for number, name, sms, bandwidth, bus in tables.rows("TARGET_INFO_GPU", wanted)
        if number is not None
    }
    return tuple(known.get(number, Device(number)) for number in np.unique(ops.device).tolist())


def _source(tables: NsysTables) -> Source:
    metadata: dict[str, str] = {}
    for table in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
        metadata |= {str(name): str(value) for name, value in tables.rows(table, ["name", "value"])}
    environment = dict(tables.rows("TARGET_INFO_SYSTEM_ENV", ["name", "value"]))
    return Source(
        format="nsys",
        tool="Nsight Systems",
        tool_version=metadata.get("EXPORT_PRODUCT_VERSION", ""),
        schema_version=metadata.get("EXPORT_SCHEMA_VERSION", ""),
        driver=str(environment.get("NvDriverVersion") or ""),
        file=tables.path.name,
    )
