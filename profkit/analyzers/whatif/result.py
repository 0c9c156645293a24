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

    ``bound`` if the usual figure is itself the best that can be, no prediction; ``bound_by`` names the levers by which
    it is that.
    """

    levers: tuple[str, ...]
    name: str
    then: Economics
    saved_ns: Span
    bound: bool
    assumptions: tuple[str, ...]
    bound_by: tuple[str, ...] = ()


class Refusal(Struct, frozen=True):
    """A lever that a recording cannot carry, and why."""

    lever: str
    name: str
    reason: str


class RecordingWhatIf(Struct, frozen=True):
    """The answers of one recording.

    ``now`` is the step as it is replayed, ``recorded_ns`` as it was recorded; ``baseline`` names the recording of plain
    decoding that it is compared with. ``alone`` is each lever by itself, in the order asked, or, where nothing was
    asked, what is sure to gain most first. ``combined`` is all that was asked, but for ``left_out``, which the
    recording cannot carry, or not with the others. ``unknown`` says why the whole recording gives no answer.
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
