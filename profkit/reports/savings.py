"""What CUDA graphs save, as the page shows it: a waterfall from the eager step to the step with graphs."""

from __future__ import annotations

from profkit.analyzers.diff.sentence import signed
from profkit.analyzers.eager_to_graphs import NOT_GRAPHS, totals
from profkit.analyzers.saving_result import GraphSaving
from profkit.analyzers.words import duration

from .diff_cells import direction
from .diff_figures import Bar

TITLES = {
    "host_code": ("host code", "The GPU waits for code on its host: Python, the scheduler."),
    "launch": ("launch calls", "The GPU waits for a launch call, or another call of CUDA, of its host."),
    "sync": ("blocking calls", "The GPU waits while its host waits for it, or for a copy."),
    "waiting": ("waiting for other ranks", "In collectives, until the last rank has arrived."),
    "transfer": ("transfer", "The rest of the exposed collectives."),
    "compute": ("kernels", "Kernels that are no collectives."),
    "copies": ("copies", "Memory copies and sets, such as into a graph's static buffers."),
    "graph_gaps": ("gaps inside graphs", "The GPU idles between two nodes of one graph."),
    "queue": ("queue", "The GPU idles though the next op was launched in time."),
    "prefill": ("prefills", "Between the decode steps."),
    "unknown": ("no launch record", "The op that ends the gap has no launch record."),
}


def saving_bars(saving: GraphSaving) -> tuple[Bar, ...]:
    """From the eager step through each part's change to the step with graphs."""
    rows = totals(saving.rows)
    at = sum(row.eager_ns for row in rows)
    bars = [Bar("without graphs", 0, at, duration(at), "whole")]
    for row in rows:
        delta = row.graphs_ns - row.eager_ns
        if delta:
            other = row.key in NOT_GRAPHS
            label = f"{TITLES[row.key][0]} *" if other else TITLES[row.key][0]
            bars.append(Bar(label, at, at + delta, signed(delta), direction(delta), pale=other))
            at += delta
    return (*bars, Bar("with graphs", 0, at, duration(at), "whole"))


def phase_cells(saving: GraphSaving) -> list[tuple[str, str, int, int]]:
    """Phase, part (a key of ``TITLES``) and nanoseconds without and with graphs, dearest change first."""
    rows = sorted(saving.rows, key=lambda row: -abs(row.graphs_ns - row.eager_ns))
    return [(row.phase, row.key, row.eager_ns, row.graphs_ns) for row in rows]
