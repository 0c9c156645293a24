"""What stands out about a device's CUDA graphs, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator

from .graph_result import Boundary, Fallback, Synchronisation
from .result import GraphFigures
from .words import counted, duration, listed, share


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
        yield f"the recording does not hold the kernels of graphs; {outside_ops:,.0f} ops per step are outside of them"
    elif not any(known):
        yield f"no graph is launched: {outside_ops:,.0f} ops per step cost the host {duration(host)} in launch calls"
    else:
        yield (
            f"{_most(sum(known), sum(known) + outside_ns)} of the GPU time of a step runs in graphs; "
            f"{outside_ops:,.0f} ops stay outside and cost the GPU {duration(outside_ns / steps)} and the host "
            f"{duration(host)} in launch calls"
        )


def _most(part: int, whole: int) -> str:
    """A share that is not rounded to all of it."""
    return "more than 99 %" if 0.99 * whole < part < whole else share(part, whole)


def _eager_phases(graphs: GraphFigures) -> Iterator[str]:
    if graphs.eager_phases:
        graphed = [name for name, phase in graphs.phases.items() if phase.ops_in_graphs]
        yield f"{listed(list(graphs.eager_phases))} never runs in a graph, though {listed(graphed)} does"


def _fallback(row: Fallback, steps: int) -> str:
    numbers = [str(number) for number in row.steps[:6]] + (["others"] if len(row.steps) > 6 else [])
    sizes = [str(size) for size in sorted({size for size in row.batch_sizes if size is not None})]
    batch = f", at batch {listed(sizes)}" if sizes else ""
    which = f"step{'' if len(row.steps) == 1 else 's'} {listed(numbers)} from 0{batch}"
    text = f"{row.phase} runs without its graph in {len(row.steps)} of {counted(steps, 'step')} ({which})"
    if row.extra_ns is None:
        return text
    if not row.extra_ns:
        return f"{text}, and takes no longer for it"
    longer = "longer" if row.extra_ns > 0 else "less"
    return f"{text}: such a step takes {duration(abs(row.extra_ns))} {longer} than the others (medians)"


def _padding(graphs: GraphFigures, steps: int) -> Iterator[str]:
    for name, phase in graphs.phases.items():
        if phase.padded_steps and phase.padding_ns:
            sizes = f" for batch {phase.captured_batch_size}" if phase.captured_batch_size else " for a larger batch"
            yield (
                f"the graph of {name} was captured{sizes} and is padded in {phase.padded_steps} of "
                f"{counted(steps, 'step')}: that costs the GPU at most {duration(phase.padding_ns / steps)} per step"
            )


def boundary(row: Boundary | Synchronisation) -> str:
    """From which phase to which: ``draft → verify``, ``verify → next draft``; ``elsewhere`` between no two."""
    if row.before is None or row.after is None:
        return "elsewhere"
    return f"{row.before} → {'next ' if row.next_step else ''}{row.after}"
