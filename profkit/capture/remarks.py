"""What a user should know of a plan that works, but may not record what was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profkit.traces import RecordingCost

from .memory import layers_that_fit, memory_of, usable
from .settings import Settings

EXTRA_STEPS = 4


def window_passes(settings: Settings) -> int:
    """How many forward passes a window records, so that whole decode steps can be chosen from them."""
    return 2 * settings.windows.steps + EXTRA_STEPS


def left_behind_remark(name: str, found: RecordingCost) -> str:
    """What a recorder that has ended goes on costing in the window ``name``."""
    return (
        f"{name}: steps are {found.ratio:.2f} ± {found.error:.2f} times as long after the recording as before it, at "
        "the same contexts: the recorder leaves something behind in the server. Only what was measured before it "
        "counts; later concurrencies of this server include it: record them in a run of their own"
    )


def block_size_of(server: Mapping[str, Any]) -> int | None:
    """The drafter's block size among resolved server arguments."""
    size = server.get("speculative_dflash_block_size")
    return int(size) if size is not None else None


def graph_sizes_of(server: Mapping[str, Any]) -> list[int]:
    """The batch sizes of CUDA graphs among resolved server arguments; empty where they are SGLang's choice."""
    return list(server.get("cuda_graph_bs_decode") or server.get("cuda_graph_bs") or [])


def remarks_on(settings: Settings, server: Mapping[str, Any], most: int, graphs: bool) -> Iterator[str]:
    """Sentences on one pass at up to ``most`` concurrent requests."""
    if settings.dummy and "model_path" in settings.server:
        said = "server.model_path is set, so that dummy.target is not used"
        yield f"{said}; `--without-weights {settings.dummy.target}` puts that model in its place"
    tokens = window_passes(settings) * (block_size_of(server) or 1)
    if settings.load.output_len < tokens:
        fault = f"requests of {settings.load.output_len} tokens can end within a window, which takes up to {tokens}"
        yield f"{fault}: it may hold prefills and smaller batches; raise load.output_len"
    allowed = server.get("max_running_requests")
    if allowed is not None and allowed < most:
        yield f"max_running_requests is {allowed}: of {most} requests the others wait in the server"
    named = server.get("cuda_graph_max_bs_decode") or server.get("cuda_graph_max_bs")
    largest = max(graph_sizes_of(server), default=named)
    if graphs and largest is not None and most > largest:
        yield f"CUDA graphs end at batch size {largest}: at concurrency {most} the server runs without them"


def memory_in_words(settings: Settings, most: int, gpu_bytes: int | None) -> str | None:
    """What a model without weights takes of each GPU at ``most`` requests; ``None`` for one with weights."""
    need = memory_of(settings, most)
    if need is None:
        return None
    has = f", which has {_gib(gpu_bytes)}" if gpu_bytes else ""
    return f"weights {_gib(need.weights)}, KV cache of {most} requests {_gib(need.cache)}, on each GPU{has}"


def memory_remarks(settings: Settings, most: int, gpu_bytes: int | None) -> Iterator[str]:
    """A sentence where a model without weights is too large for the GPUs, with how many layers would fit."""
    need = memory_of(settings, most)
    if need is None or gpu_bytes is None or need.total <= usable(settings, gpu_bytes):
        return
    fit = layers_that_fit(settings, most, gpu_bytes)
    advice = f"{fit} layers fit: --set dummy.layers={fit}" if fit else "take more GPUs, or fewer or shorter requests"
    yield (
        f"the weights take {_gib(need.weights)} of a GPU's {_gib(gpu_bytes)}, and the KV cache of {most} requests "
        f"{_gib(need.cache)}, more than the {_gib(usable(settings, gpu_bytes))} that SGLang has for both; {advice}"
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
