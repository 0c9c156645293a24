"""Checks of what the recorder left: GPU activity, the kernels of graphs, and what it said of itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.traces import I32, I64, Bools

from .arrays import distinct
from .attribution import Attribution
from .graphs import graph_nodes_missing
from .health_steps import MIN_STEPS
from .owners import pair_keys
from .ranks import edge_ops
from .result import Check
from .words import counted


def checks_of_recording(attribution: Attribution) -> Iterator[Check]:
    """What the recording holds of the GPU, and the notes of the recorder."""
    trace = attribution.trace
    if not len(trace.ops):
        yield Check("gpu_activity", "abstain", _why_no_activity(attribution), ("all",))
    missing = graph_nodes_missing(trace, attribution.launch)
    if missing:
        advice = "record with --cuda-graph-trace=node; what the GPU did inside graphs, and its idle time, is unknown"
        yield Check("graph_nodes", "abstain", f"{missing}: {advice}", ("partition_ns", "busy_union_ns", "idle_ns"))
    elif np.any(trace.ops.graph_launch >= 0):
        yield Check("graph_nodes", "ok", "kernels inside graph launches are recorded")
    for key, status in (("dropped_records", "warn"), ("truncated", "warn"), ("bad_times", "warn"), ("warning", "warn")):
        for text in trace.notes_of(key):
            yield Check(key, "warn" if status == "warn" else "ok", text)
    yield from _node_counts(attribution)


def _why_no_activity(attribution: Attribution) -> str:
    trace = attribution.trace
    if trace.notes_of("truncated"):
        return "the file breaks off before any GPU activity: it was not written to its end; record again"
    if len(trace.launches):
        calls = counted(len(trace.launches), "host API call")
        return f"no GPU activity was recorded, though {calls} were: CUPTI gave no records"
    if trace.source.format == "kineto":
        return "no GPU activity was recorded: let the profiler record ProfilerActivity.CUDA, in every rank"
    return "no GPU activity was recorded: record with CUDA tracing (nsys -t cuda,nvtx), in every process of the engine"


def _node_counts(attribution: Attribution) -> Iterator[Check]:
    """The same graph must have the same number of kernels at each launch; of several steps the edges may be cut off."""
    ops = attribution.trace.ops
    rows = np.flatnonzero((ops.graph_launch >= 0) & attribution.in_decode & (ops.graph_node >= 0))
    if not len(rows):
        return
    (keys,) = pair_keys((ops.pid[rows], ops.graph_launch[rows]))
    _, first, place, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    several = len(distinct(attribution.step[rows])) >= MIN_STEPS * len(attribution.devices)
    edges = edge_ops(attribution) if several else np.empty(0, np.intp)
    at_edge = np.isin(np.arange(len(counts)), place[np.isin(rows, edges)])
    least, most = np.full(len(counts), np.iinfo(np.int64).max), np.full(len(counts), -1)
    np.minimum.at(least, place, ops.graph_node[rows])
    np.maximum.at(most, place, ops.graph_node[rows])
    # A graph that lost its first kernels is known by its last one.
    uneven = max(_uneven(ops.pid[rows][first], ops.device[rows][first], end, counts, ~at_edge) for end in (least, most))
    if uneven:
        detail = f"{uneven} graphs were replayed with differing numbers of kernels: records were probably lost"
        yield Check("graph_node_counts", "warn", detail)
    else:
        yield Check("graph_node_counts", "ok", "each graph has the same number of kernels at every launch")


def _uneven(pid: I64, device: I32, node: I64, counts: I64, whole: Bools) -> int:
    sizes = np.unique(np.stack([pid, device, node, counts])[:, whole], axis=1)
    return int(sizes.shape[1] - np.unique(sizes[:3], axis=1).shape[1])
