"""``Trace``: the one type that is read, saved and analysed.

Every table is a set of equally long numpy columns; times are int64 nanoseconds on one clock per trace.
Strings are held once in ``Trace.strings`` and referred to by index. A column that may be unknown holds
``UNKNOWN`` (-1) where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Self

import numpy as np
import numpy.typing as npt

UNKNOWN = -1

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


class OpKind(IntEnum):
    """What a GPU activity is; ``GRAPH`` is a whole graph launch whose nodes were not recorded."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    GRAPH = 3


def _column(dtype: str) -> Any:
    return field(default_factory=lambda: np.empty(0, dtype), metadata={"dtype": dtype})


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Equally long, read-only columns."""

    def __post_init__(self) -> None:
        lengths = set()
        for column in fields(self):
            values = np.ascontiguousarray(getattr(self, column.name), dtype=column.metadata["dtype"])
            values.flags.writeable = False
            object.__setattr__(self, column.name, values)
            lengths.add(len(values))
        if len(lengths) > 1:
            raise ValueError(f"columns of {type(self).__name__} differ in length: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    @classmethod
    def dtypes(cls) -> dict[str, str]:
        """Column names and their numpy types, in order."""
        return {column.name: column.metadata["dtype"] for column in fields(cls)}

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name."""
        return {column.name: getattr(self, column.name) for column in fields(self)}

    def take(self, index: npt.NDArray[Any] | slice) -> Self:
        """The rows at ``index`` (positions, a mask or a slice)."""
        return type(self)(**{name: values[index] for name, values in self.columns().items()})

    @classmethod
    def join(cls, tables: Sequence[Self]) -> Self:
        """The rows of ``tables``, one after the other."""
        if not tables:
            return cls()
        return cls(**{name: np.concatenate([getattr(t, name) for t in tables]) for name in cls.dtypes()})


@dataclass(frozen=True, slots=True, eq=False)
class Ops(Table):
    """GPU activities. ``graph_launch`` is the correlation of the owning graph launch; ``name`` a string id."""

    start: I64 = _column("int64")
    end: I64 = _column("int64")
    device: I32 = _column("int32")
    stream: I64 = _column("int64")
    pid: I64 = _column("int64")
    correlation: I64 = _column("int64")
    kind: I8 = _column("int8")
    name: I32 = _column("int32")
    graph_launch: I64 = _column("int64")
    graph_node: I64 = _column("int64")
    bytes: I64 = _column("int64")


@dataclass(frozen=True, slots=True, eq=False)
class Launches(Table):
    """Host API calls, also those that enqueue nothing (synchronisation, queries); ``api`` is a string id."""

    start: I64 = _column("int64")
    end: I64 = _column("int64")
    pid: I64 = _column("int64")
    tid: I64 = _column("int64")
    correlation: I64 = _column("int64")
    api: I32 = _column("int32")


@dataclass(frozen=True, slots=True, eq=False)
class Overheads(Table):
    """What CUPTI calls overhead of a host thread: a recorder's own work, mostly; ``name`` is a string id."""

    start: I64 = _column("int64")
    end: I64 = _column("int64")
    pid: I64 = _column("int64")
    tid: I64 = _column("int64")
    name: I32 = _column("int32")


@dataclass(frozen=True, slots=True, eq=False)
class Ranges(Table):
    """Annotated host ranges. ``domain`` and ``text`` are string ids; ``parent`` is a row of this table.

    ``depth`` and ``parent`` follow the nesting on one thread: the parent is the latest-started range of the
    thread that is still open; see ``profkit.traces.ranges``.
    """

    start: I64 = _column("int64")
    end: I64 = _column("int64")
    pid: I64 = _column("int64")
    tid: I64 = _column("int64")
    domain: I32 = _column("int32")
    text: I32 = _column("int32")
    depth: I32 = _column("int32")
    parent: I64 = _column("int64")


@dataclass(frozen=True, slots=True, eq=False)
class GraphNodes(Table):
    """Creations of graph nodes: ``original_node`` is the node that was cloned; ``created`` a host time."""

    pid: I64 = _column("int64")
    tid: I64 = _column("int64")
    node: I64 = _column("int64")
    original_node: I64 = _column("int64")
    created: I64 = _column("int64")


