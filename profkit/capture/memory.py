"""What a model without weights takes of each GPU: bytes of its parameters and of its KV cache, at two bytes a number.

Expert parallelism changes neither: whether a rank holds some experts whole or a slice of all, it is the same share.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .models import drafter_config, layer_limits, target_config
from .settings import Settings

NUMBER_BYTES = 2
USED_SHARE = 0.88
"""``mem_fraction_static`` of SGLang where it does not know the GPU; 0.90 on an H200."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU."""

    weights: int
    cache: int

    @property
    def total(self) -> int:
        """Weights and KV cache together."""
        return self.weights + self.cache


def layer_bytes(config: Mapping[str, Any], tp_size: int) -> int:
    """The parameters of one layer on one GPU. KV heads are repeated where there are fewer than GPUs."""
    hidden, head = config["hidden_size"], config["head_dim"]
    queries = 2 * hidden * head * config["num_attention_heads"] // tp_size
    keys_and_values = 2 * hidden * head * _kv_heads(config, tp_size)
    norms = 2 * hidden + 2 * head
    experts = config.get("num_experts")
    width = experts * config["moe_intermediate_size"] if experts else config["intermediate_size"]
    router = hidden * experts if experts else 0
    return NUMBER_BYTES * int(queries + keys_and_values + norms + router + 3 * hidden * width // tp_size)


def cache_bytes(config: Mapping[str, Any], tp_size: int) -> int:
    """The keys and values of one token in one layer on one GPU."""
    return NUMBER_BYTES * 2 * int(config["head_dim"]) * _kv_heads(config, tp_size)


def _kv_heads(config: Mapping[str, Any], tp_size: int) -> int:
    return max(1, int(config["num_key_value_heads"]) // tp_size)


def memory_of(settings: Settings, requests: int, layers: int | None = None) -> Memory | None:
    """What one GPU holds for ``requests`` at once at their full length, of the fullest pipeline stage.

    ``layers`` instead of the configuration's own. ``None`` for a model that is not generated, without GPUs, and for
    data-parallel attention, which is shared out otherwise.
    """
    dummy, server = settings.dummy, settings.server
    if dummy is None or "model_path" in server or not settings.gpus or server.get("enable_dp_attention"):
        return None
    tp_size, stages, block = server.get("tp_size", 1), server.get("pp_size", 1), 0
    config = target_config(dummy.target, layers or dummy.layers)
    hidden, depth = config["hidden_size"], -(-config["num_hidden_layers"] // stages)
    # Embeddings and head lie in the first and the last stage.
    tables = NUMBER_BYTES * config["vocab_size"] * hidden // tp_size * (2 if stages == 1 else 1)
    weights = depth * layer_bytes(config, tp_size) + tables + NUMBER_BYTES * hidden
    per_token = depth * cache_bytes(config, tp_size)
    if dummy.drafter:
        block = server["speculative_dflash_block_size"]
        drafter = drafter_config(dummy.target, block)
        drafts = drafter["num_hidden_layers"]
        joint = NUMBER_BYTES * (drafts * hidden * hidden + 2 * hidden)
        weights += drafts * layer_bytes(drafter, tp_size) + joint
        per_token += drafts * cache_bytes(drafter, tp_size)
    length = settings.load.prompt_len + settings.load.output_len + block
    return Memory(weights, per_token * length * requests)


def usable(settings: Settings, gpu_bytes: int) -> int:
    """What SGLang puts weights and KV cache into, of a GPU with ``gpu_bytes``; the rest is for graphs and working."""
    share = USED_SHARE
    with contextlib.suppress(TypeError, ValueError):
        share = float(settings.server["mem_fraction_static"]) if "mem_fraction_static" in settings.server else share
    return int(gpu_bytes * share)


def layers_that_fit(settings: Settings, requests: int, gpu_bytes: int) -> int | None:
    """The most layers with which ``requests`` at once fit; ``None`` where none do, or where nothing can be told."""
    if settings.dummy is None:
        return None
    least, most = layer_limits(settings.dummy.target, settings.dummy.drafter)
    room = usable(settings, gpu_bytes)
    needs = ((layers, memory_of(settings, requests, layers)) for layers in range(most, least - 1, -1))
    return next((layers for layers, need in needs if need and need.total <= room), None)
