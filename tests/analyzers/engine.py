"""A pretend engine: hosts that launch, GPUs that run in stream order, ranks that meet in collectives.

It gives traces that hang together, so that a planted cause has its real effect: what a cause costs is the difference
of two runs, with and without it. Times are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from profkit.traces import Trace
from tests.builders import TraceBuilder

Meeting = Generator[tuple[int, int], int, None]
"""A rank's programme: yields when it enters a collective and how long the transfer takes, and is sent the end."""

LATENCY = 4_000
"""From the start of a launch call to the start of its kernel, on an idle GPU."""


@dataclass
class Rank:
    """One rank while it runs: its clock on the host, and when each of its streams is free."""

    number: int
    builder: TraceBuilder
    now: int = 0
    free: dict[int, int] = field(default_factory=dict)
    step_ends: list[int] = field(default_factory=list)

    def python(self, ns: int) -> None:
        """The host computes."""
        self.now += ns

    def call(self, ns: int, api: str) -> None:
        """A call that enqueues nothing."""
        self.builder.rank(self.number).call(self.now, self.now + ns, api)
        self.now += ns

    def block(self, until: int, api: str = "cudaStreamSynchronize") -> None:
        """A call that returns when the GPU has reached ``until``."""
        self.call(max(until - self.now, 0) + 2_000, api)

    def fetch(self, length: int = 2_000, stream: int = 7) -> None:
        """A copy to pageable memory: its call returns when it is done."""
        ready = max(self.now + LATENCY, self.free.get(stream, 0))
        end = ready + length
        self.builder.rank(self.number).call(self.now, end + 3_000, "cudaMemcpyAsync").op("DtoH", ready, end, stream)
        self.now, self.free[stream] = end + 3_000, end

    def neighbour(self, length: int) -> None:
        """A kernel of another process, for which this one's stream waits; its launch is not recorded."""
        builder = self.builder.rank(self.number)
        builder.pid = 9000 + self.number
        builder.orphan("neighbour_kernel", self.free[7], self.free[7] + length, stream=30)
        self.free[7] += length

    def wait_for(self, stream: int, other: int) -> None:
        """``stream`` goes on when ``other`` is done with what it has."""
        self.free[stream] = max(self.free.get(stream, 0), self.free.get(other, 0))

    def launch(self, name: str, length: int, stream: int = 7, call_ns: int = 3_000) -> None:
        """A kernel or copy by itself."""
        ready = self._call_launch("cudaLaunchKernel", stream, call_ns)
        self.builder.op(name, ready, ready + length, stream)
        self.free[stream] = ready + length

    def all_reduce(self, transfer: int, stream: int = 7, call_ns: int = 3_000) -> Meeting:
        """A collective by itself."""
        ready = self._call_launch("cudaLaunchKernel", stream, call_ns)
        correlation = self.builder.last_id[self.builder.pid]
        end = yield ready, transfer
        self.builder.rank(self.number).op("all_reduce", ready, end, stream, launch=correlation)
        self.free[stream] = end

    def graph(self, nodes: Sequence[tuple[str, int]], first: int, call_ns: int = 100_000, gap: int = 500) -> Meeting:
        """A graph launch: its nodes one after the other, ``gap`` apart; node ids count from ``first``."""
        time = self._call_launch("cudaGraphLaunch", 7, call_ns)
        correlation = self.builder.last_id[self.builder.pid]
        for number, (name, length) in enumerate(nodes, first):
            end = time + length
            if name == "all_reduce":
                end = yield time, length
            self.builder.rank(self.number).node(name, time, end, node=number, launch=correlation)
            time = end + gap
        self.free[7] = time - gap

    def _call_launch(self, api: str, stream: int, call_ns: int) -> int:
        self.builder.rank(self.number).call(self.now, self.now + call_ns, api)
        ready = max(self.now + LATENCY, self.free.get(stream, 0))
        self.now += call_ns
        return ready


@dataclass(frozen=True)
class Plan:
    """One rank's step. All defaults together are a graph-replaying cycle whose host runs ahead of its GPU.

    It is late in every n-th step from step k on, by ``late_steps`` (n, k).
    """

    late_before_draft: int = 0
    late_before_target: int = 0
    late_steps: tuple[int, int] = (1, 0)
    python_per_launch: int = 2_000
    eager: bool = False
    speed: float = 1.0
    drafter: float = 1.0
    block_after_draft: bool = False
    fetch_after_draft: bool = False
    transfer: int = 10_000
    copies_beside: int = 0
    contended: int = 10_000
    gap: int = 500
    wait_before_target: int = 0
    neighbour: int = 0
    slow_transfers: tuple[int, ...] = ()
    copy_before_target: int = 0
    layers: int = 24
    orphans: bool = False
    batches: tuple[int, ...] = (1,)

    def is_late(self, step: int) -> bool:
        every, first = self.late_steps
        return step % every == first


