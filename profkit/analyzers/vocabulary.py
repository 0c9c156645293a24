"""The words of the attribution: phases, classes and parts. Codes are positions in these tuples."""

from __future__ import annotations

PHASES = ("prefill", "draft", "verify", "accept", "kv_append", "decode", "step_other", "outside")

CLASSES = (
    "gemm",
    "attention",
    "moe",
    "norm",
    "activation",
    "rope",
    "kv_cache",
    "sampling",
    "collective",
    "copy",
    "elementwise",
    "other",
)

PARTS = (
    "compute",
    "collective",
    "copy",
    "gap_sync",
    "gap_api",
    "gap_host",
    "gap_launch",
    "gap_graph_launch",
    "gap_in_graph",
    "gap_queue",
    "gap_unknown",
)

HOST_PARTS = ("gap_sync", "gap_api", "gap_host", "gap_launch", "gap_graph_launch")
"""Parts in which the GPU waits for its own host."""

PHASE = {name: code for code, name in enumerate(PHASES)}
CLASS = {name: code for code, name in enumerate(CLASSES)}
PART = {name: code for code, name in enumerate(PARTS)}
