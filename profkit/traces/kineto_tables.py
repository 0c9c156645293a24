"""The tables of one Kineto file: one process, or several that somebody merged into one file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .kineto_columns import Timed, identifiers, integers, timed
from .kineto_decode import Args, Event
from .model import I32, I64, UNKNOWN, CollectiveCalls, Launches, Note, OpKind, Ops, Overheads, Ranges
from .strings import StringTable

_OP_KINDS = {
    "kernel": OpKind.KERNEL,
    "gpu_memcpy": OpKind.MEMCPY,
    "gpu_memset": OpKind.MEMSET,
    "Kernel": OpKind.KERNEL,
    "Memcpy": OpKind.MEMCPY,
    "Memset": OpKind.MEMSET,
}
_LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver", "Runtime")
_HOST_CATEGORIES = (*_LAUNCH_CATEGORIES, "user_annotation", "cpu_op", "python_function")
_NO_ARGS = Args()
_OURS = "profkit|"
"""How the plugin's ranges are named where the profiler has no domains; what follows is the range's own name."""

_DTYPE_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "complexfloat"), 8),
}

Groups = Mapping[str, list[Event]]


@dataclass(frozen=True, slots=True)
class Tables:
    """What one file holds; ``ranges`` are not nested yet. ``home`` is the pid of its main process."""

    ops: Ops
    launches: Launches
    ranges: Ranges
    collective_calls: CollectiveCalls
    overheads: Overheads
    home: int
    notes: tuple[Note, ...]


def tables(events: Sequence[Event], strings: StringTable) -> Tables:
    """The tables of ``events``; their strings go into ``strings``."""
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.ph == "X":
            groups[event.cat].append(event)
    host = timed([event for category in _LAUNCH_CATEGORIES for event in groups[category]])
    gpu = timed([event for category in _OP_KINDS for event in groups[category]])
    ours = [event for event in groups["cpu_op"] if event.name.startswith(_OURS)]
    annotated = timed([*groups["user_annotation"], *ours])
    launches = _launches(host, strings)
    home = _home(launches, groups)
    ops = _ops(gpu, launches, home, strings)
    return Tables(
        ops=ops,
        launches=launches,
        ranges=_ranges(annotated, strings),
        collective_calls=_collective_calls(gpu, ops, launches, groups, strings),
        overheads=_overheads(timed(groups["overhead"]), launches, home, strings),
        home=home,
        notes=(*_bad_times(gpu, "GPU"), *_bad_times(host, "API"), *_bad_times(annotated, "range"), *_unowned(ops)),
    )


def _bad_times(rows: Timed, what: str) -> tuple[Note, ...]:
    text = f"{rows.lost} of {rows.total} {what} records have no usable time and were left out"
    return (Note("bad_times", text),) if rows.lost else ()


def _unowned(ops: Ops) -> tuple[Note, ...]:
    count = int(np.count_nonzero(ops.pid == UNKNOWN))
    return (Note("warning", f"{count} GPU records could belong to several processes"),) if count else ()


def _args(events: Sequence[Event]) -> list[Args]:
    return [event.args or _NO_ARGS for event in events]


def _correlations(args: Sequence[Args]) -> I64:
    correlation = integers([arg.correlation for arg in args])
    return np.where(correlation > 0, correlation, UNKNOWN)


def _launches(rows: Timed, strings: StringTable) -> Launches:
    return Launches(
        start=rows.start,
        end=rows.end,
        pid=identifiers([event.pid for event in rows.events]),
        tid=identifiers([event.tid for event in rows.events]),
        correlation=_correlations(_args(rows.events)),
        api=strings.ids(event.name for event in rows.events),
    )


def _overheads(rows: Timed, launches: Launches, home: int, strings: StringTable) -> Overheads:
    """What the profiler itself did, which the file lays to no thread: it is taken to hold up the one that launches."""
    threads, calls = np.unique(launches.tid[launches.pid == home], return_counts=True)
    count = len(rows.events) if len(threads) else 0
    return Overheads(
        start=rows.start[:count],
        end=rows.end[:count],
        pid=np.full(count, home),
        tid=np.full(count, threads[np.argmax(calls)] if count else UNKNOWN),
        name=strings.ids(event.name for event in rows.events[:count]),
    )


def _ranges(rows: Timed, strings: StringTable) -> Ranges:
    count = len(rows.events)
    names = [event.name for event in rows.events]
    return Ranges(
        start=rows.start,
        end=rows.end,
        pid=identifiers([event.pid for event in rows.events]),
        tid=identifiers([event.tid for event in rows.events]),
        domain=strings.ids("profkit" if name.startswith(_OURS) else "" for name in names),
        text=strings.ids(name.removeprefix(_OURS) for name in names),
        depth=np.zeros(count, np.int32),
        parent=np.full(count, UNKNOWN),
    )


def _home(launches: Launches, groups: Groups) -> int:
    """The pid that most launches have; of a file without any, that of a host event, or else the GPU's own."""
    if len(launches):
        pids, counts = np.unique(launches.pid, return_counts=True)
        return int(pids[np.argmax(counts)])
    first = [groups[category][0].pid for category in (*_HOST_CATEGORIES, *_OP_KINDS) if groups.get(category)]
    return max(0, int(identifiers(first[:1])[0])) if first else 0


