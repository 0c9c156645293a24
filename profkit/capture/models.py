"""Model folders without weights: a ``config.json`` is all that SGLang needs with ``load_format = "dummy"``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from profkit.traces import OutputError, UsageError

_QWEN3: Mapping[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "qwen3-8b": {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "max_window_layers": 36,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
    },
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "decoder_sparse_step": 1,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "max_window_layers": 48,
        "mlp_only_layers": [],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
    },
    "qwen3-235b-a22b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "decoder_sparse_step": 1,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "max_window_layers": 94,
        "mlp_only_layers": [],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 1536,
        "norm_topk_prob": True,
        "num_attention_heads": 64,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 94,
        "num_key_value_heads": 4,
    },
}
"""The published shapes of the models, by the name that a configuration uses."""

DRAFT_LAYERS = {"qwen3-8b": 5, "qwen3-30b-a3b": 6, "qwen3-235b-a22b": 6}
MASK_TOKEN = 151669
MOE_ONLY = frozenset({"decoder_sparse_step", "mlp_only_layers", "norm_topk_prob"})
UNREAD = 3
"""Layers of a target that no drafter reads: the first, and the two last."""


def layer_limits(shape: str, drafter: bool) -> tuple[int, int]:
    """The fewest and most layers that a target of ``shape`` can have; a drafter reads a layer for each of its own."""
    return (DRAFT_LAYERS[shape] + UNREAD if drafter else 1), int(SHAPES[shape]["num_hidden_layers"])


def target_config(shape: str, layers: int | None = None) -> dict[str, Any]:
    """The ``config.json`` of the target model ``shape``, cut to ``layers`` where given.

    ``UsageError`` for a shape that is not known.
    """
    if shape not in SHAPES:
        raise UsageError(f"dummy.target: no shape '{shape}'; use one of {', '.join(SHAPES)}")
    config = {**_QWEN3, **SHAPES[shape]}
    return config if layers is None else {**config, "num_hidden_layers": layers, "max_window_layers": layers}


def drafter_config(shape: str, block_size: int, target_layers: int | None = None) -> dict[str, Any]:
    """The ``config.json`` of a dense DFlash drafter for the target ``shape``, cut to ``target_layers`` where given.

    It reads one hidden state of the target per draft layer, spread evenly between the second and the third-last layer.
    """
    target = target_config(shape, target_layers)
    layers, depth = DRAFT_LAYERS[shape], target["num_hidden_layers"]
    dense = {key: value for key, value in target.items() if "expert" not in key and "moe" not in key}
    return {
        **{key: value for key, value in dense.items() if key not in MOE_ONLY},
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": layers,
        "max_window_layers": layers,
        "layer_types": ["full_attention"] * layers,
        "num_target_layers": depth,
        "block_size": block_size,
        "dflash_config": {"mask_token_id": MASK_TOKEN, "target_layer_ids": _spread(1, depth - UNREAD, layers)},
    }


def _spread(first: int, last: int, count: int) -> list[int]:
    return [round(first + (last - first) * i / (count - 1)) for i in range(count)]


def write_model(folder: Path, config: Mapping[str, Any]) -> Path:
    """Write a model folder with ``config`` and return it; ``OutputError`` where that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        encoded = msgspec.json.format(msgspec.json.encode(config), indent=1)
        (folder / "config.json").write_bytes(encoded + b"\n")
    except OSError as error:
        raise OutputError(folder, f"cannot write a model ({error.strerror})", "choose a folder with -o") from error
    return folder
