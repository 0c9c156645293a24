"""What must be known before any figure is believed; a failed check names the figures that it spoils."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.traces import I32, I64, Bools

from .arrays import distinct
from .attribution import Attribution
from .cycle import device_steps, slowest_device
from .graphs import graph_nodes_missing
from .inflation import MAX_INFLATION
from .matching import MatchedCollectives
from .outliers import Outliers
from .owners import pair_keys
from .ranks import cut_steps, edge_ops, lost_steps, missing_ranks, rank_of_device
from .result import Check, Cycle, Health, Status
from .step_cost import step_cost
from .vocabulary import PHASE
from .words import counted, duration, listed, share

MAX_SPREAD = 0.25
"""Largest quartile distance of step periods, over their median, of a steady window."""

MIN_STEPS = 3
MIN_LAUNCHED = 0.99
MIN_IN_RANGE = 0.95


def health_of(attribution: Attribution, matched: MatchedCollectives, cycle: Cycle, far: Outliers | None) -> Health:
    """All checks of a trace; ``far`` are the outliers of the slowest device."""
    checks = (*_recording(attribution), *_ranks(attribution, matched), *_steps(attribution, cycle, far))
    worst = max((_SEVERITY[check.status] for check in checks), default=0)
    return Health(next(status for status, order in _SEVERITY.items() if order == worst), checks)


_SEVERITY: dict[Status, int] = {"ok": 0, "warn": 1, "abstain": 2}


def _recording(attribution: Attribution) -> Iterator[Check]:
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


def _cut_steps(attribution: Attribution) -> Iterator[Check]:
    """Steps with which a device's recording begins or ends, and of which much is missing."""
    ranks = rank_of_device(attribution.trace)
    cut = cut_steps(attribution)
    for device in sorted(cut, key=ranks.__getitem__):
        said = listed([f"{end} with {share(part)} of a step" for end, part in cut[device].items()])
        detail = f"the recording of rank {ranks[device]} {said}: figures per step count it as a whole one"
        yield Check("cut_steps", "warn", detail)


def _ranks(attribution: Attribution, matched: MatchedCollectives) -> Iterator[Check]:
    trace = attribution.trace
    collectives = sum(len(instances.row) for instances in matched.instances.values())
    missing = missing_ranks(attribution)
    spoiled = ("collectives.skew_ns", "collectives.transfer_ns")
    if missing:
        yield Check("ranks", "warn", f"{missing}: waiting cannot be told from transfer for it", spoiled)
    elif len(matched.instances) == 1 and collectives:
        detail = "collectives run, but only one rank is recorded: waiting cannot be told from transfer"
        yield Check("ranks", "warn", detail, spoiled)
    elif len(trace.ops):
        yield Check("ranks", "ok", f"{len(matched.instances)} rank(s) recorded")
    yield from _without_steps(attribution)
    yield from _lost_steps(attribution)
    for text in matched.mismatches:
        yield Check("collectives", "warn", f"ranks disagree: {text}; skew and transfer are unknown", spoiled)
    if matched.impossible:
        yield Check("collectives", "warn", f"{matched.impossible}; skew and transfer are unknown", spoiled)
    if matched.edge_steps:
        steps = "1 step at the edge is" if matched.edge_steps == 1 else f"{matched.edge_steps} steps at the edge are"
        detail = f"{steps} not recorded whole on every rank, and left out of skew and transfer"
        yield Check("edge_steps", "warn", detail)
    if matched.known and collectives:
        yield Check("collectives", "ok", f"{collectives} collectives matched over {len(matched.instances)} ranks")
    wrong = matched.mismatches or matched.impossible
    if not matched.known and collectives and len(matched.instances) > 1 and not wrong:
        detail = "no collective of a decode step has a partner on another rank: waiting cannot be told from transfer"
        yield Check("collectives", "warn", detail, spoiled)
    apart = {device: offset for device, offset in matched.clock_offset.items() if offset}
    if apart and not matched.impossible:
        shown = ", ".join(
            f"device {device} is {duration(abs(offset))} {'ahead' if offset > 0 else 'behind'}"
            for device, offset in apart.items()
        )
        yield Check("clock", "warn", f"the GPUs' clocks differ ({shown}): aligned by collectives, which end together")


def _without_steps(attribution: Attribution) -> Iterator[Check]:
    """Ranks with GPU work of which no step is known, though steps of others are."""
    idle = [device for device, line in attribution.devices.items() if line.window_start is None]
    if not idle or len(idle) == len(attribution.devices):
        return
    ranks = rank_of_device(attribution.trace)
    in_steps = distinct(attribution.trace.ops.device[attribution.step >= 0])
    own = attribution.plan.source == "profkit"
    why = "annotated step: profkit's plugin is not active in" if own else "step: none shows in"
    for device in sorted(set(idle) - set(in_steps.tolist()), key=ranks.__getitem__):
        detail = f"rank {ranks[device]} has GPU work but no {why} that process; what its steps take is unknown"
        yield Check("annotations", "warn", detail)


