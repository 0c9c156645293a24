"""What-if CUDA graphs: the step that an eager recording would take with its forwards launched as graphs."""

from __future__ import annotations

import numpy as np
from msgspec import structs

from profkit.traces import F64

from ..arrays import distinct
from ..attribution import Attribution
from ..graph_result import GraphPrediction
from ..graphs import graph_nodes_missing
from ..matching import MatchedCollectives
from ..ranks import lost_steps
from ..vocabulary import PHASES
from ..words import counted, duration
from .build import build_model
from .forwards import Forwards, forwards_of, synchronised, unordered_streams
from .graphing import Graphing, most_costs
from .model import Model
from .pace import Paces, unrecorded_step_ns
from .simulate import ContradictionError, Player, simulate
from .steps import periods, step_ns

MOST_WITHOUT_LAUNCH = 0.01
MOST_STEPS = 16
LEAST_PERIODS = 4
WIDEST = 3
"""A high bound of more than this many times the low one says nothing."""

ASSUMED = (
    "the forwards of drafter and target, the drafter's sampling included, are one graph launch each, and the host does "
    "nothing between their launches; their kernels take as long as in the eager recording (within 3 %)",
    "copies into static buffers, padding to a captured batch size, and kernels that are other ones in a graph are not "
    "foreseen; nor is the longer context that a faster run would have reached",
    "a graph's launch call is recorded with its nodes, as the eager calls were: without a recorder it is shorter",
)
BY_CHANCE = (
    "host work outside the forwards takes what it typically took, over all ranks and steps: which rank's host is slow "
    "is taken for chance, and the bounds reach from the pace of the fastest tenth of steps to that of the slowest"
)
SLOWER_THROUGHOUT = (
    "host work outside the forwards takes as long as recorded on each rank: one rank's host is slower throughout; for "
    "the lower bound it is up to twice as fast, as far as the other ranks are"
)
CUT = "{}; it is cut there, and its pieces with layers and at least 8 ops are graphs"


def predict_graphs(attribution: Attribution, matched: MatchedCollectives) -> GraphPrediction:
    """The step of an eager recording, re-played with graphs."""
    reason = why_not_replayed(attribution, matched)
    if reason is not None:
        return GraphPrediction(unknown=reason)
    model = build_model(attribution, matched, MOST_STEPS)
    forwards = forwards_of(attribution, model)
    if (reason := _why_not_predicted(attribution, model, forwards)) is not None:
        return GraphPrediction(unknown=reason)
    try:
        found = predict_model(model, forwards, unrecorded_step_ns(attribution))
    except ContradictionError as error:
        return GraphPrediction(unknown=str(error))
    cut = tuple(CUT.format(said) for said in synchronised(attribution, model.calls, forwards))
    return believed(structs.replace(found, assumptions=found.assumptions + cut), most_costs(model, forwards))


def _why_not_predicted(attribution: Attribution, model: Model, forwards: Forwards) -> str | None:
    if not len(forwards):
        cut = "; ".join(synchronised(attribution, model.calls, forwards))
        return cut or "no forward of a decode step is launched kernel by kernel"
    whole = periods(model.work, model.work.origin).shape[1]
    if whole < LEAST_PERIODS:
        return (
            f"{counted(whole, 'decode step')} of the recording can be followed to the next one on every device, and a "
            f"prediction needs {LEAST_PERIODS}"
        )
    return unordered_streams(model, forwards)


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


def predict_model(model: Model, forwards: Forwards, unrecorded: float | None) -> GraphPrediction:
    """The figures of a prediction, believable or not; ``unrecorded`` is the step without a recorder, in ns."""
    graphing, player = Graphing.of(model, forwards, unrecorded), Player()
    recorded = periods(model.work, model.work.origin)
    usually = _played(graphing.usual(model), player)
    middle = step_ns(usually)
    low = step_ns(_played(graphing.low(model), player))
    floor = step_ns(_played(graphing.work_alone(model), player))
    high = step_ns(_played(graphing.high(model), player))
    margin = graphing.margin(usually)
    return GraphPrediction(
        step_ns=middle,
        low_ns=min(max(min(low, middle) - margin, floor), middle),
        high_ns=max(high, middle) + margin,
        recorded_ns=step_ns(recorded),
        as_recorded_ns=step_ns(periods(model.work, graphing.played.start)),
        explained_ns=graphing.explained_ns,
        host_pace=graphing.pace.factor,
        steps=recorded.shape[1] + 1,
        phases=tuple(PHASES[phase] for phase in distinct(forwards.phase)),
        assumptions=(*ASSUMED, _said_of(graphing.paces), graphing.pace.said, *model.assumptions),
    )


def _said_of(paces: Paces) -> str:
    return SLOWER_THROUGHOUT if paces.own else BY_CHANCE


def believed(found: GraphPrediction, costs: int) -> GraphPrediction:
    """The prediction, or why its figures cannot be believed; graphs add at most ``costs`` ns to a step."""
    step, low, high, recorded = found.step_ns, found.low_ns, found.high_ns, found.recorded_ns
    if step is None or low is None or high is None or recorded is None:
        return found
    if step > recorded + costs:
        reason = (
            f"re-played with CUDA graphs the step takes {duration(step)}, {duration(step - recorded)} longer than "
            f"recorded, and launching graphs costs at most {duration(costs)}: its hosts' pace varies too much"
        )
    elif high > WIDEST * low:
        reason = f"the bounds of the step with CUDA graphs, {duration(low)} and {duration(high)}, lie too far apart"
    else:
        return found
    return structs.replace(found, step_ns=None, low_ns=None, high_ns=None, unknown=reason)


def _played(model: Model, player: Player) -> F64:
    return periods(model.work, simulate(model, player).start)
