"""Small recordings whose steps can be worked out by hand, and the figures of a replay."""

from __future__ import annotations

import numpy as np

from profkit.analyzers import attribute
from profkit.analyzers.graph_result import GraphPrediction
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.replay import Model, build_model, predict_graphs, simulate
from profkit.analyzers.replay.forwards import forwards_of
from profkit.analyzers.replay.steps import periods, step_ns
from profkit.analyzers.replay.transform import Launching, graph_launched
from profkit.traces import Trace
from tests.builders import TraceBuilder

CALL = 2_000
LATENCY = 3_000


def launches(
    builder: TraceBuilder, at: int, lengths: list[int], every: int = 10_000, last: str = "gemm", free: int = 0
) -> int:
    """Kernels launched ``every`` ns from ``at`` on; each runs as soon as launched and the one before it is done.

    Returns when the last one ends. ``free`` is when the GPU is free; queued kernels follow 1 us after each other.
    """
    for place, length in enumerate(lengths):
        begin = at + place * every
        start = max(begin + LATENCY, free + 1_000 if free else 0)
        name = last if place == len(lengths) - 1 else "gemm"
        builder.launch(begin, begin + CALL, name, start, start + length)
        free = start + length
    return free


def model_of(trace: Trace) -> Model:
    attribution = attribute(trace)
    return build_model(attribution, match_collectives(attribution))


def predicted(trace: Trace) -> GraphPrediction:
    attribution = attribute(trace)
    return predict_graphs(attribution, match_collectives(attribution))


def with_graphs(trace: Trace, call: int = 20_000, first_op: int = 4_000, node_gap: int = 500) -> Model:
    """The recording with every forward launched by one call that takes ``call`` ns."""
    attribution = attribute(trace)
    model = build_model(attribution, match_collectives(attribution))
    forwards = forwards_of(attribution, model)
    every = np.full(len(forwards), call, np.int64)
    return graph_launched(model, forwards, Launching(every, np.zeros_like(every), first_op, node_gap))


def periods_of(model: Model) -> list[list[int]]:
    """From each step's first op to the next one's, per device."""
    found: list[list[int]] = periods(model.work, simulate(model).start).astype(np.int64).tolist()
    return found


def off_by(trace: Trace) -> int:
    """By how much the replay of a recording as it is misses any recorded start or end."""
    model = model_of(trace)
    played = simulate(model)
    wrong = [played.call_start - model.calls.origin, played.start - model.work.origin]
    lengths = (trace.ops.end - trace.ops.start)[model.work.row]
    wrong.append(played.end - played.start - lengths)
    return max(int(np.abs(off).max(initial=0)) for off in wrong)


def true_step(trace: Trace) -> int:
    """The step of a recording, in ns."""
    work = model_of(trace).work
    return step_ns(periods(work, work.origin))
