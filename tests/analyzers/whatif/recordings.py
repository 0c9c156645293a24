"""Made-up recordings for what-ifs: a pretend engine with a known cost per token, and answers about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.analyzers.analysis import Recording
from profkit.analyzers.whatif import Request, what_if
from profkit.analyzers.whatif.result import Outcome, RecordingWhatIf
from profkit.traces import Device, Run, Trace
from tests.analyzers.engine import Meeting, Plan, Rank, run

PCIE5 = 63_015_000_000
BLOCK = 8
LATENCY, PER_TOKEN = 4_000, 1_000
"""What an all-reduce takes: 4 us, and 1 us for each token."""

GEMM, GEMM_PER_TOKEN = 0.5, 0.0625
"""What a target's GEMM takes, in units of 100 us: it doubles from 8 to 24 tokens."""

LAYERS, DRAFT_LAYERS = 24, 2


def speculative(batch: int = 1, ranks: int = 2, accept_len: float | None = 3.0, **plan: object) -> Trace:
    """A GPU-bound cycle of ``batch`` requests with 8 tokens each."""
    tokens = batch * BLOCK
    known = {
        "transfer": LATENCY + PER_TOKEN * tokens,
        "speed": GEMM + GEMM_PER_TOKEN * tokens,
        "drafter": GEMM + GEMM_PER_TOKEN * tokens,
        "batches": (batch,),
    }
    one = Plan(**(known | plan))  # type: ignore[arg-type]
    found = Run(config="made-up-dflash", concurrency=batch, accept_len=accept_len, block_size=BLOCK)
    return linked(run(*[one] * ranks)).with_run(found)


def plain(batch: int = 1, ranks: int = 2) -> Trace:
    """Plain decoding of ``batch`` requests."""
    one = Plan(transfer=LATENCY + PER_TOKEN * batch, speed=GEMM + GEMM_PER_TOKEN * batch, batches=(batch,))
    trace = run(*[one] * ranks, programme=plain_cycle)
    return linked(trace).with_run(Run(config="made-up", concurrency=batch))


def plain_cycle(rank: Rank, plan: Plan, steps: int) -> Meeting:
    """Plain decode steps: the target alone, in one graph."""
    for _ in range(steps):
        begin = rank.now
        if len(rank.step_ends) > 1:
            rank.block(rank.step_ends[-2], "cudaEventSynchronize")
        entered = rank.now
        rank.python(20_000)
        layer = ("gemm", int(100_000 * plan.speed)), ("attention", 20_000), ("all_reduce", plan.transfer)
        yield from rank.graph(layer * plan.layers, 1)
        rank.builder.rank(rank.number).range(entered, rank.now, "target")
        rank.step_ends.append(rank.free[7])
        rank.builder.rank(rank.number).range(begin, rank.now, f"step:decode bs={plan.batches[0]}")


def linked(trace: Trace, bandwidth: int | None = PCIE5) -> Trace:
    """The trace of GPUs that are linked by PCI Express 5, or so."""
    return replace(trace, devices=tuple(Device(one.device, link_bandwidth=bandwidth) for one in trace.devices))


def answers(request: Request, *traces: Trace, nvlink: Sequence[str] = ()) -> list[RecordingWhatIf]:
    """What is said of each trace; they are named ``made/0``, ``made/1`` …"""
    recordings = [Recording(f"made/{number}", f"made/{number}", trace) for number, trace in enumerate(traces)]
    return list(what_if(recordings, request, nvlink=nvlink).recordings)


def alone(request: Request, *traces: Trace) -> Outcome:
    """The one lever of the first trace."""
    found = answers(request, *traces)[0]
    assert not found.refused, found.refused
    (outcome,) = found.alone
    return outcome


def refusal(request: Request, *traces: Trace) -> str:
    """Why the first trace cannot carry the one lever."""
    found = answers(request, *traces)[0]
    assert not found.alone
    (refused,) = found.refused
    return refused.reason
