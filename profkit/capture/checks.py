"""What must be right before a server starts. Each message says what to do."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profkit.traces import InputError, OutputError, UsageError
from profkit.traces.nsys_export import find_nsys, nsys_version

from .machine import visible_gpus
from .nvtx import nvtx_lack, nvtx_version
from .plan import Plan
from .prompts import read_prompts
from .settings import Settings

NEEDED_BYTES = 3 * 2**30
"""Room for the raw streams of a few windows; they go once they have been imported."""


def check_plan(plan: Plan) -> None:
    """Raise for the first thing that would make the capture fail."""
    if plan.package is None:
        advice = "install it (`pip install sglang`), or set PYTHONPATH to where it is unpacked"
        raise UsageError(f"SGLang is not installed for this Python; {advice}")
    _check_folder(plan.folder)
    for place in (plan.folder.parent, Path(tempfile.gettempdir())):
        _check_space(_existing(place))
    check_port(plan.settings.port)
    _check_gpus(plan.settings)
    _check_prompts(plan.settings)
    for one in plan.passes:
        _check_models(plan, one.server)


def _existing(place: Path) -> Path:
    """The nearest folder above that is there; also where looking is not allowed."""
    while not os.path.lexists(place):
        place = place.parent
    return place


def _check_folder(folder: Path) -> None:
    if os.path.lexists(folder) and not folder.is_dir():
        raise OutputError(folder, "is a file, not a folder", "choose another place with -o")
    if folder.is_dir() and any(folder.iterdir()):
        raise OutputError(folder, "holds something already", "choose another place with -o, or remove it")
    above = _existing(folder)
    if not above.is_dir():
        raise OutputError(above, "is a file, not a folder", "choose another place with -o")
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(above, "no permission to write there", "choose another place with -o, or change that")


def _check_space(place: Path) -> None:
    usage = shutil.disk_usage(place)
    if usage.total == 0:
        raise OutputError(place, "is a place of the system that keeps no files", "choose another with -o")
    free = usage.free
    if free < NEEDED_BYTES:
        needed, has = NEEDED_BYTES / 2**30, free / 2**30
        advice = "free some space, or choose another place with -o and $TMPDIR"
        raise OutputError(place, f"{has:.1f} GiB free, and a capture can need {needed:.0f} GiB for a while", advice)


def check_port(port: int) -> None:
    """Raise ``UsageError`` if another program has ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            advice = "end the program that listens there, or choose another with --set server.port=30001"
            raise UsageError(f"port {port} cannot be used ({error.strerror}); {advice}") from error


def _check_gpus(settings: Settings) -> None:
    if not settings.gpus:
        return
    present, needed = len(visible_gpus({**os.environ, **settings.env})), settings.gpu_ids[-1] + 1
    if present < needed:
        what = f"takes {settings.gpus} GPU(s)" if needed == settings.gpus else f"takes GPU {needed - 1}"
        advice = "choose a smaller configuration (see --list), or check nvidia-smi and CUDA_VISIBLE_DEVICES"
        raise UsageError(f"the configuration {what} and {present} can be seen; {advice}")


def _check_prompts(settings: Settings) -> None:
    if not settings.load.prompts:
        return
    file = Path(settings.load.prompts)
    if settings.server.get("skip_tokenizer_init") and any("text" in prompt for prompt in read_prompts(file)):
        fault = "holds text, which needs a tokenizer, and server.skip_tokenizer_init is set"
        raise InputError(file, fault, "give input_ids, or a model with a tokenizer")
    read_prompts(file)


def nvtx_faults(recorders: Sequence[str]) -> list[str]:
    """What NVTX lacks for some of ``recorders``, if anything, with what to do."""
    nsys = find_nsys() if "nsys" in recorders else None
    lack = nvtx_lack(nvtx_version(), nsys_version(nsys) if nsys else ())
    lacking = [name for name in recorders if lack and name in lack.recorders]
    return [f"--backend {','.join(lacking)}: {lack.found}; {lack.remedy}"] if lack and lacking else []


def _check_models(plan: Plan, server: Mapping[str, Any]) -> None:
    for key in ("model_path", "speculative_draft_model_path"):
        path = server.get(key)
        if isinstance(path, str) and not path.startswith(str(plan.folder)):
            _check_model(key, path)


def _check_model(key: str, path: str) -> None:
    if (Path(path) / "config.json").is_file() or _in_hub_cache(path):
        return
    fault = "has no config.json" if Path(path).is_dir() else "is no folder, and not in the Hugging Face cache"
    raise UsageError(f"server.{key}: {path} {fault}; download it first and give its folder: --set server.{key}=DIR")


def _in_hub_cache(name: str) -> bool:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    return any((cache / f"models--{name.replace('/', '--')}" / "snapshots").glob("*/config.json"))
