"""The tables that an analysis gives: frozen rows, the same for terminal, page and ``--json``.

Times are integer nanoseconds; what the recording cannot tell is ``None``, and a health check says why.
The names are the JSON contract ``profkit.analysis/1``: keys are only ever added.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from .counter_result import CounterSampling, LinkUse, PhaseActivity
from .economics.result import Economics
from .graph_result import Boundary, Fallback, GraphPhase, OutsideOps, Synchronisation
from .inflation_result import Inflation, RecorderCheck

Status = Literal["ok", "warn", "abstain"]
Parts = dict[str, int | None]


class Check(Struct, frozen=True):
    """One health check. ``spoils`` names the figures that are unknown because of it."""

    id: str
    status: Status
    detail: str
    spoils: tuple[str, ...] = ()


class Health(Struct, frozen=True):
    """All checks, and the worst of their states."""

    status: Status
    checks: tuple[Check, ...]


class Window(Struct, frozen=True):
    """From the start of the first op of a decode step to the end of the last one."""

    start_ns: int
    end_ns: int
    wall_ns: int


class PhaseFigures(Struct, frozen=True):
    """All ops of one phase on one device, over the whole trace."""

    ops: int
    sum_ns: int
    union_ns: int
    span_ns: int
    collective_union_ns: int
    graph_ops: int
    inferred: bool


class ClassFigures(Struct, frozen=True):
    """All ops of one class on one device within the window."""

    ops: int
    sum_ns: int
    union_ns: int


class CollectiveKind(Struct, frozen=True):
    """Collectives of one kind, phase and size in the decode steps of one device.

    ``bytes`` is the message size per rank; bandwidths are bytes per second over the transfer part, the bus
    bandwidth scaled as in NCCL's tests; ``link_share`` is bus bandwidth over the link's limit. Skew and transfer are
    those of the collectives that have a partner on another rank.
    """

    kind: str
    library: str
    phase: str
    bytes: int | None
    count: int
    sum_ns: int
    skew_ns: int | None
    transfer_ns: int | None
    transfer_ns_median: int | None
    algorithm_bandwidth: float | None
    bus_bandwidth: float | None
    link_share: float | None


class Waiting(Struct, frozen=True):
    """How long a device waited in collectives for rank ``rank``, and what that rank did meanwhile."""

    rank: int
    phase: str
    part: str
    ns: int


class Collectives(Struct, frozen=True):
    """Collectives of the decode steps of one device; ``exposed_ns`` is what the partition calls collective.

    Skew, transfer and ``unpaired_ns`` (collectives without a partner on another rank) sum to ``sum_ns``.
    """

    count: int
    sum_ns: int
    union_ns: int
    exposed_ns: int | None
    skew_ns: int | None
    transfer_ns: int | None
    skew_blame_ns: Parts
    waits: tuple[Waiting, ...]
    kinds: tuple[CollectiveKind, ...]
    unpaired_ns: int | None


class KernelFigures(Struct, frozen=True):
    """One kernel on one device within the window; ``rule`` is false if no rule named its class."""

    name: str
    kernel_class: str
    phase: str
    count: int
    sum_ns: int
    rule: bool


class LayerKind(Struct, frozen=True):
    """A kind of module such as ``mlp.experts``, over all layers that have one.

    ``kind`` is empty for what layers do themselves, and ``None`` for ops of the phase that no module is known of;
    ``layers`` is 0 for a module outside of layers, whose ``kind`` is its whole name.
    """

    phase: str
    kind: str | None
    layers: int
    ops: int
    sum_ns: int
    collective_ns: int


class LayerTime(Struct, frozen=True):
    """One layer of the drafter (phase ``draft``) or the target (``verify``, ``decode``).

    ``layer`` is ``None`` for all that lies outside of layers; ``stack`` is empty unless the model has several.
    """

    phase: str
    stack: str
    layer: int | None
    ops: int
    sum_ns: int
    collective_ns: int


class LayerFigures(Struct, frozen=True):
    """Time of modules, as sums of op durations over the whole trace; ``unknown`` says why there is none.

    ``collective_ns`` is the part of it in collectives, waiting included. With ``borrowed``, the modules are those of
    the same kernels in a recording with CUDA graphs.
    """

    kinds: tuple[LayerKind, ...]
    layers: tuple[LayerTime, ...]
    unknown: str | None
    borrowed: bool = False


class DeviceFigures(Struct, frozen=True):
    """Everything about one device. Partition and collectives speak of the window, phases of the whole trace.

    ``sampling``, ``link_use`` and ``activity`` are ``None`` without samples of hardware counters, ``link_bandwidth``
    (bytes/s of the link to the other GPUs) where the recording does not tell it.
    """

    rank: int
    ops: int
    ops_without_launch: int
    steps: int
    window: Window | None
    busy_union_ns: int | None
    idle_ns: int | None
    partition_ns: Parts
    phase_partition_ns: dict[str, Parts]
    collectives: Collectives
    phases: dict[str, PhaseFigures]
    classes: dict[str, ClassFigures]
    kernels: tuple[KernelFigures, ...]
    gpu: str
    layers: LayerFigures
    link_use: tuple[LinkUse, ...] | None = None
    activity: tuple[PhaseActivity, ...] | None = None
    sampling: CounterSampling | None = None
    link_bandwidth: int | None = None


class GraphFigures(Struct, frozen=True):
    """CUDA graphs in the decode steps of one device.

    Launch lead is the end of the previous GPU work minus the start of the next launch call (positive: the host is
    ahead); it is taken over graph launches, or over all launches where there are no graphs. ``phases`` and ``outside``
    together hold every op of the decode steps. ``fallback_ns`` is what all fallbacks cost together; ``eager_phases``
    are forward phases that never ran in a graph though another one did. ``findings`` say in words what stands out.
    """

    launches_per_step: float | None
    nodes_per_launch: dict[str, int]
    ops_outside_graphs_per_step: float | None
    launch_call_ns_median: int | None
    first_op_latency_ns_median: int | None
    launch_lead_ns_median: int | None
    run_ahead_share: float | None
    captured_batch_size: int | None
    phases: dict[str, GraphPhase]
    outside: tuple[OutsideOps, ...]
    fallbacks: tuple[Fallback, ...]
    fallback_ns: int | None
    eager_phases: tuple[str, ...]
    boundaries: tuple[Boundary, ...]
    synchronisations: tuple[Synchronisation, ...]
    findings: tuple[str, ...] = ()


class Cycle(Struct, frozen=True):
    """A step of the slowest rank. ``us_per_token`` is period over accept length and batch size.

    ``unrecorded_us_per_token`` is the same of a step without the recorder, ``None`` where that is not known.
    """

    kind: Literal["speculative", "plain"] | None
    batch_size: int | None
    steps: int
    period_ns_median: int | None
    period_ns: tuple[int, ...]
    phase_ns_median: dict[str, int]
    accept_len: float | None
    accept_len_source: str
    us_per_token: float | None
    phases_source: str
    phases_inferred: bool
    rank: int | None = None
    unrecorded_us_per_token: float | None = None


class Cause(Struct, frozen=True):
    """Something that holds the step back: ``ns_per_step`` is what removing it would give."""

    cause: str
    rank: int | None
    phase: str | None
    part: str | None
    ns_per_step: int
    text: str


class Provenance(Struct, frozen=True):
    """Where a trace came from, as far as it may be told.

    ``tokens_per_s`` is the mean of the rates before and after the recording, where it was counted twice;
    ``timed_steps`` are those that the engine's host timed without a recorder.
    """

    tool: str
    tool_version: str
    schema_version: str
    driver: str
    engine: str
    config: str
    concurrency: int | None
    graphs: bool | None
    tokens_per_s: float | None
    note: str
    block_size: int | None = None
    tokens_per_s_before: float | None = None
    tokens_per_s_after: float | None = None
    timed_steps: int | None = None


class GraphPrediction(Struct, frozen=True):
    """The step with its eager forwards in CUDA graphs, re-played. Times are ns per step: median from each step's first
    op to the next one's, of the slowest rank.

    ``step_ns`` is predicted, between ``low_ns`` and ``high_ns``. ``recorded_ns`` is the recording's; ``as_recorded_ns``
    the replay's of the recording as it is, and ``explained_ns`` that without the delays that no dependency explains.
    ``host_pace`` is how long the host takes relative to the recording where its throughput is known without a recorder.
    ``phases`` are those whose forwards are launched as graphs; the others stay as they were recorded. ``unknown`` says
    why there is no prediction; the other figures are then ``None`` as far as they are not known.
    """

    step_ns: int | None = None
    low_ns: int | None = None
    high_ns: int | None = None
    recorded_ns: int | None = None
    as_recorded_ns: int | None = None
    explained_ns: int | None = None
    host_pace: float | None = None
    steps: int = 0
    phases: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def self_check_error(self) -> float | None:
        """How far the replay of the recording as it is lies off the recorded step, relative to it."""
        if self.as_recorded_ns is None or not self.recorded_ns:
            return None
        return self.as_recorded_ns / self.recorded_ns - 1


class TraceFigures(Struct, frozen=True):
    """One trace, analysed."""

    name: str
    source: str
    path: str
    health: Health
    devices: dict[str, DeviceFigures]
    graphs: dict[str, GraphFigures]
    cycle: Cycle
    verdict: tuple[Cause, ...]
    summary: str
    provenance: Provenance
    with_graphs: GraphPrediction | None = None
    inflation: Inflation | None = None


def sweep_of(trace: TraceFigures) -> str:
    """The folder that ``trace`` lies in: recordings of one capture lie together."""
    return trace.path.rstrip("/").rpartition("/")[0]


Unlike = Literal["period", "batch_size", "gpus", "gpu", "link", "recorder"]
"""What keeps a plain and a speculative recording from being compared; ``gpus`` is their number, ``gpu`` their kind."""


class Comparison(Struct, frozen=True):
    """A speculative trace beside a plain one of the same batch size.

    ``measured_range`` is from the least to the most that the measured speed-up is with the rates before and after each
    recording; ``None`` where neither side was counted twice.
    """

    baseline: str
    speculative: str
    batch_size: int
    break_even_accept_len: float
    predicted_speedup: float | None
    measured_speedup: float | None
    same_graphs: bool
    text: str
    measured_range: tuple[float, float] | None = None


class Unpaired(Struct, frozen=True):
    """Recordings of one speculative sweep that are all compared with no plain one, though there are plain ones.

    ``baseline`` is the plain sweep that comes nearest, ``reasons`` what it differs in, or may; ``why`` says these, and
    ``text`` the whole, in plain words.
    """

    speculative: str
    baseline: str
    recordings: tuple[str, ...]
    reasons: tuple[Unlike, ...]
    why: str
    text: str


class GainPart(Struct, frozen=True):
    """A part of a speculative cycle in plain steps of the same batch size: at the lowest and the highest batch size."""

    phase: str
    group: str
    low: float
    high: float

    @property
    def change(self) -> float:
        """By how many plain steps the part grows."""
        return self.high - self.low


class Gain(Struct, frozen=True):
    """How the speed-up of one configuration over another changes with the batch size, and what makes it change.

    ``cost`` says only what a cycle costs at the lowest and the highest batch size, and which parts make that change.
    """

    baseline: str
    speculative: str
    batch_sizes: tuple[int, ...]
    parts: tuple[GainPart, ...]
    text: str
    cost: str = ""


class Saving(Struct, frozen=True):
    """A part of the step of one rank, per step, without and with CUDA graphs.

    ``key`` is ``host_code``, ``launch``, ``sync`` (the GPU waits for its host), ``waiting`` (for other ranks, in
    collectives), ``transfer``, ``copies``, ``graph_gaps``, ``queue``, ``unknown``, ``compute`` or ``prefill``; what the
    last two differ by is not for the graphs.
    """

    phase: str
    key: str
    eager_ns: int
    graphs_ns: int


class ClassSaving(Struct, frozen=True):
    """The sum of the durations of one class of ops in one phase, per step, without and with CUDA graphs."""

    phase: str
    kernel_class: str = field(name="class")
    eager_ns: int
    graphs_ns: int


class KernelDifference(Struct, frozen=True):
    """A kernel that is ``new`` or ``gone`` with graphs, or ``replaced`` by another; counts and times per step."""

    state: str
    phase: str
    kernel_class: str = field(name="class")
    eager_name: str | None
    graphs_name: str | None
    eager_count: float
    graphs_count: float
    eager_ns: int
    graphs_ns: int


class GraphSaving(Struct, frozen=True):
    """What CUDA graphs save: the same configuration and concurrency without and with them, on the rank others wait for.

    ``rows`` sum to that rank's step on either side. Pairs are per step without and with graphs: ``launch_calls`` that
    launch its ops and the host's time in them, the time that ops run beside others, and the longest that another rank
    waits. ``padding_ns`` is the most that padding costs, ``same_kernels`` the number of kernels of a step in both.
    """

    eager: str
    graphs: str
    batch_size: int | None
    rank: int
    rows: tuple[Saving, ...]
    classes: tuple[ClassSaving, ...]
    launch_calls: tuple[float, float]
    launch_host_ns: tuple[int, int]
    overlap_ns: tuple[int, int]
    waiting_ns: tuple[int | None, int | None]
    padding_ns: int | None
    kernels: tuple[KernelDifference, ...]
    same_kernels: int
    text: str


class Analysis(Struct, frozen=True):
    """The result of ``profkit analyze``. ``comparison`` is the first of ``comparisons``."""

    schema: str
    traces: tuple[TraceFigures, ...]
    comparison: Comparison | None
    comparisons: tuple[Comparison, ...]
    gains: tuple[Gain, ...] = ()
    graph_savings: tuple[GraphSaving, ...] = ()
    recorder_checks: tuple[RecorderCheck, ...] = ()
    economics: tuple[Economics, ...] = ()
    unpaired: tuple[Unpaired, ...] = ()
