"""One colour, one title and one sentence for each part, phase and class, the same wherever it shows.

Colours were chosen so that any two of a kind stay apart under protanopia and deuteranopia too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """How a word of the attribution is shown."""

    colour: str
    title: str
    meaning: str

    @property
    def pale(self) -> bool:
        """Whether black is easier to read on the colour than white."""
        return self.ink != "#ffffff"

    @property
    def ink(self) -> str:
        """Black or white, whichever is easier to read on the colour."""
        red, green, blue = (int(self.colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        return "#14181f" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.3 else "#ffffff"


PARTS = {
    "compute": Entry("#2A5DB8", "compute", "A kernel that is no collective runs."),
    "collective": Entry(
        "#E69F00", "collective", "No such kernel runs, and a collective does: the exposed part of communication."
    ),
    "copy": Entry("#12A192", "copy", "Neither runs, and a memory copy or set does."),
    "gap_sync": Entry(
        "#6A0F4E", "gap: blocking call", "The GPU is idle while its host thread blocks in a synchronisation call."
    ),
    "gap_api": Entry("#C9275F", "gap: other CUDA call", "The GPU is idle while its host is in another CUDA call."),
    "gap_host": Entry(
        "#E2463A", "gap: host code", "The GPU is idle while its host is in no CUDA call: Python, the scheduler."
    ),
    "gap_launch": Entry(
        "#F6B394", "gap: launch", "The GPU is idle from the start of the launch call until the kernel starts."
    ),
    "gap_graph_launch": Entry(
        "#C894F2", "gap: graph launch", "As above, for a graph launch; or the wait for a graph's first kernel."
    ),
    "gap_in_graph": Entry("#4C7A9F", "gap: inside a graph", "The GPU is idle between two kernels of one graph launch."),
    "gap_queue": Entry(
        "#BCCBE6", "gap: queue", "The GPU is idle though the next op was launched in time: stream order, an event wait."
    ),
    "gap_unknown": Entry("#50402F", "gap: no launch record", "The op that ends the gap has no launch record."),
}

SKEW = Entry(
    "#F7D774", "collective: waiting (skew)", "Of the collective part: this rank waits for the last one to arrive."
)
TRANSFER = Entry("#E69F00", "collective: transfer", "Of the collective part: the data moves.")

PHASES = {
    "prefill": Entry("#BFA25A", "prefill", "Ops launched in a prefill step."),
    "draft": Entry("#4DB090", "draft", "Block preparation, the drafter's forward and its greedy head."),
    "verify": Entry("#2A4FC0", "verify", "The target model's forward over the drafted block."),
    "accept": Entry("#E3CB1E", "accept", "Deciding which drafted tokens are kept."),
    "kv_append": Entry("#8C2466", "kv_append", "Writing the target's hidden states into the draft KV cache."),
    "decode": Entry("#3AA0F0", "decode", "The target model's forward where nothing is drafted."),
    "step_other": Entry("#B5531F", "step_other", "Directly in a decode step, in none of its named ranges."),
    "outside": Entry("#B9BCD6", "outside", "Launched in no step."),
}

CLASSES = {
    "gemm": Entry("#1F4A94", "gemm", "Dense matrix products."),
    "attention": Entry("#B574E0", "attention", "Attention kernels."),
    "moe": Entry("#0E5A33", "moe", "Routing and the experts' grouped products."),
    "norm": Entry("#4FD0A5", "norm", "Normalisation."),
    "activation": Entry("#B9D95F", "activation", "Activation functions."),
    "rope": Entry("#AFC6F5", "rope", "Rotary position embedding."),
    "kv_cache": Entry("#DE3B7D", "kv_cache", "Reading and writing the KV cache and its page tables."),
    "sampling": Entry("#C9420F", "sampling", "Softmax, argmax, sampling, acceptance."),
    "collective": Entry("#E69F00", "collective", "Communication between GPUs."),
    "copy": Entry("#12A192", "copy", "Memory copies, sets and copy kernels."),
    "elementwise": Entry("#B08858", "elementwise", "Pointwise, indexing and reduction kernels."),
    "other": Entry("#5A4D55", "other", "Matched no rule."),
}

TERMS = {
    "step": "One pass of the engine over its batch. Of a speculative engine it is a cycle: draft, verify, accept.",
    "step period": "From the start of a step's first op to the next step's: the median over steps, the slowest rank's.",
    "window": "On one GPU, from the first op of a decode step to the end of the last one. "
    "Figures per step are the window's total over its number of steps.",
    "GPU time": "The sum of the durations of ops. It exceeds wall time where ops overlap, and misses all gaps.",
    "skew": "The part of a collective in which a rank waits for the last one to arrive. "
    "It is charged to what that last rank was doing meanwhile.",
    "transfer": "The rest of a collective's duration: what the link and the algorithm need.",
    "bus bandwidth": "Message size over transfer time, scaled as in NCCL's tests, to be compared with the link.",
    "launch lead": "End of the previous GPU work minus start of the next launch call. Positive: the host is ahead.",
    "run-ahead": "The share of graph launches (of all launches, without graphs) with a positive launch lead.",
    "accept length": "Tokens that a step yields per request, as the server counts them.",
    "break-even accept length": "Cycle time over the time of a plain decode step at the same batch size: "
    "speculation pays above it.",
    "inferred": "The recording does not name the phase; it was told from structure and may be wrong.",
    "unknown": "The recording cannot tell. A health check says why.",
}

GRAPH_ROWS = (
    ("graph launches per step", "launches_per_step", "number", "One for each graph that a step replays."),
    ("kernels per launch", "nodes_per_launch", "nodes", "How many ops one launch call starts, by phase."),
    (
        "ops outside of graphs, per step",
        "ops_outside_graphs_per_step",
        "number",
        "Each needs a launch of its own; many of them keep the host busy.",
    ),
    ("launch call, median", "launch_call_ns_median", "ns", "The host's time in the call itself."),
    (
        "until the first op, median",
        "first_op_latency_ns_median",
        "ns",
        "From the start of the call to its first op; long where the GPU is still at work.",
    ),
    (
        "launch lead, median",
        "launch_lead_ns_median",
        "ns",
        "How far the call came before the end of the previous GPU work. Negative: the GPU had to wait.",
    ),
    ("run-ahead", "run_ahead_share", "share", "Launches that came before the previous GPU work had ended."),
    (
        "captured for batch size",
        "captured_batch_size",
        "number",
        "Larger than the real batch: the rest of each graph's work is padding.",
    ),
)
"""Rows of the table of graphs: title, figure, how it is written, and what it says."""
