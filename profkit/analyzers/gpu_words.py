"""What to do about a rank whose GPU works longer than the others', by what the recording knows of both."""

from __future__ import annotations

import numpy as np

from .view import View

CLOCK = "sm_clock_mhz"
"""NVML's counter, as the capture samples it."""

SLOWER = 0.97
"""A clock below this share of the others' is a slower one."""

MIN_SAMPLES = 3


def why_longer(view: View, late: int) -> str:
    """Advice for a rank whose kernels take longer: its requests, its clock, or what else there is to compare."""
    others = [device for device in view.devices if device != late]
    batch = {device: _batch_size(view, device) for device in view.devices}
    most = max((batch[device] or 0 for device in others), default=0)
    clock = {device: _clock(view, device) for device in view.devices}
    usual = [ns for device in others if (ns := clock[device]) is not None]
    own, rest = clock[late], float(np.median(usual)) if len(usual) == len(others) > 0 else None
    if own is not None and rest is not None and own < SLOWER * rest:
        return (
            f"find out what throttles the GPU (power, temperature, a limit), as its SM clock is {own:,.0f} MHz and the "
            f"others' {rest:,.0f} MHz"
        )
    if most and (batch[late] or 0) > most:
        return f"balance requests over the ranks, as its steps serve {batch[late]} and the others' at most {most}"
    if own is not None and rest is not None:
        return "balance experts and sequences over the ranks, as its SM clock is as high as the others'"
    return "balance experts and sequences over the ranks, and compare the GPU's clocks with the others'"


def _batch_size(view: View, device: int) -> int | None:
    """The usual batch size of a device's decode steps."""
    steps = view.attribution.plan.steps
    mine = (view.attribution.trace.ops.device == device) & view.attribution.in_decode
    sizes = steps.batch_size[np.unique(view.attribution.step[mine])]
    sizes = sizes[sizes >= 0]
    return int(np.median(sizes)) if len(sizes) else None


def _clock(view: View, device: int) -> float | None:
    """The mean SM clock of a device in its window, in MHz, if it was sampled there."""
    trace, window = view.attribution.trace, view.devices[device].window
    samples = trace.samples
    if CLOCK not in trace.strings or window is None:
        return None
    rows = (samples.device == device) & (samples.counter == trace.strings.index(CLOCK))
    rows &= (samples.time >= window.start_ns) & (samples.time <= window.end_ns)
    return float(samples.value[rows].mean()) if rows.sum() >= MIN_SAMPLES else None
