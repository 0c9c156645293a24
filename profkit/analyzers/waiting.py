"""Why a rank was last: what it did longer than the rank that waited, since both left the previous collective.

Ranks leave a collective together. What the last one does more of until the next collective begins is what makes the
other wait; its ordinary work, which the other did too, is not.
"""

from __future__ import annotations

import numpy as np

from profkit.traces import I8, I64, UNKNOWN

from .attribution import Attribution
from .collective_instances import Instances
from .lateness import parts_by_fault
from .matching import MatchedCollectives, partner_positions, place_in_step
from .partition import DeviceTimeline
from .vocabulary import PART, PARTS, PHASES

CELLS = len(PARTS) * len(PHASES)
NEVER = np.iinfo(np.int64).min


def causes_of_waiting(attribution: Attribution, matched: MatchedCollectives, device: int) -> dict[int, I64]:
    """For each device that ``device`` waited for: its waiting by part and phase of that device's excess.

    Arrays of shape (parts, phases), in nanoseconds; each sums to the exposed waiting for that device, but for waits
    without any excess, which are left out. A wait before which the recording has no collective is taken to have the
    causes of the waits at the same place of other steps, and to be no longer than their median; without any it is left
    out too.
    """
    own = matched.instances[device]
    wait = exposed_waits(attribution, device, own)
    parts = {number: parts_by_fault(attribution, timeline) for number, timeline in attribution.devices.items()}
    place = place_in_step(matched.keys[device])
    causes = {}
    for last in np.unique(own.last[wait > 0]).tolist():
        other = matched.instances[last]
        mine = np.flatnonzero((own.last == last) & (wait > 0))
        theirs = partner_positions(matched, device, last)[mine]
        began = (_left_before(own)[mine] > NEVER) & (_left_before(other)[theirs] > NEVER)
        first, mine, theirs = mine[~began], mine[began], theirs[began]
        skew = wait[mine]
        late = _since_previous(attribution.devices[last], parts[last], other, theirs)
        usual = _since_previous(attribution.devices[device], parts[device], own, mine)
        causes[last] = _excess(skew, late, usual)
        for row in first.tolist():
            alike = place[mine] == place[row]
            if alike.any():
                length = min(float(wait[row]), float(np.median(skew[alike])))
                shared = _excess(skew[alike], late[alike], usual[alike])
                causes[last] += np.round(shared * (length / int(skew[alike].sum()))).astype(np.int64)
    return causes


def exposed_waits(attribution: Attribution, device: int, own: Instances) -> I64:
    """How long each instance waits for the last rank while ``device`` does nothing else, in nanoseconds.

    A wait that work of another stream hides delays nothing, and of collectives that wait at once only the latest
    counts. Behind it on its own stream work may begin early (programmatic dependent launch), but only to wait too.
    """
    timeline, ops = attribution.devices[device], attribution.trace.ops
    owner, segment, length = timeline.within(own.start, own.start + np.maximum(own.skew, 0))
    row, op = own.row[owner], timeline.op[segment]
    collective = timeline.part[segment] == PART["collective"]
    behind = ~collective & (ops.stream[op] == ops.stream[row]) & (ops.start[op] > own.start[owner])
    # A gap has the op that ends it, but none lies in a collective.
    alone = (collective & (op == row)) | behind
    return np.bincount(owner[alone], weights=length[alone], minlength=len(own.row)).astype(np.int64)


def _since_previous(timeline: DeviceTimeline, parts: I8, instances: Instances, position: I64) -> I64:
    """Nanoseconds by cell, per instance, from the end of the collective before it to its start."""
    start, end = _left_before(instances)[position], instances.start[position]
    owner, segment, length = timeline.within(start, end)
    cell = parts[segment].astype(np.int64) * len(PHASES) + timeline.phase[segment]
    total = np.bincount(owner * CELLS + cell, weights=length, minlength=len(start) * CELLS)
    return total.astype(np.int64).reshape(len(start), CELLS)


def _left_before(instances: Instances) -> I64:
    """When all collectives before each one that ranks leave together had ended, ``NEVER`` without any."""
    ends = np.where(instances.skew != UNKNOWN, instances.end, NEVER)
    return np.concatenate([[NEVER], np.maximum.accumulate(ends)])[: len(ends)]


def _excess(skew: I64, theirs: I64, mine: I64) -> I64:
    """Each wait, shared out over the cells in which the last device spent longer."""
    more = np.maximum(theirs - mine, 0)
    total = more.sum(axis=1)
    explained = total > 0
    share = more[explained] / total[explained, None]
    shared = np.round((skew[explained, None] * share).sum(axis=0))
    cells: I64 = shared.astype(np.int64).reshape(len(PARTS), len(PHASES))
    return cells