@dataclass(frozen=True, slots=True, eq=False)
class ModuleCalls(Table):
    """Calls of modules while graphs were captured, on the monotonic clock of their process, not the trace's own.

    ``graph`` numbers the captures of a process and ``batch_size`` is the size captured; ``name`` and ``role``
    (``target`` or ``draft``) are string ids; calls of depth 0 lie in no other.
    """

    pid: I64 = _column("int64")
    tid: I64 = _column("int64")
    graph: I32 = _column("int32")
    batch_size: I64 = _column("int64")
    role: I32 = _column("int32")
    start: I64 = _column("int64")
    end: I64 = _column("int64")
    depth: I32 = _column("int32")
    name: I32 = _column("int32")


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveCalls(Table):
    """Host calls of a collective library. ``comm``, ``kind`` and ``dtype`` are string ids; ``bytes`` per rank."""

    pid: I64 = _column("int64")
    tid: I64 = _column("int64")
    start: I64 = _column("int64")
    end: I64 = _column("int64")
    comm: I32 = _column("int32")
    kind: I32 = _column("int32")
    count: I64 = _column("int64")
    dtype: I32 = _column("int32")
    bytes: I64 = _column("int64")


@dataclass(frozen=True, slots=True, eq=False)
class Samples(Table):
    """Counter samples (NVML, CUPTI); ``counter`` is a string id such as ``pcie_rx_bytes_per_s``."""

    time: I64 = _column("int64")
    device: I32 = _column("int32")
    counter: I32 = _column("int32")
    value: F64 = _column("float64")


