"""What recording costs: how much longer a step is in a recording, and what its parts are without the recorder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import structs

from profkit.traces import Trace

from .attribution import Attribution
from .cycle import slowest_device
from .inflation_parts import brought_to, lengthened, middle_step, without_excess
from .inflation_result import Inflation, InflationPart
from .matching import MatchedCollectives
from .result import Cycle
from .step_cost import StepCost, recorder_of, step_cost
from .vocabulary import PART, PARTS, PHASE, PHASES

MAX_INFLATION = 0.1
"""Share by which recording may lengthen a step before it is said aloud."""

BUSY = ("compute", "collective", "copy")

MOST_PER_OP = 500
"""Nanoseconds by which recording may lengthen an op of the GPU, or the gap before it: 180 were seen at most."""

NOT_TIMED = "no step was timed without a recorder"
OTHER_STEPS = "the recording holds other steps of its window than the typical ones"


def inflation_of(
    attribution: Attribution, matched: MatchedCollectives, cycle: Cycle, parts_known: bool
) -> Inflation | None:
    """What recording costs in a step, and in its parts where the partition is known; ``None`` without a step."""
    device = slowest_device(attribution)
    if device is None:
        return None
    trace, period = attribution.trace, cycle.period_ns_median
    cost = step_cost(trace, cycle)
    found = Inflation(recorder_of(trace), period, unknown=NOT_TIMED, at_most_ns=_at_most(trace, cycle))
    if cost is not None:
        found = _measured(cost)
    if period is None or not parts_known:
        return found
    middle = middle_step(attribution, device)
    host = lengthened(attribution, matched, device, middle.cells)
    cells = np.array(brought_to(period, middle.cells.ravel().tolist(), host.ravel().tolist())).reshape(host.shape)
    late = lengthened(attribution, matched, device, cells)
    parts = [
        _part(phase, part, int(cells[row, column]), int(late[row, column]), middle.ops.get(phase, 0))
        for column, phase in enumerate(PHASES)
        for row, part in enumerate(PARTS)
        if cells[row, column]
    ]
    busy = (cells - middle.cells)[[PART[name] for name in BUSY]].sum(axis=0)
    unions = {phase: ns + int(busy[PHASE[phase]]) for phase, ns in middle.unions.items()}
    kernels, brought = middle.cells[PART["compute"]], cells[PART["compute"]]
    attention = {
        phase: min(ns, own) * int(brought[PHASE[phase]]) // own
        for phase, ns in middle.attention.items()
        if (own := int(kernels[PHASE[phase]]))
    }
    found = structs.replace(found, parts=tuple(parts), ops=middle.ops, unions=unions, attention=attention)
    return with_estimates(found)


def _part(phase: str, part: str, recorded: int, host: int, ops: int) -> InflationPart:
    """Host time may be recording as a whole, GPU time as far as records of its ops go."""
    return InflationPart(phase, part, recorded, host, host + min(recorded - host, ops * MOST_PER_OP))


def _measured(cost: StepCost) -> Inflation:
    low, high = cost.band
    known = cost.is_kept_like_window
    return Inflation(
        recorder=cost.recorder,
        recorded_ns=cost.recorded_ns,
        measured_ns=cost.timed.median_ns,
        unrecorded_ns=cost.unrecorded_ns if known else None,
        low_ns=low if known else None,
        high_ns=high if known else None,
        steps_low_ns=cost.timed.low_ns,
        steps_high_ns=cost.timed.high_ns,
        ratio=cost.ratio,
        ratio_error=cost.error if cost.measured else None,
        unknown=None if known else OTHER_STEPS,
        text=cost.said,
        elsewhere_ns=cost.elsewhere_ns,
        context=cost.timed_recorded.context if cost.timed_recorded else None,
    )


def _at_most(trace: Trace, cycle: Cycle) -> int | None:
    """The step that throughput without a recorder allows, in ns: what it also did, such as prefills, is in it."""
    throughput = trace.run.tokens_per_s
    if not throughput or not cycle.accept_len or not cycle.batch_size:
        return None
    return round(cycle.accept_len * cycle.batch_size / throughput * 1e9)


def with_estimates(found: Inflation) -> Inflation:
    """``found`` with the estimate of each part without a recorder, if the step without it is known."""
    if found.unrecorded_ns is None:
        return found
    recorded, host = [row.recorded_ns for row in found.parts], [row.lengthened_ns for row in found.parts]
    estimates = without_excess(recorded, host, found.unrecorded_ns, [row.most_ns for row in found.parts])
    rows = [_estimated(found, row, estimate) for row, estimate in zip(found.parts, estimates, strict=True)]
    return structs.replace(found, parts=tuple(rows))


def _estimated(found: Inflation, row: InflationPart, estimate: int) -> InflationPart:
    """A part may have been lengthened by all that recording may have cost, as far as its nature allows, or not at all,
    as far as the others can make up for it; or all parts differ alike."""
    if found.recorded_ns is None or found.low_ns is None or found.high_ns is None:
        return row
    least = row.recorded_ns - min(found.recorded_ns - found.low_ns, row.most_ns)
    every = sum(part.most_ns for part in found.parts)
    if found.recorded_ns - found.low_ns > every:
        # More than records can cost: the steps without a recorder differ in their work.
        least = min(least, row.recorded_ns * found.low_ns // found.recorded_ns)
    others = every - row.most_ns
    most = row.recorded_ns - max(found.recorded_ns - found.high_ns - others, 0)
    if found.high_ns > found.recorded_ns:
        most = -(-row.recorded_ns * found.high_ns // max(found.recorded_ns, 1))
    return structs.replace(row, unrecorded_ns=estimate, low_ns=min(least, estimate), high_ns=max(most, estimate))


def grouped(found: Inflation, names: Sequence[str], title: str) -> InflationPart | None:
    """The parts called ``names`` of all phases as one row called ``title``; ``None`` where there is none."""
    own = [row for row in found.parts if row.part in names]
    if not own:
        return None
    recorded, host, most = (
        sum(column) for column in zip(*((row.recorded_ns, row.lengthened_ns, row.most_ns) for row in own), strict=True)
    )
    whole = InflationPart("", title, recorded, host, most)
    if found.unrecorded_ns is None:
        return whole
    return _estimated(found, whole, sum(row.unrecorded_ns or 0 for row in own))
