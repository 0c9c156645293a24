"""Rows that say what CUDA graphs save: one configuration without and with them. Times are ns per step."""

from __future__ import annotations

from msgspec import Struct, field


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
