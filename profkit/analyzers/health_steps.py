"""Checks of the decode steps: whether they are enough, whole, steady and attributed, and what recording cost them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.traces import Bools

from .attribution import Attribution
from .cycle import device_steps, slowest_device
from .inflation import MAX_INFLATION
from .outliers import Outliers
from .ranks import cut_steps, rank_of_device
from .result import Check, Cycle, Status
from .step_cost import step_cost
from .vocabulary import PHASE
from .words import counted, listed, share

MAX_SPREAD = 0.25
"""Largest quartile distance of step periods, over their median, of a steady window."""

MIN_STEPS = 3
MIN_LAUNCHED = 0.99
MIN_IN_RANGE = 0.95


def checks_of_steps(attribution: Attribution, cycle: Cycle, far: Outliers | None) -> Iterator[Check]:
    """Whether figures per step mean much; ``far`` are the outliers of the slowest device."""
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


def _cut_steps(attribution: Attribution) -> Iterator[Check]:
    """Steps with which a device's recording begins or ends, and of which much is missing."""
    ranks = rank_of_device(attribution.trace)
    cut = cut_steps(attribution)
    for device in sorted(cut, key=ranks.__getitem__):
        said = listed([f"{end} with {share(part)} of a step" for end, part in cut[device].items()])
        detail = f"the recording of rank {ranks[device]} {said}: figures per step count it as a whole one"
        yield Check("cut_steps", "warn", detail)


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
