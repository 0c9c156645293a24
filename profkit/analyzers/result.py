"""The tables that an analysis gives: frozen rows, the same for terminal, page and ``--json``.

Times are integer nanoseconds; what the recording cannot tell is ``None``, and a health check says why.
The names are the JSON contract ``profkit.analysis/1``: keys are only ever added.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .comparison_result import Comparison, Gain, Unpaired
from .device_result import DeviceFigures
from .economics.result import Economics
from .graph_result import GraphFigures, GraphPrediction
from .inflation_result import Inflation, RecorderCheck
from .saving_result import GraphSaving

Status = Literal["ok", "warn", "abstain"]


class Check(Struct, frozen=True):
    """One health check. ``spoils`` names the figures that are unknown because of it."""

    id: str
    status: Status
    detail: str
    spoils: tuple[str, ...] = ()


class Health(Struct, frozen=True):
    """All checks, and the worst of their states."""

    status: Status
    checks: tuple[Check, ...]


class Cycle(Struct, frozen=True):
    """A step of the slowest rank. ``us_per_token`` is period over accept length and batch size.

    ``unrecorded_us_per_token`` is the same of a step without the recorder, ``None`` where that is not known.
    """

    kind: Literal["speculative", "plain"] | None
    batch_size: int | None
    steps: int
    period_ns_median: int | None
    period_ns: tuple[int, ...]
    phase_ns_median: dict[str, int]
    accept_len: float | None
    accept_len_source: str
    us_per_token: float | None
    phases_source: str
    phases_inferred: bool
    rank: int | None = None
    unrecorded_us_per_token: float | None = None


class Cause(Struct, frozen=True):
    """Something that holds the step back: ``ns_per_step`` is what removing it would give."""

    cause: str
    rank: int | None
    phase: str | None
    part: str | None
    ns_per_step: int
    text: str


class Provenance(Struct, frozen=True):
    """Where a trace came from, as far as it may be told.

    ``tokens_per_s`` is the mean of the rates before and after the recording, where it was counted twice;
    ``timed_steps`` are those that the engine's host timed without a recorder.
    """

    tool: str
    tool_version: str
    schema_version: str
    driver: str
    engine: str
    config: str
    concurrency: int | None
    graphs: bool | None
    tokens_per_s: float | None
    note: str
    block_size: int | None = None
    tokens_per_s_before: float | None = None
    tokens_per_s_after: float | None = None
    timed_steps: int | None = None
    model: str = ""


class TraceFigures(Struct, frozen=True):
    """One trace, analysed."""

    name: str
    source: str
    path: str
    health: Health
    devices: dict[str, DeviceFigures]
    graphs: dict[str, GraphFigures]
    cycle: Cycle
    verdict: tuple[Cause, ...]
    summary: str
    provenance: Provenance
    with_graphs: GraphPrediction | None = None
    inflation: Inflation | None = None


def sweep_of(trace: TraceFigures) -> str:
    """The folder that ``trace`` lies in: recordings of one capture lie together."""
    return trace.path.rstrip("/").rpartition("/")[0]


def one_model(first: TraceFigures, second: TraceFigures) -> bool:
    """Whether two traces are of the same model, as far as both name it."""
    return one_name(first.provenance.model, second.provenance.model)


def one_name(*models: str) -> bool:
    """Whether the names may be of one model: an empty one is of a model that is not known."""
    return len({*models} - {""}) < 2


class Analysis(Struct, frozen=True):
    """The result of ``profkit analyze``. ``comparison`` is the first of ``comparisons``."""

    schema: str
    traces: tuple[TraceFigures, ...]
    comparison: Comparison | None
    comparisons: tuple[Comparison, ...]
    gains: tuple[Gain, ...] = ()
    graph_savings: tuple[GraphSaving, ...] = ()
    recorder_checks: tuple[RecorderCheck, ...] = ()
    economics: tuple[Economics, ...] = ()
    unpaired: tuple[Unpaired, ...] = ()
