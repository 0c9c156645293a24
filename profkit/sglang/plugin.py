"""The entry point that SGLang calls in each of its processes."""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path
from typing import Any

from . import ENABLE_VARIABLE, FOLDER_VARIABLE, RECORDER_VARIABLE
from .domain import open_domain
from .hooks import hook_of, why_not
from .modules import ModuleRecorder
from .probes import NEWEST, OLDEST, PLAIN, Probe, groups_of, names_release, probes_of, release_of, step_of
from .record import ProcessRecord, log
from .stack import RangeStack
from .step_clock import StepClock
from .windows import Windows

REGISTRY = "sglang.srt.plugins.hook_registry"


class Plugin:
    """The probes of one process. ``version`` is SGLang's; ``folder`` may be ``None``; ``recorder`` is who records."""

    def __init__(self, version: str, folder: Path | None, recorder: str) -> None:
        domain = open_domain(recorder)
        self._release = release_of(version)
        self._record = ProcessRecord(folder, version, domain.attached)
        if not names_release(version):
            self._record.taken_for(".".join(map(str, NEWEST)))
        self._folder = folder
        self._stack = RangeStack(domain, self._record.fault, self._first_step)
        self._windows = Windows(recorder, self._record, folder)
        self._recorder = ModuleRecorder(folder, self._record)
        self._registry: Any = importlib.import_module(REGISTRY)
        self._installed: set[str] = set()

    def install(self, group: str) -> None:
        """Register the hooks of ``group``; SGLang's loader applies them once all plugins have registered theirs."""
        for probe in probes_of(self._release, group):
            self._register(probe)
        self._record.write()

    def _register(self, probe: Probe) -> None:
        if probe.target in self._installed or (probe.kind in ("open", "close") and not self._windows.records_itself):
            return
        reason = absent(probe.target)
        if reason is not None:
            self._record.missing(probe, reason)
            return
        hook = hook_of(probe, self._stack, self._recorder, self._windows, self._chosen)
        self._registry.HookRegistry.register(probe.target, hook, self._registry.HookType.AROUND)
        self._installed.add(probe.target)
        self._record.found(probe)

    def _first_step(self, began_ns: int, requests: int, decode: bool, batch: Any) -> None:
        """Only a process that runs steps has a clock for them."""
        self._stack.note_step = _no_clock
        if self._folder is not None:
            self._stack.note_step = StepClock(self._folder / f"steps-{os.getpid()}.bin").note
            self._stack.note_step(began_ns, requests, decode, batch)

    def _chosen(self, worker: Any) -> None:
        """Install the rows of the speculative worker that the server is about to make."""
        try:
            groups = groups_of(worker, self._release)
            for group in groups:
                self.install(group)
            if not groups:
                probe = step_of(worker)
                self._record.missing(probe, "a worker that the table does not list; it gets steps and forwards only")
                self._register(probe)
                self._record.write()
            self._registry.HookRegistry.apply_hooks()
        except Exception as error:
            self._record.fault("create_worker", error)


def _no_clock(began_ns: int, requests: int, decode: bool, batch: Any) -> None:
    """Steps are not timed without a folder, or where the clock's file could not be made."""


def absent(target: str) -> str | None:
    """Why ``target`` cannot be wrapped in the installed SGLang; ``None`` where it can."""
    try:
        return why_not(pkgutil.resolve_name(target))
    except Exception as error:  # importing SGLang's modules runs their code, which may raise anything
        return f"{type(error).__name__}: {error}"


def activate() -> None:
    """Register profkit's hooks, where the environment turns them on (see ``profkit.sglang``)."""
    if os.environ.get(ENABLE_VARIABLE) != "1":
        return
    folder = os.environ.get(FOLDER_VARIABLE)
    installed = str(getattr(importlib.import_module("sglang"), "__version__", "unknown"))
    if release_of(installed) < OLDEST:
        log.warning("profkit: SGLang %s is older than its first known release; install 0.5.12 or newer", installed)
        return
    try:
        plugin = Plugin(installed, Path(folder) if folder else None, os.environ.get(RECORDER_VARIABLE) or "nsys")
    except ImportError as error:
        log.warning("profkit: no ranges (%s); install profkit with its extra `capture`", error)
        return
    plugin.install(PLAIN)
