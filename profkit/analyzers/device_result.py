"""Rows that say all about one device: its window, phases, classes, kernels, collectives and layers."""

from __future__ import annotations

from msgspec import Struct

from .counter_result import CounterSampling, LinkUse, PhaseActivity

Parts = dict[str, int | None]


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
