"""A recording's forwards as graphs: at the costs that graphs usually have, at the lowest and at the highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profkit.traces import F64

from ..arrays import distinct
from ..owners import pair_keys
from .costs import HIGH, LOW, NOTHING, USUAL, GraphCosts
from .forwards import Forwards
from .model import Model, Waits
from .pace import HostPace, Paces, host_pace, host_times, launch_call_ns, paces_of
from .simulate import Played, Player, simulate
from .steps import bootstrap, periods, step_ns
from .streams import recorded_order
from .transform import Launching, graph_launched, scaled_hosts, scaled_work, without_delays

ONLY_WORK = replace(NOTHING, kernels=LOW.kernels)


@dataclass(frozen=True, slots=True, eq=False)
class Graphing:
    """How the ``forwards`` of a recording become graphs: at which pace of the host, and in which order at the latest.

    ``explained_ns`` is the recorded step as the dependencies alone explain it, ``recorded_ns`` as it was.
    """

    forwards: Forwards
    pace: HostPace
    paces: Paces
    played: Played
    recorded_ns: int
    explained_ns: int

    @classmethod
    def of(cls, model: Model, forwards: Forwards, unrecorded: float | None) -> Graphing:
        """The graphs of a recording; ``unrecorded`` is its step without a recorder, in ns, where known."""
        eager = Player()
        recorded = step_ns(periods(model.work, model.work.origin))
        played = simulate(model, eager)
        explained = step_ns(periods(model.work, simulate(without_delays(model), eager).start))
        pace = host_pace(model, unrecorded, eager)
        paces = paces_of(host_times(launched(model, forwards, NOTHING).calls))
        return cls(forwards, pace, paces, played, recorded, explained)

    def low(self, model: Model) -> Model:
        """Cheap graphs, launched at the pace of the fastest tenth of steps."""
        return with_graphs(model, self.forwards, LOW, self.pace.factor * self.paces.fast)

    def usual(self, model: Model) -> Model:
        """Usual graphs at the usual pace."""
        return with_graphs(model, self.forwards, USUAL, self.pace.factor * self.paces.usual)

    def high(self, model: Model) -> Model:
        """Dear graphs at the recorded pace of the slowest tenth of steps, their streams in the recorded order."""
        return with_graphs(_ordered(model, self.forwards, self.played), self.forwards, HIGH, self.paces.slow)

    def work_alone(self, model: Model) -> Model:
        """The GPU's work, for which no host and no delay makes it wait."""
        return with_graphs(without_delays(model), self.forwards, ONLY_WORK, np.zeros_like(self.paces.fast))

    def margin(self, usually: F64) -> int:
        """By how much the bounds are wider, in ns: chance in the steps ``usually``, and what dependencies miss."""
        return bootstrap(usually) + round(abs(self.explained_ns / self.recorded_ns - 1) * step_ns(usually))


def with_graphs(model: Model, forwards: Forwards, costs: GraphCosts, host: F64 | Sequence[float]) -> Model:
    """``forwards`` launched as graphs at ``costs``, where the host of thread t takes ``host[t]`` times as long."""
    host = np.asarray(host, np.float64)
    paced = scaled_hosts(model, host)
    entry = np.round(forwards.entry * host[model.calls.thread[forwards.first]]).astype(np.int64)
    return launched(paced, replace(forwards, entry=entry), costs)


def launched(model: Model, forwards: Forwards, costs: GraphCosts) -> Model:
    """``forwards`` launched as graphs at ``costs`` by the host as it is."""
    graphs = graph_launched(model, forwards, _launching(model, forwards, costs))
    return scaled_work(graphs, np.ones(len(model.work), np.bool_), costs.kernels)


def most_costs(model: Model, forwards: Forwards) -> int:
    """What graphs can add to a step at most, in ns: their launch calls, first ops and gaps on one thread."""
    launching = _launching(model, forwards, HIGH)
    each = launching.call + launching.first_op + launching.node_gap * forwards.nodes
    (step,) = pair_keys((model.calls.thread[forwards.first], model.calls.step[forwards.first]))
    return int(np.bincount(np.searchsorted(distinct(step), step), each).max())


def _ordered(model: Model, forwards: Forwards, recorded: Played) -> Model:
    """No op of a forward starts before the ops of its other streams that had ended when it started."""
    op, on = recorded_order(forwards.number, model.work.lane, recorded.start, recorded.end)
    waits = model.waits
    seen = Waits(op, on, recorded.start[op] - recorded.end[on], np.zeros(len(op), np.bool_))
    both = (np.concatenate([getattr(waits, name), getattr(seen, name)]) for name in Waits.__slots__)
    return replace(model, waits=Waits(*both))


def _launching(model: Model, forwards: Forwards, costs: GraphCosts) -> Launching:
    launch = launch_call_ns(model)
    return Launching(
        call=np.round((costs.call + costs.call_per_node * forwards.nodes) * launch).astype(np.int64),
        saved=np.maximum(forwards.entry - round(costs.lead_in * launch), 0),
        first_op=round(costs.first_op * launch),
        node_gap=round(costs.node_gap),
    )
