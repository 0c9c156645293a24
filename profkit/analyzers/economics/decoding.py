"""One decoding at one batch size, from the figures of its trace."""

from __future__ import annotations

from collections import defaultdict

from ..comparison import accept_len_is_the_runs, step_ns, timed_ns
from ..gain import GROUPS, OTHER_GAPS
from ..result import TraceFigures
from .result import Decoding, PartTime


def decoding_of(trace: TraceFigures) -> Decoding:
    """The figures of ``trace``.

    Microseconds per token are the step over accept length and batch size.
    """
    cycle, rate = trace.cycle, trace.provenance.tokens_per_s
    tokens = cycle.accept_len * cycle.batch_size if cycle.accept_len and cycle.batch_size else None
    return Decoding(
        trace=trace.name,
        steps=cycle.steps,
        step_ns=step_ns(trace),
        recorded_ns=cycle.period_ns_median or 0,
        unrecorded_ns=timed_ns(trace),
        throughput_ns=tokens / rate * 1e9 if tokens and rate and accept_len_is_the_runs(trace) else None,
        accept_len=cycle.accept_len,
        us_per_token=step_ns(trace) / 1000 / tokens if tokens else None,
        tokens_per_s=rate,
        parts=_parts(trace),
        tokens_per_s_before=trace.provenance.tokens_per_s_before,
        tokens_per_s_after=trace.provenance.tokens_per_s_after,
        unrecorded_steps=trace.provenance.timed_steps if timed_ns(trace) is not None else None,
    )


def _parts(trace: TraceFigures) -> tuple[PartTime, ...]:
    """A step of the rank that sets the pace, by phase and group; they sum to its window over its steps."""
    device = next(device for device in trace.devices.values() if device.rank == trace.cycle.rank)
    found: dict[tuple[str, str], int] = defaultdict(int)
    for phase, parts in device.phase_partition_ns.items():
        for part, ns in parts.items():
            if ns is None:
                return ()
            found[phase, GROUPS.get(part, OTHER_GAPS)] += ns
    return tuple(PartTime(*key, ns / device.steps) for key, ns in found.items() if ns)
