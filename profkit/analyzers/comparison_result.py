"""Rows that hold recordings of speculative decoding against plain ones: speed-ups, and why there is none."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Unlike = Literal["model", "period", "batch_size", "gpus", "gpu", "link", "recorder"]
"""What keeps a plain and a speculative recording from being compared; ``gpus`` is their number, ``gpu`` their kind."""


class Comparison(Struct, frozen=True):
    """A speculative trace beside a plain one of the same batch size.

    ``measured_range`` is from the least to the most that the measured speed-up is with the rates before and after each
    recording; ``None`` where neither side was counted twice.
    """

    baseline: str
    speculative: str
    batch_size: int
    break_even_accept_len: float
    predicted_speedup: float | None
    measured_speedup: float | None
    same_graphs: bool
    text: str
    measured_range: tuple[float, float] | None = None


class Unpaired(Struct, frozen=True):
    """Recordings of one speculative sweep that are all compared with no plain one, though there are plain ones.

    ``baseline`` is the plain sweep that comes nearest, ``reasons`` what it differs in, or may; ``why`` says these, and
    ``text`` the whole, in plain words.
    """

    speculative: str
    baseline: str
    recordings: tuple[str, ...]
    reasons: tuple[Unlike, ...]
    why: str
    text: str


class GainPart(Struct, frozen=True):
    """A part of a speculative cycle in plain steps of the same batch size: at the lowest and the highest batch size."""

    phase: str
    group: str
    low: float
    high: float

    @property
    def change(self) -> float:
        """By how many plain steps the part grows."""
        return self.high - self.low


class Gain(Struct, frozen=True):
    """How the speed-up of one configuration over another changes with the batch size, and what makes it change.

    ``cost`` says only what a cycle costs at the lowest and the highest batch size, and which parts make that change.
    """

    baseline: str
    speculative: str
    batch_sizes: tuple[int, ...]
    parts: tuple[GainPart, ...]
    text: str
    cost: str = ""
