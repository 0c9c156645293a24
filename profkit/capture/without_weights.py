"""``--without-weights``: a configuration's parallel sizes and decoding, with a generated model for its real one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from profkit.traces import UsageError

from .models import target_config
from .settings import Dummy, Settings

OPTION = "--without-weights"
OF_THE_MODEL = frozenset(
    {
        "model_path", "tokenizer_path", "tokenizer_mode", "revision", "trust_remote_code", "quantization",
        "load_format", "speculative_draft_model_path", "speculative_draft_model_revision",
    }
)  # fmt: skip
"""Server arguments that speak of the real model, which is not there."""

ACCEPT_LENGTH = "3.5"


def dummy_table(given: str) -> dict[str, Any]:
    """``SHAPE[:LAYERS]`` as the table ``[dummy]``."""
    shape, separator, layers = given.partition(":")
    if separator and not re.fullmatch(r"\d{1,9}", layers):
        raise UsageError(f"{OPTION} {given}: give it as SHAPE or SHAPE:LAYERS, such as qwen3-235b-a22b:47")
    return {"target": shape, **({"layers": int(layers)} if separator else {})}


def without_model(tree: Mapping[str, Any], dummy: Mapping[str, Any]) -> dict[str, Any]:
    """``tree`` with the model ``dummy`` in place of its own; a DFlash drafter becomes one without weights too.

    ``UsageError`` for another kind of speculation, whose drafters profkit cannot make.
    """
    server = {name: value for name, value in tree.get("server", {}).items() if name not in OF_THE_MODEL}
    algorithm = server.get("speculative_algorithm")
    if algorithm not in (None, "DFLASH"):
        raise UsageError(f"{OPTION}: no drafter for {algorithm} can be made; choose a configuration with DFLASH")
    own = {**tree, "server": server, "dummy": {**dummy, "drafter": algorithm is not None}}
    own.pop("description", None)
    if algorithm:
        own["env"] = {"SGLANG_SIMULATE_ACC_LEN": ACCEPT_LENGTH, **tree.get("env", {})}
    return own


def check_model_is_made(server: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` where an override names a model all the same."""
    for name in ("model_path", "speculative_draft_model_path"):
        if name in server:
            raise UsageError(f"server.{name}: {OPTION} makes a model of its own; give one of the two")


def description_of(settings: Settings, dummy: Dummy) -> str:
    """The configuration in words, since its own speak of the real model."""
    layers = target_config(dummy.target, dummy.layers)["num_hidden_layers"]
    accepted = settings.env.get("SGLANG_SIMULATE_ACC_LEN")
    decoding = f"DFlash with simulated accept length {accepted}" if dummy.drafter else "plain decode"
    sizes = {"tp": "tp_size", "pp": "pp_size", "ep": "ep_size"}
    split = [f"{name} {settings.server[key]}" for name, key in sizes.items() if settings.server.get(key, 1) != 1]
    link = ["over PCIe"] if settings.gpus > 1 and settings.env.get("NCCL_P2P_DISABLE") == "1" else []
    model = f"{dummy.target} shapes without weights, {layers} layers"
    return ", ".join([model, decoding, *split, *link, f"{settings.gpus} GPU{'s' * (settings.gpus != 1)}"])