def cycle(rank: Rank, plan: Plan, steps: int) -> Meeting:
    """Speculative decode steps: draft, verify, accept, KV append."""
    for number in range(steps):
        begin = rank.now
        if len(rank.step_ends) > 1:
            # The engine reads the tokens of the step before the last one: it runs one step ahead at most.
            rank.block(rank.step_ends[-2], "cudaEventSynchronize")
        yield from _draft(rank, plan, number)
        if plan.block_after_draft:
            rank.block(rank.free[7])
        if plan.fetch_after_draft:
            rank.fetch()
        yield from _target(rank, plan, number)
        _after(rank, plan)
        rank.step_ends.append(rank.free[7])
        batch = plan.batches[min(number, len(plan.batches) - 1)]
        rank.builder.rank(rank.number).range(begin, rank.now, f"step:decode bs={batch}")


def _draft(rank: Rank, plan: Plan, number: int) -> Meeting:
    begin = rank.now
    rank.python(20_000 + (plan.late_before_draft if plan.is_late(number) else 0))
    rank.launch("gemm", 5_000)
    nodes = _layers(2, int(60_000 * plan.drafter), plan.transfer)
    yield from _forward(rank, plan, nodes, 1_000)
    rank.launch("argmax_kernel", 5_000)
    rank.builder.rank(rank.number).range(begin, rank.now, "draft")


def _target(rank: Rank, plan: Plan, number: int) -> Meeting:
    rank.python(plan.late_before_target if plan.is_late(number) else 0)
    begin = rank.now
    rank.python(20_000)
    if plan.wait_before_target:
        # Something on another stream that the target does not need, and that is no GPU work: only time.
        rank.free[7] += plan.wait_before_target
    if plan.neighbour:
        rank.neighbour(plan.neighbour)
    if plan.copy_before_target:
        rank.launch("HtoD", plan.copy_before_target)
    shared_link = plan.copies_beside and number % 2 == 0
    transfer = plan.contended if shared_link else plan.transfer
    if shared_link:
        rank.wait_for(20, 7)
        rank.launch("HtoD", plan.copies_beside, stream=20)
    nodes = _layers(plan.layers, int(100_000 * plan.speed), transfer)
    nodes += [("all_reduce", length) for length in plan.slow_transfers]
    yield from _forward(rank, plan, nodes, 5_000)
    rank.builder.rank(rank.number).range(begin, rank.now, "target")


def _after(rank: Rank, plan: Plan) -> None:
    for text, length in (("accept", 8_000), ("kv_append", 12_000)):
        begin = rank.now
        rank.python(5_000)
        rank.launch("gemm", length)
        rank.builder.rank(rank.number).range(begin, rank.now, text)


def _layers(count: int, length: int, transfer: int) -> list[tuple[str, int]]:
    return [node for _ in range(count) for node in (("gemm", length), ("attention", 20_000), ("all_reduce", transfer))]


def _forward(rank: Rank, plan: Plan, nodes: list[tuple[str, int]], first: int) -> Meeting:
    if not plan.eager:
        yield from rank.graph(nodes, first, gap=plan.gap)
        return
    for name, length in nodes:
        rank.python(plan.python_per_launch)
        if name == "all_reduce":
            yield from rank.all_reduce(length)
        else:
            rank.launch(name, length)


def run(*plans: Plan, steps: int = 8, programme: Callable[[Rank, Plan, int], Meeting] = cycle) -> Trace:
    """The trace of one rank per plan."""
    builder = TraceBuilder()
    ranks = [Rank(number, builder) for number in range(len(plans))]
    running = [programme(rank, plan, steps) for rank, plan in zip(ranks, plans, strict=True)]
    entered = [next(one) for one in running]
    while True:
        end = max(start for start, _ in entered) + max(transfer for _, transfer in entered)
        try:
            entered = [one.send(end) for one in running]
        except StopIteration:
            _finish(running, end)
            break
    if any(plan.orphans for plan in plans):
        gone = [row for row in builder.launches if builder.strings.freeze()[row["api"]] == "cudaGraphLaunch"]
        builder.launches = [row for row in builder.launches if row not in gone]
    return builder.trace()


def _finish(running: list[Meeting], end: int) -> None:
    for one in running[1:]:
        try:
            one.send(end)
        except StopIteration:
            continue


def step_ns(trace: Trace, steps: int = 8) -> float:
    """Wall time per step: from the first op to the end of the last, on the first rank."""
    rows = trace.ops.take(trace.ops.pid == trace.ops.pid.min())
    return float(rows.end.max() - rows.start.min()) / steps
