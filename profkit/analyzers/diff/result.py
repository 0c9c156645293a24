"""The tables that a comparison gives: frozen rows, the same for terminal, page and ``--json``.

Times are integer nanoseconds per step, or per accepted token. The names are the JSON contract ``profkit.diff/1``:
keys are only ever added.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

Per = Literal["step", "token"]
Interval = tuple[int, int]
State = Literal[
    "same", "faster", "slower", "waits less", "waits more", "more often", "less often", "replaced", "new", "gone",
    "unknown",
]  # fmt: skip


class Comparable(Struct, frozen=True):
    """Whether the two recordings may be compared: ``warn`` and ``no`` give the reasons.

    ``same`` is one recording twice; ``identical`` says so too.
    """

    status: Literal["ok", "warn", "no", "same"]
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
    """The change of one cell of the partition; changes of all cells sum to the total's.

    ``phase`` is ``target`` for plain decoding and verifying together, where one side decodes plainly and the other
    speculates, and ``rest`` for what follows the forwards, where the phases of only one side are inferred.
    """

    phase: str
    part: str
    kernel_class: str | None = field(name="class")
    a_ns: int
    b_ns: int
    delta_ns: int
    ci95_ns: Interval | None
    significant: bool


class StoryChange(Struct, frozen=True):
    """A change in words: ``about`` is ``waiting`` (for other ranks, in collectives), ``transfer``, ``collectives``
    (both, where they cannot be told apart or explain little of it), ``host`` (gaps in which the GPU waits for its
    host), ``graph_launch`` (of these, launches of graphs, where they alone changed), ``graph_gaps``, ``queue``,
    ``copies`` or ``compute``.

    ``a_rank`` and ``b_rank`` say whose it is in A and in B. ``follows``, of ``waiting``, is the rank whose ``cause``,
    host gaps (``host``) or kernels (``compute``), accounts for at least half of the change; ``None`` where none does.
    """

    about: str
    phase: str | None
    a_rank: int
    b_rank: int
    change: Change
    follows: int | None = None
    cause: Literal["host", "compute"] | None = None


class RankChange(Struct, frozen=True):
    """One rank's wall time, its collectives split into waiting for the last rank and transfer, its host gaps, and the
    time in which it computes.
    """

    rank: int
    wall: Change
    waiting: Change | None
    transfer: Change | None
    host: Change | None = None
    compute: Change | None = None


class KernelChange(Struct, frozen=True):
    """Kernels of one phase that belong together: names are short, and ``None`` on the side that has none.

    Counts and times are per step (or token); times are sums of durations, which may overlap and include waiting.
    ``a_call_ns`` and ``b_call_ns`` are the mean duration of one of them: the durations of all steps over their number,
    ``None`` on the side that has none. ``a_wait_ns`` and ``b_wait_ns`` are what of a collective's time is waiting for
    the last rank, ``None`` where that is not known and of other kernels. ``state`` speaks of kernels that both have by
    ``a_ns`` and ``b_ns``; they run ``more often`` or ``less often`` where their count explains the change and the time
    of one did not change the same way; a collective ``waits more`` or ``waits less`` where more than half of its change
    is waiting; ``unknown`` is not tested, for want of steps.
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
    a_call_ns: int | None = None
    b_call_ns: int | None = None
    a_wait_ns: int | None = None
    b_wait_ns: int | None = None


class Judgement(Struct, frozen=True):
    """A limit of ``--fail-on``: ``exceeded``, ``noise`` (beyond the limit, but not significant), ``unknown`` (beyond
    it, and too few steps to tell; or neither side has what it is about), or ``held``. ``percent`` is ``None`` where A
    has nothing. ``note`` says why a judgement is unknown, or what the limit's name stands for here.
    """

    limit: str
    status: Literal["exceeded", "noise", "unknown", "held"]
    change: Change
    percent: float | None
    note: str | None = None


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

    ``kernel_ranks`` are those of A and B whose kernels are compared. ``total`` is ``None`` and the tables are empty
    where the two cannot be compared; of the same recording twice there are only ``total`` and ``parts``, without any
    change.
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
    kernel_ranks: tuple[int, int] | None = None


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
