"""A recording with all that a what-if asks of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from profkit.traces import F64, I64, Bools

from ..analysis import Recording
from ..arrays import distinct
from ..attribution import Attribution
from ..cycle import cycle_of
from ..matching import MatchedCollectives, match_collectives
from ..replay import ContradictionError, Model, build_model, simulate
from ..replay.predict import LEAST_PERIODS, MOST_STEPS, why_not_replayed
from ..replay.simulate import Player
from ..replay.steps import periods, step_ns
from ..result import Cycle, one_name
from ..vocabulary import CLASS, CLASSES, PHASES
from ..words import counted
from .links import LINKS, Link


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A recording that can be re-played: its model and cycle, and the link between its GPUs where that is known.

    ``per_step`` is the time of ops in ns, per step and device, by phase and class; shape (phases, classes). Collectives
    count without the wait for the last rank. ``start`` is when each op starts, in ns, played as recorded.
    """

    name: str
    path: str
    attribution: Attribution
    matched: MatchedCollectives
    model: Model
    cycle: Cycle
    recorded_ns: int
    link: Link | None
    per_step: F64
    player: Player
    start: I64

    @property
    def speculative(self) -> bool:
        """Whether its steps draft."""
        return self.cycle.kind == "speculative"

    @property
    def ranks(self) -> int:
        """How many devices have decode steps."""
        return len(distinct(self.model.work.device[self.model.work.step >= 0]))

    @property
    def tokens(self) -> int | None:
        """How many tokens the target computes a step: batch size times block size, where these are known."""
        block = self.attribution.trace.run.block_size if self.speculative else 1
        return self.cycle.batch_size * block if self.cycle.batch_size and block else None

    @property
    def spread(self) -> tuple[float, float]:
        """The middle 80 % of the run's steps without a recorder, relative to their median; (1, 1) if none was timed.

        Steps of one run differ by their contexts, and a recording holds a few of them.
        """
        timed = self.attribution.trace.run.step_times
        if timed is None or not timed.median_ns:
            return 1.0, 1.0
        return min(timed.low_ns / timed.median_ns, 1.0), max(timed.high_ns / timed.median_ns, 1.0)

    @property
    def collectives(self) -> Bools:
        """Which ops of the model are collectives whose transfer is told from waiting."""
        found: Bools = (self.model.work.collective >= 0) & (self.model.work.kernel_class == CLASS["collective"])
        return found

    @property
    def config(self) -> str:
        """The name of its configuration; where none is known, of the sweep, or its own."""
        return self.attribution.trace.run.config or self.name.rpartition("/")[0] or self.name

    @property
    def in_graphs(self) -> bool:
        """Whether any of its ops were launched by a graph."""
        return bool(np.any(self.attribution.trace.ops.graph_launch[self.model.work.row] >= 0))

    @property
    def target(self) -> str:
        """The name of the model that it ran, or nothing."""
        return self.attribution.trace.run.model

    @property
    def machine(self) -> tuple[object, ...]:
        """What recordings that can be compared share beside the model: GPUs, how many step, and the recorder."""
        trace = self.attribution.trace
        return self.ranks, sorted(device.name for device in trace.devices), trace.source.format

    @property
    def configuration(self) -> tuple[object, ...]:
        """What recordings of one configuration share beside the model, at any batch size; the link if GPUs talk."""
        block, link = self.attribution.trace.run.block_size, self.link if self.ranks > 1 else None
        return self.config, self.in_graphs, self.cycle.kind, block, link, self.machine

    def played(self, model: Model) -> I64:
        """When each op of a changed model starts, in ns."""
        return simulate(model, self.player).start


def case_of(recording: Recording, attribution: Attribution, nvlink: Collection[str]) -> Case | str:
    """The case, or why there is none; ``nvlink`` names recordings whose GPUs talked over NVLink."""
    matched = match_collectives(attribution)
    if (reason := why_not_replayed(attribution, matched)) is not None:
        return reason
    run = attribution.trace.run
    cycle = cycle_of(attribution, run.accept_len, run.accept_len_source)
    model = build_model(attribution, matched, MOST_STEPS)
    recorded = periods(model.work, model.work.origin)
    if recorded.shape[1] < LEAST_PERIODS:
        whole = counted(recorded.shape[1], "decode step")
        return f"{whole} can be followed to the next one on every device, and a what-if needs {LEAST_PERIODS}"
    player = Player()
    try:
        start = simulate(model, player).start
    except ContradictionError as error:
        return str(error)
    return Case(
        name=recording.name,
        path=recording.path,
        attribution=attribution,
        matched=matched,
        model=model,
        cycle=cycle,
        recorded_ns=step_ns(recorded),
        link=_link_of(attribution, recording.name in nvlink),
        per_step=_per_step(model),
        player=player,
        start=start,
    )


def alike(case: Case, cases: Sequence[Case]) -> list[Case]:
    """The recordings of one model and configuration at other concurrencies, and the case itself, by tokens a step."""
    same = of_its_model(case, [one for one in cases if one.tokens and one.configuration == case.configuration])
    by_tokens = {one.tokens or 0: one for one in same}
    by_tokens[case.tokens or 0] = case
    return [by_tokens[tokens] for tokens in sorted(by_tokens)]


def of_its_model(case: Case, cases: Sequence[Case]) -> list[Case]:
    """Those of the case's model, as far as both name it; where it has no name and the others have several, none named.

    Those that have the very name come last.
    """
    found = [one for one in cases if one_name(one.target, case.target)]
    if not one_name(*(one.target for one in found)):
        found = [one for one in found if not one.target]
    return sorted(found, key=lambda one: one.target == case.target)


def _link_of(attribution: Attribution, nvlink: bool) -> Link | None:
    if nvlink:
        return LINKS["nvlink4"]
    known = [device.link_bandwidth for device in attribution.trace.devices if device.link_bandwidth]
    return Link(f"{min(known) / 1e9:.0f} GB/s", min(known)) if known else None


def _per_step(model: Model) -> F64:
    work = model.work
    mine = work.step >= 0
    shape = len(PHASES), len(CLASSES)
    cell = work.phase[mine].astype(np.int64) * shape[1] + work.kernel_class[mine]
    total = np.bincount(cell, work.duration[mine].astype(np.float64), shape[0] * shape[1]).reshape(shape)
    steps = len(distinct(work.step[mine])) * len(distinct(work.device[mine]))
    per_step: F64 = total / max(steps, 1)
    return per_step
