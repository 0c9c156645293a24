"""Speculative against plain decoding at the same batch size: does it pay?"""

from __future__ import annotations

from collections.abc import Sequence

from .comparison_result import Comparison, Unlike
from .eager_to_graphs import launched_eagerly
from .result import Provenance, TraceFigures, one_model, one_name

GIVEN = "given on the command line"
"""Where an accept length comes from that the user says."""

Beside = tuple[TraceFigures, TraceFigures, Comparison]
"""A plain recording, a speculative one, and what comes of comparing them."""


def compare(traces: Sequence[TraceFigures]) -> tuple[Comparison, ...]:
    """One comparison for each speculative trace that has a plain one of the same batch size beside it.

    Break-even accept length = cycle time over plain step time, both without a recorder as far as that is known;
    predicted speed-up = accept length over it.
    Only traces of one model, as far as both name it, and of one recorder, of as many ranks on the same kind of GPU and
    link are compared; of several plain ones, the one recorded with graphs on or off like the speculative one, and of
    the configuration that its name begins with, is taken. Pairs that are alike in graphs come first; one that is not is
    left out where another recording of the same model, configuration and batch size is.
    """
    plain = [trace for trace in traces if trace.cycle.kind == "plain"]
    found: list[Beside] = []
    for trace in traces:
        if trace.cycle.kind != "speculative":
            continue
        same = [p for p in plain if not unlike(p, trace)]
        if same:
            nearest = max(same, key=lambda p: nearness(p, trace))
            found.append((nearest, trace, _pair(nearest, trace)))
    alike = [one for one in found if one[2].same_graphs]
    kept = [one[2] for one in found if one[2].same_graphs or not any(_again(one, other) for other in alike)]
    return tuple(sorted(kept, key=lambda one: not one.same_graphs))


def _again(one: Beside, other: Beside) -> bool:
    """Whether the two pairs are of one configuration and batch size, and of one model as far as they name it."""
    (plain, ours, pair), (other_plain, theirs, other_pair) = one, other
    configs = [trace.provenance.config or trace.name for trace in (ours, theirs)]
    models = [trace.provenance.model for trace in (plain, ours, other_plain, theirs)]
    return configs[0] == configs[1] and pair.batch_size == other_pair.batch_size and one_name(*models)


def unlike(plain: TraceFigures, speculative: TraceFigures) -> tuple[Unlike, ...]:
    """In what the two differ, or may, so that nothing comes of comparing them: nothing where they are a pair."""
    gpus = [sorted(device.gpu for device in trace.devices.values()) for trace in (plain, speculative)]
    batch_sizes = plain.cycle.batch_size, speculative.cycle.batch_size
    found: dict[Unlike, bool] = {
        "model": not one_model(plain, speculative),
        "period": not (plain.cycle.period_ns_median and speculative.cycle.period_ns_median),
        "batch_size": None in batch_sizes or batch_sizes[0] != batch_sizes[1],
        "gpus": len(gpus[0]) != len(gpus[1]),
        "gpu": len(gpus[0]) == len(gpus[1]) and gpus[0] != gpus[1],
        "link": _other_link(plain, speculative),
        "recorder": plain.source != speculative.source,
    }
    return tuple(what for what, differs in found.items() if differs)


def _other_link(plain: TraceFigures, speculative: TraceFigures) -> bool:
    """Whether two captures of several ranks exchanged over different links: PCIe's limit is known, NVLink's is not."""
    links = [{device.link_bandwidth for device in trace.devices.values()} for trace in (plain, speculative)]
    captured = bool(plain.provenance.config and speculative.provenance.config)
    return captured and len(plain.devices) > 1 and links[0] != links[1]


def nearness(plain: TraceFigures, speculative: TraceFigures) -> tuple[bool, bool, bool]:
    """The greater, the more a plain run is that of the speculative one's model and configuration, with like graphs."""
    ours, theirs = plain.provenance, speculative.provenance
    same_graphs = _with_graphs(plain) == _with_graphs(speculative)
    return ours.model == theirs.model, theirs.config.startswith(ours.config), same_graphs


def _with_graphs(trace: TraceFigures) -> bool:
    """Whether its run had CUDA graphs, as the record says, else as its steps do."""
    said = trace.provenance.graphs
    return said if said is not None else not launched_eagerly(trace.graphs.values())


def _pair(plain: TraceFigures, speculative: TraceFigures) -> Comparison:
    step, cycle = step_ns(plain), step_ns(speculative)
    break_even = cycle / step
    accept_len = speculative.cycle.accept_len
    predicted = accept_len / break_even if accept_len else None
    rates = plain.provenance.tokens_per_s, speculative.provenance.tokens_per_s
    comparable = rates[0] and rates[1] and accept_len_is_the_runs(speculative)
    measured = (rates[1] or 0) / (rates[0] or 1) if comparable else None
    batch = speculative.cycle.batch_size or 0
    same_graphs = _with_graphs(plain) == _with_graphs(speculative)
    return Comparison(
        plain.name,
        speculative.name,
        batch,
        break_even,
        predicted,
        measured,
        same_graphs,
        _text(batch, break_even, predicted, measured, same_graphs),
        _measured_range(plain.provenance, speculative.provenance) if measured is not None else None,
    )


def _measured_range(plain: Provenance, speculative: Provenance) -> tuple[float, float] | None:
    """The least and the most of all quotients of the rates that were counted, once or twice a side."""
    rates = [_counted(one) for one in (plain, speculative)]
    if max(map(len, rates)) < 2:
        return None
    quotients = [ours / theirs for theirs in rates[0] for ours in rates[1]]
    return min(quotients), max(quotients)


def _counted(run: Provenance) -> list[float]:
    twice = [rate for rate in (run.tokens_per_s_before, run.tokens_per_s_after) if rate]
    return twice if len(twice) == 2 else [rate for rate in (run.tokens_per_s,) if rate]


def timed_ns(trace: TraceFigures) -> int | None:
    """The step as the engine's host timed it without a recorder, if it did."""
    return trace.inflation.measured_ns if trace.inflation else None


def step_ns(trace: TraceFigures) -> int:
    """The step without a recorder, or, where it was not timed, as it was recorded."""
    return timed_ns(trace) or trace.cycle.period_ns_median or 1


def accept_len_is_the_runs(trace: TraceFigures) -> bool:
    """Whether throughput and accept length are of one run: not where the user says another accept length."""
    return trace.cycle.accept_len_source != GIVEN


def _text(batch: int, break_even: float, predicted: float | None, measured: float | None, same_graphs: bool) -> str:
    unlike = "" if same_graphs else " (of which only one ran with CUDA graphs)"
    text = (
        f"at batch {batch} a cycle takes {break_even:.2f} plain steps{unlike}, so speculation pays above that accept "
        "length"
    )
    if predicted is not None:
        text += f"; predicted speed-up {predicted:.2f}"
    if measured is not None:
        text += f", measured without a recorder {measured:.2f}"
    return text
