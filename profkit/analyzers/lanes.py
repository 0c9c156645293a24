"""What lies in the lanes of a timeline: host ranges, API calls, streams, collectives and gaps of each rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from profkit.traces import I8, I32, I64, UNKNOWN, Index

from .arrays import distinct
from .attribution import Attribution
from .owners import pair_keys
from .partition import blocking_calls
from .shortnames import short_name
from .steps import STEP
from .vocabulary import CLASS, PARTS

KINDS = ("ranges", "api", "stream", "collective", "gap")
API_PLAIN, API_LAUNCH, API_BLOCKING = range(3)


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane: ``kind`` is one of ``KINDS``, ``rows`` the number of rows that nesting needs."""

    rank: int
    device: int
    kind: str
    label: str
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What is drawn, ordered by lane and start; times are nanoseconds from the start of the timeline.

    ``code`` is by the lane's kind: a class (stream, collective), a part (gap), or ``API_*`` (api). ``phase`` is a
    phase code or ``UNKNOWN``. ``split`` is how much of a collective is waiting for the last rank (``UNKNOWN`` where
    not known); ``launch`` the position among the items of the call that launched an op, ``UNKNOWN`` if not shown.
    """

    lane: I32
    start: I64
    length: I64
    row: I32
    label: I64
    name: I64
    code: I8
    phase: I8
    split: I64
    launch: I64

    def __len__(self) -> int:
        return len(self.start)


@dataclass(slots=True)
class LaneBuilder:
    """Lanes and their items between ``start`` and ``end``, as they are found; each string is kept once."""

    start: int
    end: int
    lanes: list[Lane] = field(default_factory=list)
    blocks: list[dict[str, I64]] = field(default_factory=list)
    sources: list[tuple[str, I64]] = field(default_factory=list)
    strings: dict[str, int] = field(default_factory=dict)

    def texts(self, ids: I32 | I64, table: tuple[str, ...], short: bool) -> tuple[I64, I64]:
        """Ids of the labels and of the full names of ``ids`` into ``table``."""
        used, place = np.unique(ids, return_inverse=True)
        names = [table[number] if number >= 0 else "(no name)" for number in used.tolist()]
        labels = [short_name(name) if short else name for name in names]
        keep = self.strings.setdefault
        label = np.array([keep(text, len(self.strings)) for text in labels], np.int64)
        name = np.array([keep(text, len(self.strings)) for text in names], np.int64)
        return label[place], name[place]

    def add(self, lane: Lane, table: str, source: I64, start: I64, end: I64, **columns: I64) -> None:
        """Add ``lane`` with the rows ``source`` of ``table``, clipped to the timeline; without rows, none."""
        if not len(source):
            return
        begin = np.maximum(start, self.start)
        block = {name: np.full(len(source), UNKNOWN, np.int64) for name in ("phase", "code", "split")}
        block |= {"row": np.zeros(len(source), np.int64), **columns}
        block["lane"] = np.full(len(source), len(self.lanes), np.int64)
        block["start"] = begin - self.start
        block["length"] = np.minimum(end, self.end) - begin
        order = np.lexsort((-block["length"], block["start"]))
        self.lanes.append(lane)
        self.blocks.append({name: column[order] for name, column in block.items()})
        self.sources.append((table, source[order]))

    def items(self, attribution: Attribution) -> Items:
        """All items, with the positions of the launch calls of ops."""
        joined = {name: np.concatenate([block[name] for block in self.blocks]) for name in self.blocks[0]}
        position = np.full(len(attribution.trace.launches) + 1, UNKNOWN, np.int64)
        at = 0
        for table, source in self.sources:
            if table == "launches":
                position[source] = at + np.arange(len(source))
            at += len(source)
        launch = [
            position[attribution.launch[source]] if table == "ops" else np.full(len(source), UNKNOWN, np.int64)
            for table, source in self.sources
        ]
        types = {"lane": np.int32, "row": np.int32, "code": np.int8, "phase": np.int8}
        return Items(
            **{name: column.astype(types.get(name, np.int64)) for name, column in joined.items()},
            launch=np.concatenate(launch),
        )


def add_device(builder: LaneBuilder, attribution: Attribution, device: int, rank: int, split: I64) -> None:
    """The lanes of one rank, from the host down to the gaps of its GPU."""
    for lane, thread, main in _threads(attribution, device, rank):
        _add_host(builder, attribution, lane, thread, main)
    ops = attribution.trace.ops
    seen = np.flatnonzero((ops.device == device) & (ops.start < builder.end) & (ops.end > builder.start))
    collective = attribution.kernel_class[seen] == CLASS["collective"]
    for stream in np.unique(ops.stream[seen[~collective]]).tolist():
        rows = seen[~collective & (ops.stream[seen] == stream)]
        _add_ops(builder, attribution, Lane(rank, device, "stream", f"stream {stream}", 1), rows, split)
    _add_ops(builder, attribution, Lane(rank, device, "collective", "collectives", 1), seen[collective], split)
    _add_gaps(builder, attribution, Lane(rank, device, "gap", "gaps", 1))


def _threads(attribution: Attribution, device: int, rank: int) -> Iterator[tuple[Lane, tuple[int, int], bool]]:
    """The threads that launched decode ops of ``device``: the busiest, then those with a twentieth of its launches."""
    launches = attribution.trace.launches
    mine = (attribution.trace.ops.device == device) & attribution.in_decode & (attribution.launch >= 0)
    rows = distinct(attribution.launch[mine])
    (threads,) = pair_keys((launches.pid[rows], launches.tid[rows]))
    _, first, count = np.unique(threads, return_index=True, return_counts=True)
    for place in np.argsort(-count, kind="stable").tolist():
        if count[place] * 20 >= count.max():
            row = rows[first[place]]
            pid, tid = int(launches.pid[row]), int(launches.tid[row])
            main = bool(count[place] == count.max())
            yield Lane(rank, device, "api", "API calls" if main else f"API, thread {tid}", 1), (pid, tid), main


def _add_host(builder: LaneBuilder, attribution: Attribution, lane: Lane, thread: tuple[int, int], main: bool) -> None:
    trace = attribution.trace
    if main:
        ranges = trace.ranges
        rows = _of_thread(builder, thread, ranges.pid, ranges.tid, ranges.start, ranges.end)
        depth = ranges.depth[rows].astype(np.int64)
        label, name = builder.texts(ranges.text[rows], trace.strings, False)
        tall = Lane(lane.rank, lane.device, "ranges", "host ranges", int(depth.max(initial=0)) + 1)
        phase = _range_phases(attribution, rows)
        builder.add(
            tall, "ranges", rows, ranges.start[rows], ranges.end[rows], row=depth, label=label, name=name, phase=phase
        )
    launches = trace.launches
    rows = _of_thread(builder, thread, launches.pid, launches.tid, launches.start, launches.end)
    owns = np.zeros(len(launches), np.bool_)
    owns[attribution.launch[attribution.launch >= 0]] = True
    code = np.where(blocking_calls(trace, attribution.rules)[rows], API_BLOCKING, owns[rows].astype(np.int64))
    label, name = builder.texts(launches.api[rows], trace.strings, False)
    builder.add(lane, "launches", rows, launches.start[rows], launches.end[rows], label=label, name=name, code=code)


def _range_phases(attribution: Attribution, rows: Index) -> I64:
    """The phase that each range gives to the ops launched directly in it, ``UNKNOWN`` for steps and other ranges."""
    labels, ranges = attribution.plan.labels, attribution.trace.ranges
    phases = zip(labels.pid.tolist(), labels.tid.tolist(), labels.start.tolist(), labels.phase.tolist(), strict=True)
    given = {(pid, tid, start): phase for pid, tid, start, phase in phases}
    asked = zip(ranges.pid[rows].tolist(), ranges.tid[rows].tolist(), ranges.start[rows].tolist(), strict=True)
    phase = np.array([given.get(key, UNKNOWN) for key in asked], np.int64)
    step = np.array([STEP.match(attribution.trace.strings[text]) is not None for text in ranges.text[rows].tolist()])
    return np.where(step, UNKNOWN, phase) if len(rows) else phase


def _of_thread(builder: LaneBuilder, thread: tuple[int, int], pid: I64, tid: I64, start: I64, end: I64) -> Index:
    return np.flatnonzero(
        (pid == thread[0]) & (tid == thread[1]) & (start < builder.end) & (end > builder.start) & (end > start)
    )


def _add_ops(builder: LaneBuilder, attribution: Attribution, lane: Lane, rows: Index, split: I64) -> None:
    ops = attribution.trace.ops
    label, name = builder.texts(ops.name[rows], attribution.trace.strings, True)
    builder.add(
        lane,
        "ops",
        rows,
        ops.start[rows],
        ops.end[rows],
        label=label,
        name=name,
        code=attribution.kernel_class[rows].astype(np.int64),
        phase=attribution.phase[rows].astype(np.int64),
        split=split[rows],
    )


def _add_gaps(builder: LaneBuilder, attribution: Attribution, lane: Lane) -> None:
    timeline = attribution.devices[lane.device]
    gap = np.array([part.startswith("gap_") for part in PARTS])[timeline.part]
    rows = np.flatnonzero(gap & (timeline.start < builder.end) & (timeline.end > builder.start))
    code = timeline.part[rows].astype(np.int64)
    label, name = builder.texts(code, PARTS, False)
    phase = timeline.phase[rows].astype(np.int64)
    builder.add(
        lane, "gaps", rows, timeline.start[rows], timeline.end[rows], label=label, name=name, code=code, phase=phase
    )