@dataclass(frozen=True, slots=True)
class Process:
    """An engine process; ``rank`` is ``None`` where the recording does not tell."""

    pid: int
    rank: int | None = None
    role: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. Bandwidths in bytes per second; ``None`` where the recording does not tell."""

    device: int
    name: str = ""
    sm_count: int | None = None
    memory_bandwidth: int | None = None
    link_bandwidth: int | None = None
    bus_id: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """What the recorder or reader said of the recording, such as ``("dropped_records", "1204")``.

    Keys in use: ``graph_mode`` (``node`` or ``graph``), ``dropped_records``, ``truncated``, ``warning``,
    ``bad_times``, ``world_size``, ``expected_pid``.
    """

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where a trace came from: ``format`` is ``nsys``, ``kineto``, ``cupti`` or ``synthetic``."""

    format: str
    tool: str = ""
    tool_version: str = ""
    schema_version: str = ""
    driver: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Decode steps as the engine's host timed them: from the start of one to that of the next, in nanoseconds.

    ``low_ns`` and ``high_ns`` hold the middle 80 % of ``steps`` such times of the rank whose median is the longest.
    ``context`` is the median of the tokens of context that all requests of a step have together, where it was counted.
    """

    median_ns: int
    low_ns: int
    high_ns: int
    steps: int
    context: int | None = None


@dataclass(frozen=True, slots=True)
class RecordingCost:
    """How many times as long a decode step is with the recorder as without, at the same contexts, by the host's clock.

    ``error`` is half the width of the 95 % interval of ``ratio``; ``steps`` were compared. It rests on how far
    ``windows`` without the recorder, as long as the recorded one, lie apart; if 0, on the recorded window alone.
    """

    ratio: float
    error: float
    steps: int
    windows: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """What is known of the served run apart from the recording itself.

    ``tokens_per_s`` was measured without a recorder: the mean of the rates ``tokens_per_s_before`` and
    ``tokens_per_s_after`` the recording, where it was counted twice. ``graph_batch_sizes`` are the captured batch
    sizes.
    ``step_times`` are those of decode steps of ``concurrency`` requests while nothing was recorded,
    ``step_times_recorded`` those of the same server within the recording; ``recording_cost`` compares both at the same
    contexts, which the recorded steps need not share with all others.
    ``recorder`` is the backend that recorded (``nsys``, ``cupti``, ``torch``). ``counter_interval_ns`` is how far apart
    hardware counters were asked for, ``None`` where none were sampled; ``counter_clock_error_ns`` is how exactly their
    times are known where their clock was not UTC, ``None`` where it was. ``model`` is the target's short name, such as
    ``Kimi-K2.6``, or ``qwen3-235b-a22b (12 layers)`` of one without weights.
    """

    config: str = ""
    concurrency: int | None = None
    graphs: bool | None = None
    accept_len: float | None = None
    accept_len_source: str = ""
    tokens_per_s: float | None = None
    block_size: int | None = None
    graph_batch_sizes: tuple[int, ...] = ()
    engine: str = ""
    note: str = ""
    step_times: StepTimes | None = None
    step_times_recorded: StepTimes | None = None
    recording_cost: RecordingCost | None = None
    recorder: str = ""
    counter_interval_ns: int | None = None
    counter_clock_error_ns: int | None = None
    tokens_per_s_before: float | None = None
    tokens_per_s_after: float | None = None
    model: str = ""


TABLES: Mapping[str, type[Table]] = {
    "ops": Ops,
    "launches": Launches,
    "ranges": Ranges,
    "graph_nodes": GraphNodes,
    "module_calls": ModuleCalls,
    "collective_calls": CollectiveCalls,
    "samples": Samples,
    "overheads": Overheads,
}

STRING_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "ops": ("name",),
    "launches": ("api",),
    "ranges": ("domain", "text"),
    "graph_nodes": (),
    "module_calls": ("name", "role"),
    "collective_calls": ("comm", "kind", "dtype"),
    "samples": ("counter",),
    "overheads": ("name",),
}


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A recording of an engine: GPU activities, host calls, annotated ranges, and what is known about them."""

    ops: Ops
    launches: Launches = field(default_factory=Launches)
    ranges: Ranges = field(default_factory=Ranges)
    graph_nodes: GraphNodes = field(default_factory=GraphNodes)
    module_calls: ModuleCalls = field(default_factory=ModuleCalls)
    collective_calls: CollectiveCalls = field(default_factory=CollectiveCalls)
    samples: Samples = field(default_factory=Samples)
    overheads: Overheads = field(default_factory=Overheads)
    processes: tuple[Process, ...] = ()
    devices: tuple[Device, ...] = ()
    notes: tuple[Note, ...] = ()
    strings: tuple[str, ...] = ()
    source: Source = Source("synthetic")
    run: Run = Run()

    def tables(self) -> dict[str, Table]:
        """The columnar tables by name."""
        return {name: getattr(self, name) for name in TABLES}

    def notes_of(self, key: str) -> tuple[str, ...]:
        """The texts of the notes under ``key``."""
        return tuple(note.text for note in self.notes if note.key == key)

    def with_run(self, run: Run) -> Trace:
        """The same recording with ``run`` attached."""
        return replace(self, run=run)

    def check(self) -> None:
        """Raise ``ValueError`` where an invariant does not hold.

        No activity ends before it starts; string ids are in range; parents lie before and around children.
        """
        for name, table in self.tables().items():
            self._check_times(name, table)
            for column in STRING_COLUMNS[name]:
                ids = getattr(table, column)
                if len(ids) and not (ids.min() >= UNKNOWN and ids.max() < len(self.strings)):
                    raise ValueError(f"{name}.{column} refers to a string that is not there")
        self._check_parents()

    @staticmethod
    def _check_times(name: str, table: Table) -> None:
        columns = table.columns()
        if "end" in columns and np.any(columns["end"] < columns["start"]):
            raise ValueError(f"a row of {name} ends before it starts")

    def _check_parents(self) -> None:
        child = np.flatnonzero(self.ranges.parent >= 0)
        parent = self.ranges.parent[child]
        if np.any(self.ranges.start[parent] > self.ranges.start[child]):
            raise ValueError("a range starts before its parent")
        if np.any(self.ranges.tid[parent] != self.ranges.tid[child]):
            raise ValueError("a range and its parent are on different threads")