def _lost_steps(attribution: Attribution) -> Iterator[Check]:
    """Steps that launched work of which no GPU record is left."""
    found = lost_steps(attribution)
    ranks = rank_of_device(attribution.trace) if found else {}
    for device, lost in found.items():
        first = attribution.plan.steps.index[lost[0]]
        detail = (
            f"{counted(len(lost), 'decode step')} of rank {ranks[device]} launched work that has no GPU record "
            f"(first: step {first}): records were lost, and what the GPU did in the window is unknown; record again"
        )
        yield Check("lost_steps", "abstain", detail, ("partition_ns", "busy_union_ns", "idle_ns"))


def _steps(attribution: Attribution, cycle: Cycle, far: Outliers | None) -> Iterator[Check]:
    device = slowest_device(attribution)
    if device is None:
        if len(attribution.trace.ops):
            detail = "no decode step found: annotate the engine (profkit's plugin), or name its ranges with --rules"
            yield Check("steps", "abstain", detail, ("window", "partition_ns", "cycle"))
        return
    found = counted(cycle.steps, "decode step")
    if cycle.steps < MIN_STEPS:
        yield Check("steps", "warn", f"only {found}: medians mean little; record at least {MIN_STEPS}")
    else:
        yield Check("steps", "ok", found)
    yield from _cut_steps(attribution)
    yield from _steady(attribution, device, cycle)
    if far is not None:
        yield Check("outliers", "warn", f"{far.text}: figures per step are means, which hold them")
    yield _attributed(attribution)
    if cycle.phases_inferred:
        yield Check("phases", "warn", f"phases are inferred: {attribution.plan.detail}")
    if cycle.kind == "speculative" and cycle.accept_len is None:
        detail = "the accept length is not in the recording: give --accept-len, or analyse a sweep"
        yield Check("accept_len", "warn", detail, ("us_per_token", "predicted_speedup"))
    yield _inflation(attribution, cycle)


def _inflation(attribution: Attribution, cycle: Cycle) -> Check:
    """What recording costs in a step timed with and without it, else what throughput without a recorder says."""
    if (cost := step_cost(attribution.trace, cycle)) is not None:
        far = cost.ratio > 1 + MAX_INFLATION
        said = f"{cost.said}: the figures without it are beside" if far and cost.is_told else cost.said
        return Check("inflation", "warn" if far or cost.other_work else "ok", said)
    measured, period = attribution.trace.run.tokens_per_s, cycle.period_ns_median
    if not measured or not period or not cycle.batch_size or not cycle.accept_len:
        return Check("inflation", "ok", "not known how much the recorder slowed the run: no throughput without it")
    recorded = cycle.batch_size * cycle.accept_len / (period * 1e-9)
    slower = measured / recorded - 1
    detail = f"recorded steps give {recorded:,.0f} tokens/s, the server without a recorder {measured:,.0f}"
    if slower > MAX_INFLATION:
        return Check("inflation", "warn", f"{detail}: the recorder made steps {slower:.0%} slower than they are")
    return Check("inflation", "ok", f"{detail}: the recorder did not slow the steps by more than {MAX_INFLATION:.0%}")


def _steady(attribution: Attribution, device: int, cycle: Cycle) -> Iterator[Check]:
    periods = np.array(cycle.period_ns)
    if len(periods) >= MIN_STEPS:
        low, middle, high = np.percentile(periods, [25, 50, 75])
        spread = (high - low) / middle if middle else 0.0
        status: Status = "warn" if spread > MAX_SPREAD else "ok"
        yield Check("steady", status, f"the middle half of the steps lies within {spread:.0%} of the median period")
    sizes = attribution.plan.steps.batch_size[device_steps(attribution, device).row]
    sizes = sizes[sizes >= 0]
    if len(np.unique(sizes)) > 1:
        detail = f"batch sizes from {sizes.min()} to {sizes.max()} are mixed: figures per step are averages over them"
        yield Check("batch_size", "warn", detail)


def _attributed(attribution: Attribution) -> Check:
    """How much of the GPU time in the windows has a launch record, and lies in an annotated range of a step."""
    ops = attribution.trace.ops
    inside = np.zeros(len(ops), np.bool_)
    for device, line in attribution.devices.items():
        if line.window_start is not None and line.window_end is not None:
            inside |= (ops.device == device) & (ops.start >= line.window_start) & (ops.end <= line.window_end)

    def weight(mask: Bools) -> int:
        return int((ops.end - ops.start)[inside & mask].sum())

    total = max(weight(np.ones(len(ops), np.bool_)), 1)
    launched = weight(attribution.launch >= 0) / total
    known = weight(attribution.phase != PHASE["outside"]) / total
    detail = f"{launched:.1%} of the GPU time has a launch record, {known:.1%} lies in a step"
    status: Status = "ok" if launched >= MIN_LAUNCHED and known >= MIN_IN_RANGE else "warn"
    return Check("attributed", status, detail)
