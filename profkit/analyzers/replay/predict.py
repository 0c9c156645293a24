"""What-if CUDA graphs: the step that an eager recording would take with its forwards launched as graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from profkit.traces import F64

from ..attribution import Attribution
from ..graphs import graph_nodes_missing
from ..matching import MatchedCollectives
from ..ranks import lost_steps
from .build import build_model
from .costs import HIGH, LOW, NOTHING, USUAL, GraphCosts
from .forwards import Forwards, forwards_of
from .model import Model, first_steps
from .pace import host_pace, host_times, launch_call_ns, pace_factors, unrecorded_step_ns
from .simulate import ContradictionError, simulate
from .steps import bootstrap, periods, step_ns
from .transform import Launching, graph_launched, scaled_hosts, scaled_work, without_delays

MOST_WITHOUT_LAUNCH = 0.01
MOST_STEPS = 16
FAST, TYPICAL, SLOW = 0.1, 0.5, 0.9

ASSUMED = (
    "the forwards of drafter and target, the drafter's sampling included, are one graph launch each; their kernels "
    "take as long as in the eager recording (within 3 %)",
    "copies into static buffers, padding to a captured batch size, and kernels that are other ones in a graph are not "
    "foreseen; nor is the longer context that a faster run would have reached",
    "host work outside the forwards takes what it typically took, over all ranks and steps: which rank's host is slow "
    "is taken for chance, and the bounds reach from the pace of the fastest tenth of steps to that of the slowest",
    "a graph's launch call is recorded with its nodes, as the eager calls were: without a recorder it is shorter",
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Times per step in ns: median from each step's first op to the next one's, of the slowest rank.

    ``step_ns`` is predicted, between ``low_ns`` and ``high_ns``. ``recorded_ns`` is the recording's; ``as_recorded_ns``
    the replay's of the recording as it is, and ``explained_ns`` that without the delays that no dependency explains.
    ``host_pace`` is how long the host takes relative to the recording where its throughput is known without a recorder.
    ``unknown`` says why there is no prediction; the other figures are then ``None`` as far as they are not known.
    """

    step_ns: int | None = None
    low_ns: int | None = None
    high_ns: int | None = None
    recorded_ns: int | None = None
    as_recorded_ns: int | None = None
    explained_ns: int | None = None
    host_pace: float | None = None
    steps: int = 0
    assumptions: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def self_check_error(self) -> float | None:
        """How far the replay of the recording as it is lies off the recorded step, relative to it."""
        if self.as_recorded_ns is None or not self.recorded_ns:
            return None
        return self.as_recorded_ns / self.recorded_ns - 1


def predict_graphs(attribution: Attribution, matched: MatchedCollectives) -> Prediction:
    """The step of an eager recording, re-played with graphs."""
    reason = why_not_replayed(attribution, matched)
    if reason is not None:
        return Prediction(unknown=reason)
    model = first_steps(build_model(attribution, matched), MOST_STEPS)
    forwards = forwards_of(attribution, model)
    if not periods(model.work, model.work.origin).size:
        return Prediction(unknown="the recording has no two decode steps in a row on every device")
    if not len(forwards):
        return Prediction(unknown="no forward of a decode step is launched kernel by kernel")
    try:
        return _predicted(model, forwards, unrecorded_step_ns(attribution))
    except ContradictionError as error:
        return Prediction(unknown=str(error))


def why_not_replayed(attribution: Attribution, matched: MatchedCollectives) -> str | None:
    """Why the recording does not carry a replay, or ``None`` if it does."""
    if missing := graph_nodes_missing(attribution.trace, attribution.launch):
        return missing
    if not attribution.in_decode.any():
        return "the recording has no decode step"
    without = _without_launch(attribution)
    if without > MOST_WITHOUT_LAUNCH:
        return f"{without:.0%} of the ops from the first to the last decode step have no launch record"
    if lost := lost_steps(attribution):
        return f"device {min(lost)} lost {len(lost[min(lost)])} decode steps"
    collectives = sum(len(instances.row) for instances in matched.instances.values())
    if collectives and not matched.known:
        wrong = matched.impossible or "; ".join(matched.mismatches) or "none has a partner in the recording"
        return f"the collectives of ranks cannot be matched: {wrong}"
    return None


def _without_launch(attribution: Attribution) -> float:
    """The share of ops without a launch record between the first and the last decode step of each device."""
    ops = attribution.trace.ops
    inside = np.zeros(len(ops), np.bool_)
    for device, timeline in attribution.devices.items():
        if timeline.window_start is not None and timeline.window_end is not None:
            within = (ops.start >= timeline.window_start) & (ops.end <= timeline.window_end)
            inside |= within & (ops.device == device)
    return float(np.mean(attribution.launch[inside] < 0))


def _predicted(model: Model, forwards: Forwards, unrecorded: float | None) -> Prediction:
    recorded = periods(model.work, model.work.origin)
    usual = host_pace(model, unrecorded)
    times = host_times(_launched(model, forwards, NOTHING).calls)
    usually = _played(model, forwards, USUAL, usual * pace_factors(times, TYPICAL))
    middle = step_ns(usually)
    low = step_ns(_played(model, forwards, LOW, usual * pace_factors(times, FAST)))
    high = step_ns(_played(model, forwards, HIGH, pace_factors(times, SLOW)))
    explained = step_ns(periods(model.work, simulate(without_delays(model)).start))
    margin = bootstrap(usually) + round(abs(explained / step_ns(recorded) - 1) * middle)
    return Prediction(
        step_ns=middle,
        low_ns=min(low, middle) - margin,
        high_ns=max(high, middle) + margin,
        recorded_ns=step_ns(recorded),
        as_recorded_ns=step_ns(periods(model.work, simulate(model).start)),
        explained_ns=explained,
        host_pace=usual,
        steps=recorded.shape[1] + 1,
        assumptions=(*ASSUMED, _said(usual), *model.assumptions),
    )


def _said(pace: float) -> str:
    if pace == 1:
        return "the host is as fast as in the recording: no throughput without a recorder says how fast it is otherwise"
    return (
        f"the host takes {pace:.2f} times as long as in the recording: at that pace the eager step is as long as the "
        "throughput without a recorder says; the upper bound is at the recorded pace"
    )


def _played(model: Model, forwards: Forwards, costs: GraphCosts, host: F64) -> F64:
    return periods(model.work, simulate(with_graphs(model, forwards, costs, host)).start)


def with_graphs(model: Model, forwards: Forwards, costs: GraphCosts, host: F64) -> Model:
    """``forwards`` launched as graphs at ``costs``, where the host of thread t takes ``host[t]`` times as long."""
    paced = scaled_hosts(model, host)
    entry = np.round(forwards.entry * host[model.calls.thread[forwards.first]]).astype(np.int64)
    return _launched(paced, replace(forwards, entry=entry), costs)


def _launched(model: Model, forwards: Forwards, costs: GraphCosts) -> Model:
    launch = launch_call_ns(model)
    launching = Launching(
        call=np.round((costs.call + costs.call_per_node * forwards.nodes) * launch).astype(np.int64),
        saved=np.maximum(forwards.entry - round(costs.lead_in * launch), 0),
        first_op=round(costs.first_op * launch),
        node_gap=round(costs.node_gap),
    )
    launched = graph_launched(model, forwards, launching)
    return scaled_work(launched, np.ones(len(model.work), np.bool_), costs.kernels)
