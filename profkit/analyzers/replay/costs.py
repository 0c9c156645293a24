"""What an eager recording cannot show of CUDA graphs, from recordings that replay them.

Measured on ``tp1``, ``tp1-dflash`` and ``ep2`` of ``traces/`` at concurrency 1, 32 and 128: 12 graphs of 76 to 1,016
nodes. The bounds are as far from the usual costs as those of a recording lay at most from what all the others said when
they were set (``docs/replay.md``). ``tp1`` and ``tp1-dflash``, recorded anew twice since, agree with each other better;
the bounds stay as wide, as 19 further recordings need them (``tests/analyzers/replay/test_costs.py``). In none of the
nine the GPU is idle when a graph is launched: ``first_op`` was seen twice, in an earlier recording of ``ep2``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GraphCosts:
    """Host costs are multiples of what a plain kernel's launch call takes in the recording; ``node_gap`` is in ns.

    ``call`` and ``call_per_node``: the launch call of a graph, under a recorder that keeps nodes. ``lead_in``: host
    time from the last launch before it. ``first_op``: from the start of the call to the first kernel, on an idle GPU.
    ``node_gap``: idle time between one kernel and the next. ``kernels``: GPU time relative to the eager recording's.
    """

    call: float
    call_per_node: float
    lead_in: float
    first_op: float
    node_gap: float
    kernels: float


LOW = GraphCosts(call=5.7, call_per_node=0.13, lead_in=6.8, first_op=2.0, node_gap=110, kernels=0.97)
USUAL = GraphCosts(call=7.3, call_per_node=0.167, lead_in=9.2, first_op=3.3, node_gap=510, kernels=1.0)
HIGH = GraphCosts(call=11.3, call_per_node=0.259, lead_in=13.3, first_op=5.0, node_gap=825, kernels=1.03)
"""The usual costs and their bounds; those of ``first_op`` and ``kernels`` are allowances, not measurements."""

NOTHING = GraphCosts(call=0, call_per_node=0, lead_in=0, first_op=0, node_gap=0, kernels=1.0)
"""Graphs that cost the host nothing: what is left is the host's work outside of them."""
