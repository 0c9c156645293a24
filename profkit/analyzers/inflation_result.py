"""Rows of what recording costs: of one recording, and of one run by several recorders. Times are ns per step."""

from __future__ import annotations

from msgspec import Struct


class InflationPart(Struct, frozen=True):
    """One part of one phase in a step: as recorded, and what it is without a recorder, if that is known.

    ``lengthened_ns`` is how much of it is time of a host, which recording makes longer by far the most, ``most_ns`` by
    how much recording may have made it longer at all.
    """

    phase: str
    part: str
    recorded_ns: int
    lengthened_ns: int
    most_ns: int = 0
    unrecorded_ns: int | None = None
    low_ns: int | None = None
    high_ns: int | None = None


class Inflation(Struct, frozen=True):
    """What recording costs in a step of the rank that sets the pace. Times are ns per step.

    ``recorded_ns`` is the period of the recording, ``measured_ns`` the median step as the host timed it while nothing
    was recorded, of which the middle 80 % lie between ``steps_low_ns`` and ``steps_high_ns``. ``ratio`` is how many
    times as long a step is in the recording: at the same contexts, and known to ``ratio_error`` (95 %), where contexts
    were counted; otherwise the one over the other. ``unrecorded_ns`` is the recorded step over the ratio if a cost can
    be told, or else the recorded step; the truth is between ``low_ns`` and ``high_ns``. The ``recorded_ns`` of
    ``parts`` sum to the recorded step, their ``unrecorded_ns`` to the unrecorded one. ``at_most_ns`` is all that
    throughput says where no step was timed. ``ops``, ``unions`` and ``attention`` (its kernels' union) are by phase.
    ``context`` is the median of the tokens that all requests of a recorded step have together, ``elsewhere_ns`` what
    steps with as many take outside of the window.
    """

    recorder: str
    recorded_ns: int | None
    measured_ns: int | None = None
    unrecorded_ns: int | None = None
    low_ns: int | None = None
    high_ns: int | None = None
    steps_low_ns: int | None = None
    steps_high_ns: int | None = None
    ratio: float | None = None
    ratio_error: float | None = None
    at_most_ns: int | None = None
    parts: tuple[InflationPart, ...] = ()
    ops: dict[str, int] = {}
    unions: dict[str, int] = {}
    attention: dict[str, int] = {}
    elsewhere_ns: int | None = None
    context: int | None = None
    unknown: str | None = None
    text: str = ""


class RecorderRow(Struct, frozen=True):
    """One figure of a step by each recorder of a check, as recorded and after inflation is taken out.

    ``part`` is ``union`` (all of the phase's ops), ``work`` (kernels and copies of the partition), where that differs
    also ``attention`` and ``other_work``, which it is made of, another part of the partition or, with an empty
    ``phase``, ``step``.
    Spreads are from the least to the most, over the least. ``differs`` where they are wide, and no jitter.
    """

    phase: str
    part: str
    recorded_ns: tuple[int, ...]
    recorded_spread: float
    unrecorded_ns: tuple[int, ...] | None = None
    unrecorded_spread: float | None = None
    differs: bool = False


class RecorderOps(Struct, frozen=True):
    """Kernels, copies and memsets per step of one phase, by each recorder."""

    phase: str
    ops: tuple[int, ...]

    @property
    def same(self) -> bool:
        """Whether every recorder has as many."""
        return len(set(self.ops)) == 1


class RecorderCheck(Struct, frozen=True):
    """The same model, configuration, batch size and graph mode by several ``recorders``; ``traces`` in their order."""

    traces: tuple[str, ...]
    recorders: tuple[str, ...]
    batch_size: int
    ratios: tuple[float | None, ...]
    rows: tuple[RecorderRow, ...]
    ops: tuple[RecorderOps, ...]
    agree: bool | None
    text: str

    @property
    def is_taken_out(self) -> bool:
        """Whether what recording cost is known of all recorders, and told of one at least."""
        known = all(row.unrecorded_ns is not None for row in self.rows)
        return known and any(row.unrecorded_ns != row.recorded_ns for row in self.rows)
