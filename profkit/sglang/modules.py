"""Which module each moment of a graph's capture belongs to, on the monotonic clock.

The nodes of a CUDA graph are created while its forward is captured, so the module that was running when a node was
created is the node's module. ``modules-PID.jsonl.gz`` has one JSON object a line for each captured graph:

    graph         the capture's key as SGLang prints it; ``batch_size`` is the number in it (tokens for a prefill)
    role          ``target`` or ``draft``: whose model runner the modules belong to; ``""`` where it is not known
    tid           the capturing thread, as nsys numbers threads
    clocks        one instant on three clocks before the capture (see ``profkit.sglang.record.clocks``)
    names         names not seen on earlier lines; ``name`` below indexes all names of the file so far
    name, depth, start_ns, end_ns    columns, one row a module call, in the order of the ends

Warm-up forwards run outside the capture and are not noted. Where the server compiles its forward with
``enable_torch_compile`` nothing is: module hooks would change what is compiled.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .record import ProcessRecord, clocks

now_ns = time.monotonic_ns


@dataclass(slots=True)
class _Capture:
    """The graph that is being captured, and the calls that are open in it."""

    key: Any
    hooks: ExitStack
    clocks: dict[str, int] = field(default_factory=clocks)
    tid: int = field(default_factory=threading.get_native_id)
    open: list[tuple[object, str, int]] = field(default_factory=list)
    rows: list[tuple[str, int, int, int]] = field(default_factory=list)
    role: str = ""


class ModuleRecorder:
    """Notes module calls while a graph is captured. Nothing here raises into the server."""

    def __init__(self, folder: Path | None, record: ProcessRecord) -> None:
        self._path = folder / f"modules-{os.getpid()}.jsonl.gz" if folder else None
        self._record = record
        self._owners: dict[int, tuple[str, str]] = {}
        self._models: list[Any] = []
        self._names: dict[str, int] = {}
        self._capture: _Capture | None = None
        self._is_capturing: Callable[[], bool] = lambda: False

    def loaded(self, runner: Any) -> None:
        """Learn the names of the modules of a model runner's model, and which rank this process is."""
        try:
            role = "draft" if runner.is_draft_worker else "target"
            ranks = getattr(runner, "ps", runner)
            self._record.runner(role, getattr(runner, "gpu_id", None), getattr(ranks, "tp_rank", None))
            if getattr(runner.server_args, "enable_torch_compile", False):
                self._turn_off("the server compiles its forwards")
            # Kept, so that the id of a module in it stays its own.
            self._models.append(runner.model)
            root = type(runner.model).__name__
            self._owners |= {id(module): (role, name or root) for name, module in runner.model.named_modules()}
        except Exception as error:
            self._record.fault("load_model", error)

    def begin(self, key: Any) -> None:
        """A graph is about to be captured."""
        if self._path is None or self._capture is not None:
            return
        try:
            torch = importlib.import_module("torch")
            hooks = ExitStack()
            module = importlib.import_module("torch.nn.modules.module")
            hooks.callback(module.register_module_forward_pre_hook(self._enters).remove)
            hooks.callback(module.register_module_forward_hook(self._leaves, always_call=True).remove)
            self._is_capturing = torch.cuda.is_current_stream_capturing
            self._capture = _Capture(key, hooks)
        except Exception as error:
            self._record.fault("graph capture", error)

    def end(self) -> None:
        """The capture is over, well or not: write what it had."""
        capture = self._capture
        if capture is None or capture.tid != threading.get_native_id():
            return
        self._capture = None
        try:
            capture.hooks.close()
            if capture.rows:
                self._write(capture)
        except Exception as error:
            self._record.fault("graph capture", error)
            self._turn_off("a graph could not be written")

    def _turn_off(self, reason: str) -> None:
        self._path = None
        self._record.modules_off(reason)

    def enter(self, name: str) -> None:
        """Code of the graph that is no module begins."""
        self._open(name, name)

    def leave(self, name: str) -> None:
        """Code of the graph that is no module ends."""
        self._close(name)

    def _enters(self, module: Any, args: Any) -> None:
        role, name = self._owners.get(id(module), ("", type(module).__name__))
        self._open(module, name)
        if role and self._capture is not None and not self._capture.role:
            self._capture.role = role

    def _leaves(self, module: Any, args: Any, output: Any) -> None:
        self._close(module)

    def _open(self, what: object, name: str) -> None:
        capture = self._capture
        if capture is None or threading.get_native_id() != capture.tid:
            return
        try:
            if capture.open or self._is_capturing():
                capture.open.append((what, name, now_ns()))
        except Exception as error:
            self._record.fault("module call", error)

    def _close(self, what: object) -> None:
        capture = self._capture
        if capture is None or not any(opened is what for opened, _, _ in capture.open):
            return
        end = now_ns()
        while capture.open:
            opened, name, start = capture.open.pop()
            capture.rows.append((name, len(capture.open), start, end))
            if opened is what:
                return

    def _write(self, capture: _Capture) -> None:
        if self._path is None:
            return
        before = len(self._names)
        numbers = [self._names.setdefault(name, len(self._names)) for name, _, _, _ in capture.rows]
        _, depths, starts, ends = zip(*capture.rows, strict=True)
        size = getattr(capture.key, "size", capture.key)
        row = {
            "graph": str(capture.key),
            "batch_size": size if isinstance(size, int) else None,
            "role": capture.role,
            "tid": capture.tid,
            "clocks": capture.clocks,
            "names": list(self._names)[before:],
            "name": numbers,
            "depth": depths,
            "start_ns": starts,
            "end_ns": ends,
        }
        with gzip.open(self._path, "at") as file:
            file.write(json.dumps(row) + "\n")
