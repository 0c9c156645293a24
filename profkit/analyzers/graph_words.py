"""What stands out about a device's CUDA graphs, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .graph_ranks import Disagreement
from .graph_result import Boundary, Fallback, GraphFigures, GraphPhase, Synchronisation
from .words import counted, duration, listed, share

MAX_LISTED = 6


def graph_findings(graphs: GraphFigures, steps: int) -> tuple[str, ...]:
    """What runs in graphs and what keeps the rest out, as sentences without a full stop; ``steps`` is their number."""
    if not steps or not graphs.phases:
        return ()
    return (
        *_coverage(graphs, steps),
        *_eager_phases(graphs),
        *(_fallback(row, steps) for row in graphs.fallbacks),
        *_padding(graphs, steps),
    )


def _coverage(graphs: GraphFigures, steps: int) -> Iterator[str]:
    inside = [phase.in_graphs_ns for phase in graphs.phases.values()]
    known = [ns for ns in inside if ns is not None]
    outside_ops = sum(phase.ops_outside for phase in graphs.phases.values()) / steps
    outside_ns = sum(phase.outside_ns for phase in graphs.phases.values())
    host = sum(row.host_ns for row in graphs.outside) / steps
    if len(known) < len(inside):
        yield f"the recording does not hold the kernels of graphs; {_ops(outside_ops)} per step are outside of them"
    elif not any(known):
        yield f"no graph is launched: {_ops(outside_ops)} per step cost the host {duration(host)} in launch calls"
    elif not outside_ops:
        yield "all GPU work of a step runs in graphs"
    else:
        yield (
            f"{_most(sum(known), sum(known) + outside_ns)} of the GPU time of a step runs in graphs; "
            f"{_ops(outside_ops)} per step {'stays' if outside_ops == 1 else 'stay'} outside and "
            f"{'costs' if outside_ops == 1 else 'cost'} the GPU {duration(outside_ns / steps)} and the host "
            f"{duration(host)} in launch calls"
        )


def _ops(per_step: float) -> str:
    """A number of ops that is 0 only where there are none: ``55 ops``, ``0.3 ops``, ``fewer than 0.1 ops``."""
    if 0 < per_step < 0.1:
        return "fewer than 0.1 ops"
    digits = 0 if per_step >= 10 or per_step == int(per_step) else 1
    return f"{per_step:,.{digits}f} op{'' if per_step == 1 else 's'}"


def _most(part: int, whole: int) -> str:
    """A share that is not rounded to all of it."""
    return "more than 99 %" if 0.99 * whole < part < whole else share(part, whole)


def _eager_phases(graphs: GraphFigures) -> Iterator[str]:
    if graphs.eager_phases:
        graphed = [name for name, phase in graphs.phases.items() if phase.ops_in_graphs]
        yield f"{listed(list(graphs.eager_phases))} never runs in a graph, though {listed(graphed)} does"


def _fallback(row: Fallback, steps: int) -> str:
    numbers = some([str(number) for number in row.steps])
    sizes = [str(size) for size in sorted({size for size in row.batch_sizes if size is not None})]
    batch = f", at batch {listed(sizes)}" if sizes else ""
    which = f"step{'' if len(row.steps) == 1 else 's'} {numbers} from 0{batch}"
    how = "partly outside of its graphs" if row.partial else "without its graph"
    text = f"{row.phase} runs {how} in {len(row.steps)} of {counted(steps, 'step')} ({which})"
    if row.extra_ns is None:
        return text
    if not row.extra_ns:
        return f"{text}, and takes no longer for it"
    longer = "longer" if row.extra_ns > 0 else "less"
    return f"{text}: such a step takes {duration(abs(row.extra_ns))} {longer} than the others (medians)"


def _padding(graphs: GraphFigures, steps: int) -> Iterator[str]:
    for name, phase in graphs.phases.items():
        if phase.padded_steps and phase.padding_ns:
            yield (
                f"{name} is padded in {phase.padded_steps} of {counted(steps, 'step')} ({padded_batches([phase])}): "
                f"that costs the GPU at most {duration(phase.padding_ns / steps)} per step"
            )


def padded_batches(phases: Sequence[GraphPhase]) -> str:
    """Which batch sizes ran in graphs for which larger ones: ``batch 3 in a graph for 4, batch 5 in one for 8``."""
    pairs = sorted({(row.batch_size, row.captured_batch_size) for phase in phases for row in phase.padded})
    return some([f"batch {real} in a graph for {captured}" for real, captured in pairs])


def some(items: list[str]) -> str:
    """The first of many, listed."""
    return listed(items[:MAX_LISTED] + (["others"] if len(items) > MAX_LISTED else []))


def graphs_on_ranks(found: Sequence[Disagreement], ranks: Mapping[int, int]) -> tuple[str, ...]:
    """What runs in graphs on some ranks only, as sentences without a full stop; ``ranks`` are those of the devices."""
    return tuple(
        f"{listed(list(row.phases))} {'runs' if len(row.phases) == 1 else 'run'} in graphs on "
        f"{_named(row.graphed, ranks)}, but not on {_named(row.eager, ranks)}: ranks should run alike"
        for row in found
    )


def _named(devices: Sequence[int], ranks: Mapping[int, int]) -> str:
    """``rank 0``, ``ranks 0 and 2``."""
    numbers = [str(number) for number in sorted(ranks[device] for device in devices)]
    return f"rank{'' if len(numbers) == 1 else 's'} {some(numbers)}"


def boundary(row: Boundary | Synchronisation) -> str:
    """From which phase to which: ``draft → verify``, ``verify → next draft``; ``elsewhere`` between no two."""
    if row.before is None or row.after is None:
        return "elsewhere"
    return f"{row.before} → {'next ' if row.next_step else ''}{row.after}"
