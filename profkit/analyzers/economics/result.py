"""The tables of the economics. Times are nanoseconds per step; what is not known is ``None``."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Range = tuple[float, float]
Basis = Literal["unrecorded", "recorded", "mixed"]
State = Literal["between", "above", "below", "unknown"]
Outcome = Literal["wins", "even", "loses"]
Decided = Literal["measured", "predicted"]


class PartTime(Struct, frozen=True):
    """One phase's ``group`` of parts (``kernels``, ``collectives``, ``copies``, ``host gaps``, ``other gaps``)."""

    phase: str
    group: str
    ns: float


class Decoding(Struct, frozen=True):
    """Plain or speculative decoding at one batch size; ``parts`` are of the rank that sets the pace.

    ``step_ns`` is the step that break-even rests on: ``unrecorded_ns``, the median that the engine's host timed without
    a recorder, where there is one, else ``recorded_ns``. ``throughput_ns`` is the step that
    ``tokens_per_s``, measured without a recorder, amounts to: prefills of replaced requests included. It is the mean of
    the rates before and after the recording, where there are both. ``unrecorded_steps`` are those behind
    ``unrecorded_ns``.
    """

    trace: str
    steps: int
    step_ns: int
    recorded_ns: int
    unrecorded_ns: int | None
    throughput_ns: float | None
    accept_len: float | None
    us_per_token: float | None
    tokens_per_s: float | None
    parts: tuple[PartTime, ...]
    tokens_per_s_before: float | None = None
    tokens_per_s_after: float | None = None
    unrecorded_steps: int | None = None


class Row(Struct, frozen=True):
    """Both decodings at one batch size. ``basis`` is ``mixed`` where one side's steps were timed without a recorder,
    and the other's only recorded. ``*_ci95`` are 95 % intervals of the spread of the few recorded steps alone.

    ``headroom`` is accept length minus break-even, ``headroom_share`` the same over the break-even;
    ``prediction_error`` is predicted over measured speed-up, minus 1. Where the user says another accept length
    than the run's, nothing is measured of it. ``measured_break_even`` is what the measured throughput implies: accept
    length over measured speed-up. ``outcome`` is the word for the speed-up that the verdict rests on, and ``None``
    where that is not known.

    Where throughput was counted before and after a recording, ``measured_range`` is from the least to the most of the
    quotients, ``measured_break_even_range`` the accept length over these, and ``error_off_range`` how far the predicted
    speed-up lies off the nearest end, relative to it: 0 inside.
    """

    batch_size: int
    basis: Basis
    plain: Decoding
    speculative: Decoding
    break_even: float
    break_even_ci95: Range | None
    headroom: float | None
    headroom_share: float | None
    predicted_speedup: float | None
    predicted_ci95: Range | None
    measured_speedup: float | None
    prediction_error: float | None
    measured_break_even: float | None = None
    outcome: Outcome | None = None
    measured_range: Range | None = None
    measured_break_even_range: Range | None = None
    error_off_range: float | None = None


class Growth(Struct, frozen=True):
    """How a part grows with the batch: ``base_ns`` + ``per_request_ns`` · batch, by least squares.

    ``group`` is ``None`` for a whole phase, ``phase`` too for the whole step; ``ns`` are its times by batch size.
    ``largest_residual`` is relative to the value itself. Under three batch sizes nothing is fitted. ``plain_steps`` are
    its times in plain steps of the same batch size: those of the cycle are the break-even.
    """

    decoding: Literal["plain", "speculative"]
    phase: str | None
    group: str | None
    ns: tuple[float, ...]
    base_ns: float | None
    per_request_ns: float | None
    r2: float | None
    largest_residual: float | None
    text: str
    plain_steps: tuple[float, ...] = ()


class Crossing(Struct, frozen=True):
    """A batch size, or that it lies above or below all that were recorded."""

    state: State
    at: float | None = None


class Crossover(Struct, frozen=True):
    """Up to which batch size speculation pays by steps, and by measured throughput.

    ``low`` and ``high`` are where the ends of the break-even's interval, the spread of the recorded steps, meet the
    accept length.
    """

    estimate: Crossing
    low: Crossing
    high: Crossing
    measured: Crossing
    text: str


class Lever(Struct, frozen=True):
    """What would bring the row to break-even: a longer accept length, or ``excess_ns`` less of the cycle.

    ``excess_ns`` is negative where speculation pays: what the cycle may grow by. The part is the cycle's largest, with
    its share of the recorded steps. On the ``basis`` of measured throughput, the cycle is the one that this amounts to.
    ``steps_ns`` is the step that was timed, or only ``recorded``. ``outcome`` is the word for the row on that basis.
    """

    batch_size: int
    accept_len: float
    accept_len_needed: float
    excess_ns: float
    cycle_ns: int
    phase: str | None
    group: str | None
    part_ns: float | None
    block_size: int | None
    basis: Decided = "predicted"
    outcome: Outcome | None = None
    steps_ns: int | None = None
    recorded: bool = False


class Economics(Struct, frozen=True):
    """Speculative against plain decoding over batch sizes, alike in CUDA graphs; ``sentences`` say it in plain words.

    ``decided_by`` is what outcomes and sentences compare: speed-ups ``measured`` as throughput without a recorder where
    each batch size has one, else those ``predicted`` from steps. ``lever`` is predicted, ``measured_lever`` measured.
    ``prediction`` says how well predicted speed-ups agree with measured ones, and ``intervals`` what the intervals do
    not hold.
    """

    baseline: str
    speculative: str
    graphs: bool
    rows: tuple[Row, ...]
    growth: tuple[Growth, ...]
    crossover: Crossover
    lever: Lever | None
    sentences: tuple[str, str, str]
    prediction: str
    decided_by: Decided | None = None
    measured_lever: Lever | None = None
    intervals: str = ""
