"""What a step is made of when it is re-played: host calls, GPU work, and what each waits for.

All times are durations in nanoseconds; only the first call of a thread and the first op of a stream have a place in
time. Every rule is a maximum of sums, so making anything shorter never makes anything later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import I8, I64, UNKNOWN, Bools, Index

NONE = UNKNOWN


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Host calls that launch work or block, ordered by thread and time.

    A call begins ``before`` ns after the one before it on its thread ended; where it has a ``meeting``, that long
    after the last thread came to it. It takes ``duration``, and where it blocks, ends no earlier than ``wake`` ns after
    the op ``awaited``. ``step`` counts decode steps alike on all ranks; ``origin`` is the recorded start; ``row`` is
    that of ``trace.launches``.
    """

    row: Index
    thread: I64
    step: I64
    origin: I64
    before: I64
    duration: I64
    awaited: I64
    wake: I64
    meeting: I64

    def __len__(self) -> int:
        return len(self.thread)

    @property
    def first(self) -> Bools:
        """Which calls are the first of their thread."""
        return begins(self.thread)

    def take(self, kept: Bools | Index) -> Calls:
        """The calls at ``kept``."""
        return Calls(*(getattr(self, name)[kept] for name in Calls.__slots__))


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """GPU work, ordered by lane (a stream of a device) and time.

    An op starts ``delay`` ns after all of these have passed: ``lag`` behind the start of its ``call``, ``gap`` behind
    the end of the op before it in its lane, and what ``Model.waits`` says of other lanes. It runs for ``duration``; one
    with a ``collective`` for that long from the last rank's start on. ``step`` is the decode step in which it was
    launched; ``row`` is that of ``trace.ops``.
    """

    row: Index
    device: I64
    lane: I64
    call: I64
    lag: I64
    gap: I64
    delay: I64
    duration: I64
    collective: I64
    step: I64
    phase: I8
    kernel_class: I8
    origin: I64

    def __len__(self) -> int:
        return len(self.lane)

    @property
    def first(self) -> Bools:
        """Which ops are the first of their lane."""
        return begins(self.lane)


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Which ops wait for an op of another lane: ``op`` starts no sooner than ``gap`` ns behind the end of ``on``.

    ``told`` where a call of the host says so; elsewhere it is seen from their times.
    """

    op: I64
    on: I64
    gap: I64
    told: Bools

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A recording as calls and work with what each waits for, and how the host's waiting was understood."""

    calls: Calls
    work: Work
    waits: Waits
    assumptions: tuple[str, ...] = ()


def begins(group: I64) -> Bools:
    """Which rows are the first of their group, where rows are ordered by group."""
    opens = np.ones(len(group), np.bool_)
    opens[1:] = group[1:] != group[:-1]
    return opens
