"""What a configuration holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from .secrets import Scrubber

GraphMode = Literal["on", "off", "both"]


class Dummy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A generated model without weights: a shape of ``models.SHAPES``, and whether it has a DFlash drafter.

    ``layers`` cuts the target to so many; all of the shape's without it.
    """

    target: str
    drafter: bool = False
    layers: int | None = None


class LoadSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requests. ``prompts`` is a JSONL file of ``{"text": ...}`` or ``{"input_ids": [...]}``; random without it.

    Lengths in tokens; ``text`` sends random prompts as words, not as token ids.
    """

    prompt_len: int = 128
    output_len: int = 1024
    prompts: str | None = None
    text: bool = False
    seed: int = 1


class Windows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long each part of a run may take: seconds, and decode steps to record.

    Measuring takes ``measure_s`` at least, and goes on through a whole output of every request for ``measure_most_s``.
    """

    steps: int = 8
    warm_up_s: float = 20.0
    measure_s: float = 3.0
    measure_most_s: float = 60.0
    record_s: float = 60.0
    start_s: float = 480.0
    hang_s: float = 60.0
    stop_s: float = 20.0
    report_s: float = 150.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration. ``server`` holds SGLang's own arguments by field name, ``env`` variables for the server."""

    name: str
    description: str = ""
    graphs: GraphMode = "on"
    dummy: Dummy | None = None
    server: dict[str, Any] = {}
    env: dict[str, str] = {}
    load: LoadSettings = LoadSettings()
    windows: Windows = Windows()

    @property
    def gpus(self) -> int:
        """How many GPUs the server takes."""
        if self.server.get("device") == "cpu":
            return 0
        sizes = {key: int(self.server.get(key, 1)) for key in ("tp_size", "pp_size", "dp_size")}
        # Data-parallel attention shares the GPUs of the tensor-parallel group; other replicas have their own.
        replicas = 1 if self.server.get("enable_dp_attention") else sizes["dp_size"]
        return sizes["tp_size"] * sizes["pp_size"] * replicas

    @property
    def gpu_ids(self) -> range:
        """Which of the GPUs that the server sees it uses."""
        first, step = int(self.server.get("base_gpu_id", 0)), int(self.server.get("gpu_id_step", 1))
        return range(first, first + self.gpus * step, step)

    @property
    def port(self) -> int:
        """The server's HTTP port."""
        return int(self.server.get("port", 30000))

    def record(self) -> dict[str, Any]:
        """The configuration as it goes into the sweep: without secrets, and without where the prompts lie."""
        plain: dict[str, Any] = Scrubber({**os.environ, **self.env}).over(msgspec.to_builtins(self))
        if self.load.prompts:
            plain["load"]["prompts"] = Path(self.load.prompts).name
        return plain
