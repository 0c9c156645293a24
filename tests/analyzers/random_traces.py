"""Random annotated traces with many ties, for hypothesis."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from profkit.traces import Trace
from tests.builders import TraceBuilder

INNER = ("prepare", "draft", "draft_sample", "target", "accept", "kv_append", "layer 3")
APIS = ("cudaEventQuery", "cudaStreamSynchronize", "cudaMemcpy")
NAMES = ("gemm", "attention", "HtoD", "memset", "PtoP")

times = st.integers(0, 60)
lengths = st.integers(0, 12)


@st.composite
def traces(draw: st.DrawFn, ranks: int = 2) -> Trace:
    """A trace of up to ``ranks`` ranks with 2 steps each, whose rows lie anywhere, host and GPU alike."""
    builder = TraceBuilder()
    communicator = draw(st.sampled_from((None, "decoding")))
    for rank in range(draw(st.integers(1, ranks))):
        builder.rank(rank)
        _steps(draw, builder)
        for _ in range(draw(st.integers(1, 7))):
            _call(draw, builder)
        for step in (0, 1):
            # One all-reduce a step, on every rank: the ranks can be matched.
            start = draw(st.integers(step * 30 + 1, step * 30 + 25))
            begin = draw(times)
            _all_reduce(builder, communicator, start, draw(lengths), begin, draw(lengths))
        if communicator and draw(st.booleans()):
            _all_reduce(builder, "prefilling", 61, 2, 80, 4)
    return builder.trace()


@st.composite
def damaged_traces(draw: st.DrawFn) -> Trace:
    """Traces that lost up to three ops."""
    trace = draw(traces())
    lost = draw(st.sets(st.integers(0, len(trace.ops) - 1), max_size=3))
    return replace(trace, ops=trace.ops.take(np.setdiff1d(np.arange(len(trace.ops)), list(lost))))


def _all_reduce(builder: TraceBuilder, communicator: str | None, call: int, took: int, begin: int, length: int) -> None:
    if communicator:
        builder.collective_call(call, call + took + 1, "all_reduce", communicator)
    builder.launch(call, call + took, "all_reduce", begin, begin + length, 8)


def _steps(draw: st.DrawFn, builder: TraceBuilder) -> None:
    for step in (0, 1):
        start, end = step * 30, step * 30 + draw(st.integers(26, 30))
        builder.range(start, end, f"step:decode bs={draw(st.integers(1, 2))}")
        cuts = sorted(draw(st.sets(st.integers(start, end), max_size=4)))
        for low, high in pairwise(cuts):
            builder.range(low, high, draw(st.sampled_from(INNER)))
    if draw(st.booleans()):
        builder.range(60, 70, "step:prefill bs=1")


def _call(draw: st.DrawFn, builder: TraceBuilder) -> None:
    builder.thread(draw(st.sampled_from((builder.pid, builder.pid, 7))))
    start, length = draw(st.integers(0, 75)), draw(lengths)
    kind = draw(st.sampled_from(("api", "launch", "launch", "graph", "orphan")))
    if kind == "api":
        builder.call(start, start + length, draw(st.sampled_from(APIS)))
    elif kind == "launch":
        builder.launch(start, start + length, *draw(_ops()))
    elif kind == "graph":
        builder.graph(start, start + length, *(op[:3] for op in draw(st.lists(_ops(), min_size=1, max_size=4))))
    else:
        builder.orphan(*draw(_ops()))
    builder.thread(builder.pid)


@st.composite
def _ops(draw: st.DrawFn) -> tuple[str, int, int, int]:
    start = draw(times)
    return draw(st.sampled_from(NAMES)), start, start + draw(lengths), draw(st.integers(7, 9))