def _ops(rows: Timed, launches: Launches, home: int, strings: StringTable) -> Ops:
    args = _args(rows.events)
    own_pid = identifiers([event.pid for event in rows.events])
    correlation = _correlations(args)
    ops = Ops(
        start=rows.start,
        end=rows.end,
        device=_devices(integers([arg.device for arg in args]), own_pid),
        stream=_known(integers([arg.stream for arg in args]), identifiers([event.tid for event in rows.events])),
        pid=_owners(own_pid, correlation, launches, home),
        correlation=correlation,
        kind=np.array([_OP_KINDS[event.cat] for event in rows.events]),
        name=strings.ids(event.name for event in rows.events),
        graph_launch=np.full(len(args), UNKNOWN),
        graph_node=_positive(integers([arg.graph_node for arg in args])),
        bytes=integers([arg.bytes for arg in args]),
    )
    in_graph = (integers([arg.graph_id for arg in args]) > 0) | (ops.graph_node > 0)
    in_graph |= launch_rows(ops, _graph_launches(launches, strings)) != UNKNOWN
    return replace(ops, graph_launch=np.where(in_graph, correlation, UNKNOWN))


def _known(first: I64, second: I64) -> I64:
    return np.where(first == UNKNOWN, second, first)


def _positive(values: I64) -> I64:
    return np.where(values > 0, values, UNKNOWN)


def _devices(device: I64, own_pid: I64) -> I32:
    """The device of each op: its argument, or else its pid, which then is the device's number."""
    device = _known(device, own_pid)
    return np.where((device >= 0) & (device < 2**31), device, 0).astype(np.int32)


def _owners(own_pid: I64, correlation: I64, launches: Launches, home: int) -> I64:
    """The process that launched each op; in a merged file ``UNKNOWN`` where several have its correlation.

    Some writers give the op the pid of its process, most the number of the device.
    """
    pids = np.unique(launches.pid)
    if len(pids) < 2:
        return np.full(len(own_pid), home)
    owner = np.full(len(own_pid), UNKNOWN)
    claims = np.zeros(len(own_pid), np.int64)
    for pid in pids:
        claimed = np.isin(correlation, launches.correlation[launches.pid == pid]) & (correlation != UNKNOWN)
        owner[claimed] = pid
        claims += claimed
    owner[claims > 1] = UNKNOWN
    return np.where(np.isin(own_pid, pids), own_pid, owner)


def _graph_launches(launches: Launches, strings: StringTable) -> Launches:
    apis = [number for number, text in enumerate(strings.freeze()) if "GraphLaunch" in text]
    return launches.take(np.isin(launches.api, apis))


def launch_rows(ops: Ops, launches: Launches) -> I64:
    """The first row of ``launches`` with the pid and correlation of each op, or ``UNKNOWN``."""
    rows = np.full(len(ops), UNKNOWN, np.int64)
    for pid in np.unique(launches.pid):
        mine = np.flatnonzero((launches.pid == pid) & (launches.correlation != UNKNOWN))
        ids, first = np.unique(launches.correlation[mine], return_index=True)
        at = np.searchsorted(ids, ops.correlation)
        found = (ops.pid == pid) & np.isin(ops.correlation, ids)
        rows[found] = mine[first[at[found]]]
    return rows


def _collective_calls(
    gpu: Timed, ops: Ops, launches: Launches, groups: Groups, strings: StringTable
) -> CollectiveCalls:
    """One row per collective kernel with NCCL arguments, or per host record of one where no kernel has them.

    A kernel's row has the times and thread of its launch call: the ops of a call are those whose launch has its pid,
    tid and start. Without a launch record, tid is ``UNKNOWN`` and the times are the kernel's own.
    """
    rows = [row for row, event in enumerate(gpu.events) if event.args and event.args.collective]
    if not rows:
        return _host_calls(groups, strings)
    kernels = ops.take(np.array(rows))
    launch = launch_rows(kernels, launches)
    found = launch != UNKNOWN
    start, end, tid = kernels.start.copy(), kernels.end.copy(), np.full(len(rows), UNKNOWN, np.int64)
    start[found], end[found], tid[found] = (
        column[launch[found]] for column in (launches.start, launches.end, launches.tid)
    )
    return _calls([gpu.events[row] for row in rows], kernels.pid, tid, start, end, strings)


def _host_calls(groups: Groups, strings: StringTable) -> CollectiveCalls:
    rows = timed([event for event in groups.get("cpu_op", ()) if event.args and event.args.collective])
    pid = identifiers([event.pid for event in rows.events])
    tid = identifiers([event.tid for event in rows.events])
    return _calls(rows.events, pid, tid, rows.start, rows.end, strings)


def _calls(events: Sequence[Event], pid: I64, tid: I64, start: I64, end: I64, strings: StringTable) -> CollectiveCalls:
    args = _args(events)
    count = _counts(args)
    size = np.array([_DTYPE_BYTES.get(str(arg.dtype).lower(), UNKNOWN) for arg in args], np.int64)
    return CollectiveCalls(
        pid=pid,
        tid=tid,
        start=start,
        end=end,
        comm=strings.ids(str(arg.group or arg.group_text or "") for arg in args),
        kind=strings.ids(str(arg.collective) for arg in args),
        count=count,
        dtype=strings.ids(str(arg.dtype or "") for arg in args),
        bytes=np.where((count > 0) & (size > 0), count * size, UNKNOWN),
    )


def _counts(args: Sequence[Args]) -> I64:
    """Elements per rank as NCCL counts them: what a rank gives to an all-gather, or gets from a reduce-scatter."""
    given, got = (integers([arg.in_count for arg in args]), integers([arg.out_count for arg in args]))
    smaller = np.minimum(given, got)
    return np.where(smaller > 0, smaller, np.maximum(given, got))
