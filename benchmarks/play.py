"""Plays the steps of a DFlash server: when its hosts call and its GPUs work.

Two ranks decode in step: each op starts when its stream is free and its launch has arrived, each collective ends on
both ranks at once, and the hosts wait for the GPUs after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .step import COPY, KERNEL, OPS, STEP, Op

RANKS = 2
TURNAROUND, LAUNCH_LATENCY = 30_000, 2_500
PAUSE_EAGER, PAUSE_BETWEEN_GRAPHS = 55_000, 22_000
PROFKIT, NCCL = 1, 2
WAIT = "cudaEventSynchronize_v3020"
LATE_SHARE, LATE_FACTOR = 0.1, 1.5

Array = npt.NDArray[np.int64]


@dataclass(slots=True)
class HostPlan:
    """The host calls of one step on one rank: names, pauses before them and lengths in nanoseconds.

    ``launch`` is the call that launches each op, ``graph`` the graph that it belongs to (-1: none); ``ranges`` are
    (domain, text, first call, last call).
    """

    api: list[str] = field(default_factory=list)
    pause: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    launch: list[int] = field(default_factory=list)
    graph: list[int] = field(default_factory=list)
    ranges: list[tuple[int, str, int, int]] = field(default_factory=list)

    def call(self, api: str, pause: int, length: int) -> int:
        """Add a call and return its place."""
        self.api.append(api)
        self.pause.append(pause)
        self.length.append(length)
        return len(self.api) - 1


def plan_step(eager: bool) -> HostPlan:
    """The calls of a step, with graphs or with one launch per op; the last one waits for the GPU."""
    plan, graphs = HostPlan(), 0
    for segment in STEP:
        first = plan.call("cudaEventQuery_v3020", 3_000, 900)
        if segment.graph and not eager:
            launch = plan.call("cudaGraphLaunch_v10000", 15_000, 1_100 * len(segment.ops))
            plan.launch += [launch] * len(segment.ops)
            plan.graph += [graphs] * len(segment.ops)
            graphs += 1
        else:
            pause = PAUSE_EAGER if eager else PAUSE_BETWEEN_GRAPHS
            plan.launch += [_launch(plan, op, pause) for op in segment.ops]
            plan.graph += [-1] * len(segment.ops)
        if segment.range:
            _extend_range(plan, segment.range, first)
    plan.ranges.append((PROFKIT, "step:decode bs=1", 0, len(plan.api) - 1))
    plan.call(WAIT, 2_000, 0)
    return plan


def _extend_range(plan: HostPlan, text: str, first: int) -> None:
    """A range over the calls from ``first`` on; of neighbours with one name, one range."""
    for place, (_, name, begin, last) in enumerate(plan.ranges):
        if (name, last) == (text, first - 1):
            plan.ranges[place] = (PROFKIT, text, begin, len(plan.api) - 1)
            return
    plan.ranges.append((PROFKIT, text, first, len(plan.api) - 1))


def _launch(plan: HostPlan, op: Op, pause: int) -> int:
    if op.collective:
        first = plan.call("cudaEventRecord_v3020", pause, 1_500)
        plan.call("cudaStreamWaitEvent_v3020", 600, 900)
        launch = plan.call("cudaLaunchKernelExC_v11060", 1_200, 9_500)
        last = plan.call("cudaEventRecord_v3020", 700, 1_000)
        plan.ranges.append((NCCL, "ncclAllReduce" if "AllReduce" in op.name else "ncclAllGather", first, last))
        return launch
    if op.kind != KERNEL:
        return plan.call("cudaMemcpyAsync_v3020" if op.kind == COPY else "cudaMemsetAsync_v3020", pause, 9_000)
    return plan.call("cudaLaunchKernel_v7000" if op.full_name else "cuLaunchKernelEx", pause, 8_000)


@dataclass(frozen=True, slots=True)
class Times:
    """Starts and ends in nanoseconds: of calls (steps, ranks, calls), and of ops (steps, ranks, ops)."""

    call_start: Array
    call_end: Array
    op_start: Array
    op_end: Array

    @property
    def stop(self) -> int:
        """When the next step may begin."""
        return int(self.call_end.max()) + TURNAROUND


def play(plan: HostPlan, steps: int, begin: int, random: np.random.Generator) -> Times:
    """Play ``steps`` steps, the first from ``begin`` on."""
    call_start, call_end = _call_times(plan, steps, random)
    op_start, op_end = _op_times(call_start[:, :, plan.launch] + LAUNCH_LATENCY, random)
    call_end[:, :, -1] = np.maximum(call_start[:, :, -1] + 1_000, op_end[:, :, -1] + 4_000)
    period = call_end.max(axis=(1, 2)) + TURNAROUND
    offset = (begin + np.cumsum(period) - period)[:, None, None]
    return Times(call_start + offset, call_end + offset, op_start + offset, op_end + offset)


def _call_times(plan: HostPlan, steps: int, random: np.random.Generator) -> tuple[Array, Array]:
    shape = (steps, RANKS, len(plan.api))
    late = np.where(random.random((steps, RANKS, 1)) < LATE_SHARE, int(1_000 * LATE_FACTOR), 1_000)
    pause = np.array(plan.pause) * random.integers(800, 1_300, shape) // 1_000 * late // 1_000
    length = np.array(plan.length) * random.integers(900, 1_200, shape) // 1_000
    end = np.cumsum(pause + length, axis=2)
    return end - length, end


def _op_times(arrived: Array, random: np.random.Generator) -> tuple[Array, Array]:
    """Times of ops whose launches have ``arrived``, on an idle GPU."""
    vary = random.integers(950, 1_080, arrived.shape)
    pause = np.array([op.pause for op in OPS]) * vary // 1_000
    busy = np.array([op.length for op in OPS]) * vary // 1_000
    start, end = np.empty_like(arrived), np.empty_like(arrived)
    free = np.zeros(arrived.shape[:2], np.int64)
    for place, op in enumerate(OPS):
        begun = np.maximum(free + pause[:, :, place], arrived[:, :, place])
        start[:, :, place] = begun
        if op.collective:
            free = np.broadcast_to(begun.max(axis=1, keepdims=True) + busy[:, :1, place], begun.shape)
        else:
            free = np.maximum(begun + busy[:, :, place], free + 1)
        end[:, :, place] = free
    return start, end
