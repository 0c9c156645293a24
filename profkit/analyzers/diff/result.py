"""The tables that a comparison gives: frozen rows, the same for terminal, page and ``--json``.

Times are integer nanoseconds per step, or per accepted token. The names are the JSON contract ``profkit.diff/1``:
keys are only ever added.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

Per = Literal["step", "token"]
Interval = tuple[int, int]
State = Literal["same", "faster", "slower", "new", "gone", "replaced"]


class Comparable(Struct, frozen=True):
    """Whether the two recordings may be compared: ``warn`` and ``no`` give the reasons."""

    status: Literal["ok", "warn", "no"]
    reasons: tuple[str, ...]
    identical: bool = False


class Change(Struct, frozen=True):
    """A time in A and in B. ``ci95_ns`` is ``None`` where too few steps tell what is noise."""

    a_ns: int
    b_ns: int
    delta_ns: int
    ci95_ns: Interval | None
    significant: bool


class PartChange(Struct, frozen=True):
    """The change of one cell of the partition; changes of all cells sum to the total's."""

    phase: str
    part: str
    kernel_class: str | None = field(name="class")
    a_ns: int
    b_ns: int
    delta_ns: int
    ci95_ns: Interval | None
    significant: bool


class StoryChange(Struct, frozen=True):
    """A change in words: ``about`` is ``waiting`` (for other ranks, in collectives), ``transfer``, ``host`` (gaps in
    which the GPU waits for its host), ``graph_gaps``, ``queue``, ``copies`` or ``compute``; ``rank`` whose it is in B.
    """

    about: str
    phase: str | None
    rank: int
    change: Change


class RankChange(Struct, frozen=True):
    """One rank's wall time, and its collectives split into waiting for the last rank and transfer."""

    rank: int
    wall: Change
    waiting: Change | None
    transfer: Change | None


class KernelChange(Struct, frozen=True):
    """Kernels of one phase that belong together: names are short, and ``None`` on the side that has none.

    Counts and times are per step (or token); times are sums of durations, which may overlap and include waiting.
    """

    state: State
    phase: str
    kernel_class: str = field(name="class")
    a_name: str | None
    b_name: str | None
    a_count: float
    b_count: float
    a_ns: int
    b_ns: int
    delta_ns: int
    ci95_ns: Interval | None
    significant: bool


class Judgement(Struct, frozen=True):
    """A limit of ``--fail-on``: ``exceeded``, ``noise`` (beyond the limit, but not significant), ``unknown`` (beyond
    it, and too few steps to tell), or ``held``. ``percent`` is ``None`` where A has nothing.
    """

    limit: str
    status: Literal["exceeded", "noise", "unknown", "held"]
    change: Change
    percent: float | None


class Recorded(Struct, frozen=True):
    """What one side is: its steps, and all GPU activity of the compared window, over all its devices."""

    name: str
    path: str
    rank: int | None
    kind: str | None
    steps: int
    batch_size: int | None
    accept_len: float | None
    tokens_per_step: float | None
    concurrency: int | None
    ops: int
    ops_sum_ns: int
    wall_ns: int


class PairDiff(Struct, frozen=True):
    """Two recordings compared. ``window`` is ``steps``, or ``recording`` where neither has decode steps.

    ``total`` is ``None`` and the tables are empty where the two cannot be compared.
    """

    a: str
    b: str
    per: Per
    comparable: Comparable
    total: Change | None
    parts: tuple[PartChange, ...]
    window: Literal["steps", "recording"]
    sides: tuple[Recorded, Recorded]
    stories: tuple[StoryChange, ...]
    ranks: tuple[RankChange, ...]
    kernels: tuple[KernelChange, ...]
    limits: tuple[Judgement, ...]
    summary: str


class Diff(Struct, frozen=True):
    """The result of ``profkit diff``: the first pair as the contract has it, and all ``pairs``."""

    schema: str
    a: str
    b: str
    per: Per
    comparable: Comparable
    total: Change | None
    parts: tuple[PartChange, ...]
    summary: str
    limits: tuple[Judgement, ...]
    unpaired: tuple[str, ...]
    pairs: tuple[PairDiff, ...]
