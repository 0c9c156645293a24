"""Rows that say what of a decode step runs in CUDA graphs, what does not, and how far the host is ahead.

Counts and times are totals over the decode steps of one device; ``steps`` of ``DeviceFigures`` is their number.
"""

from __future__ import annotations

from msgspec import Struct


class PaddedBatch(Struct, frozen=True):
    """Steps of one batch size that replay a phase's graphs for a larger one.

    ``padding_ns`` is the most that their padded rows can cost.
    """

    batch_size: int
    captured_batch_size: int
    steps: int
    padding_ns: int


class GraphPhase(Struct, frozen=True):
    """One phase of the decode steps: its ops, and the sum of their durations, inside and outside of graphs.

    ``first_op_after_free_ns_median`` is from when both the launch call had begun and the GPU's earlier work was done
    to a graph's first op. ``gap_in_graph_ns`` is the partition's. ``batch_size`` is the usual one, and
    ``captured_batch_size`` the one that its graphs were mostly captured for. ``padding_ns`` is the most that padded
    rows of the batch can cost; ``padded_steps`` counts the steps with any, and ``padded`` has both by batch size.
    """

    ops_in_graphs: int | None
    ops_outside: int
    in_graphs_ns: int | None
    outside_ns: int
    launches: int | None
    nodes_per_launch: int | None
    launch_call_ns_median: int | None
    first_op_latency_ns_median: int | None
    first_op_after_free_ns_median: int | None
    gap_in_graph_ns: int | None
    gap_ns_per_node: float | None
    batch_size: int | None
    captured_batch_size: int | None
    padded_steps: int | None
    padding_ns: int | None
    padded: tuple[PaddedBatch, ...] = ()


class OutsideOps(Struct, frozen=True):
    """Ops outside of graphs that share phase, name, API call and the innermost annotated range around that call.

    ``calls`` launch calls took ``host_ns``; a call that owns several ops counts once. ``range`` is ``None`` where no
    range is.
    """

    phase: str
    name: str
    range: str | None
    api: str
    ops: int
    gpu_ns: int
    calls: int
    host_ns: int


class Boundary(Struct, frozen=True):
    """From the first launch of a forward phase to the first launch of the next one, on the host thread of both.

    The lead is the end of the device's earlier work minus the start of the latter call: positive, the host is ahead.
    """

    before: str
    after: str
    next_step: bool
    count: int
    launch_lead_ns_median: int | None
    run_ahead_share: float | None


class Synchronisation(Struct, frozen=True):
    """Blocking calls of one API and innermost range between two forward phases; ``before`` is ``None`` elsewhere.

    ``gap_sync_ns`` is how long the device was idle while the thread that was to launch its next op was in the call;
    over all rows it sums to ``gap_sync`` of the partition.
    """

    before: str | None
    after: str | None
    next_step: bool
    api: str
    range: str | None
    calls: int
    host_ns: int
    gap_sync_ns: int | None


class Fallback(Struct, frozen=True):
    """Steps in which a phase ran without the graphs that it has in others: without any, or ``partial``, without some.

    ``steps`` count the device's decode steps from 0; ``batch_sizes`` are theirs, as far as labels tell. ``extra_ns`` is
    the median wall time of these steps minus that of the steps in which the phase ran in its graphs; ``None`` where no
    such step is known from start to start.
    """

    phase: str
    steps: tuple[int, ...]
    batch_sizes: tuple[int | None, ...]
    extra_ns: int | None
    partial: bool = False


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
