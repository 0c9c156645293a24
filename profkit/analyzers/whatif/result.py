"""What a what-if says: frozen rows, the same for terminal and ``--json``.

Times are integer nanoseconds. The names are the JSON contract ``profkit.whatif/1``: keys are only ever added.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SCHEMA = "profkit.whatif/1"


class Span(Struct, frozen=True):
    """A time in ns: as it would usually be, and its bounds."""

    low: int
    usual: int
    high: int


class Figure(Struct, frozen=True):
    """Another figure: as it would usually be, and its bounds."""

    low: float
    usual: float
    high: float


class Economics(Struct, frozen=True):
    """What a step gives. All but the step may be unknown.

    ``us_per_token`` is the step over accept length and batch size; ``break_even_accept_len`` the step in plain steps of
    the same batch size, and ``speedup`` the accept length over it.
    """

    step_ns: Span
    accept_len: Figure | None
    us_per_token: Figure | None
    tokens_per_s: Figure | None
    break_even_accept_len: Figure | None = None
    speedup: Figure | None = None

    @property
    def cost_us(self) -> float:
        """What a token takes in µs, at most where the accept length is uncertain; of an unknown one, the whole step."""
        if self.us_per_token is None or self.accept_len is None:
            return self.step_ns.usual / 1e3
        known = self.accept_len.low == self.accept_len.high
        return self.us_per_token.usual if known else self.us_per_token.high


class Outcome(Struct, frozen=True):
    """The step with one lever, or with several.

    ``bound`` if no figure is a prediction, and only the bounds tell anything; ``bound_by`` names the levers by which it
    is that. Empty where it is not so: ``held_back`` says that the host hides what the GPU would gain or lose, and with
    which host the low bound is; ``beyond``, that more or fewer tokens are asked for than were recorded;
    ``not_in_bounds``, what is uncertain by an unknown amount.
    """

    levers: tuple[str, ...]
    name: str
    then: Economics
    saved_ns: Span
    bound: bool
    assumptions: tuple[str, ...]
    bound_by: tuple[str, ...] = ()
    held_back: str = ""
    beyond: str = ""
    not_in_bounds: str = ""

    @property
    def surely_us(self) -> float:
        """What a token takes in µs, as far as that is sure: of a bound, at most."""
        if not self.bound:
            return self.then.cost_us
        cost = self.then.us_per_token
        return cost.high if cost and self.then.accept_len else self.then.step_ns.high / 1e3


class Refusal(Struct, frozen=True):
    """A lever that a recording cannot carry, and why."""

    lever: str
    name: str
    reason: str


class OnlyTogether(Struct, frozen=True):
    """A lever that is refused alone, and that the combination uses: what it assumes there, and with what reserve."""

    lever: str
    name: str
    assumptions: tuple[str, ...]
    beyond: str = ""
    not_in_bounds: str = ""


class Unrecorded(Struct, frozen=True):
    """What the run did without a recorder, as far as it was timed: these are the figures of ``analyze``.

    ``break_even_accept_len`` is by the steps that the engine's host timed, ``throughput_break_even`` the accept length
    over the ratio of both throughputs, prefills included.
    """

    step_ns: int | None
    tokens_per_s: float | None
    break_even_accept_len: float | None = None
    throughput_break_even: float | None = None


class RecordingWhatIf(Struct, frozen=True):
    """The answers of one recording.

    ``now`` is the step as it is replayed, ``recorded_ns`` as it was recorded; ``baseline`` names the recording of plain
    decoding that it is compared with, and ``baseline_unlike`` says where only one of the two ran with CUDA graphs.
    ``alone`` is each lever by itself, in the order asked, or, where nothing was asked, what is sure to gain most first.
    ``combined`` is all that was asked, but for ``left_out``, which the recording cannot carry, or not with the others;
    ``only_together`` are the levers of it that are refused alone. ``unknown`` says why the whole recording gives no
    answer. All figures rest on steps as recorded (``basis``), recorder included; ``unrecorded`` is what is known
    without one.
    """

    name: str
    path: str
    kind: Literal["speculative", "plain"] | None
    batch_size: int | None
    block_size: int | None
    recorded_ns: int | None
    now: Economics | None
    baseline: str | None
    alone: tuple[Outcome, ...]
    combined: Outcome | None
    refused: tuple[Refusal, ...]
    text: str
    assumptions: tuple[str, ...] = ()
    unknown: str | None = None
    left_out: tuple[Refusal, ...] = ()
    basis: Literal["recorded"] = "recorded"
    unrecorded: Unrecorded | None = None
    baseline_unlike: str = ""
    only_together: tuple[OnlyTogether, ...] = ()

    @property
    def answers(self) -> bool:
        """Whether anything can be said of it."""
        return bool(self.alone) or self.combined is not None


class WhatIf(Struct, frozen=True):
    """The result of ``profkit whatif``; ``asked`` is empty where every lever was tried."""

    schema: str
    asked: tuple[str, ...]
    recordings: tuple[RecordingWhatIf, ...]

    @property
    def answers(self) -> bool:
        """Whether anything can be said of any recording."""
        return any(one.answers for one in self.recordings)
