"""The exact plan of a capture: what is started with which arguments, what is recorded, and where it goes."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.traces import UsageError

from .arguments import command_line, resolve
from .backends import BACKENDS, check_names
from .machine import least_memory, visible_gpus
from .models import drafter_config, target_config, write_model
from .remarks import block_size_of, graph_sizes_of, memory_in_words, memory_remarks, remarks_on
from .secrets import Scrubber, shown
from .settings import GraphMode, Settings
from .sglang_source import ServerArguments, assumed_arguments, find_sglang, read_arguments

HOST = "127.0.0.1"
SPECULATIVE_DEFAULT = 48
"""SGLang runs no more requests than this at once with a speculative algorithm, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One start of the server: under one recorder, with CUDA graphs or without. ``suffix`` tells its files apart."""

    graphs: bool
    recorder: str
    suffix: str
    server: Mapping[str, Any]
    command: tuple[str, ...]

    def window(self, concurrency: int) -> str:
        """The name of the window at ``concurrency``, which is also its bundle's."""
        return f"c{concurrency}{self.suffix}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A capture, resolved against the installed SGLang in ``package``; ``remarks`` are sentences for the user.

    ``keep_raw`` keeps reports that cannot be imported, though the server's whole environment stands in them.
    """

    settings: Settings
    concurrencies: tuple[int, ...]
    passes: tuple[Pass, ...]
    folder: Path
    backends: tuple[str, ...]
    package: Path | None
    version: str
    remarks: tuple[str, ...]
    keep_raw: bool = False

    @property
    def block_size(self) -> int | None:
        """The drafter's block size, where there is a drafter."""
        return block_size_of(self.passes[0].server)

    @property
    def graph_batch_sizes(self) -> list[int]:
        """The batch sizes that CUDA graphs are captured for, where the arguments name them and a pass has graphs."""
        return next((graph_sizes_of(one.server) for one in self.passes if one.graphs), [])

    @property
    def devices(self) -> list[int]:
        """NVML's numbers of the GPUs that the server uses, as far as they can be seen."""
        return _devices(self.settings)


def _devices(settings: Settings) -> list[int]:
    visible = visible_gpus({**os.environ, **settings.env}) if settings.gpus else []
    return [visible[number] for number in settings.gpu_ids if number < len(visible)]


def make_plan(
    settings: Settings,
    concurrencies: Sequence[int],
    folder: Path,
    *,
    graphs: GraphMode | None = None,
    backends: Sequence[str] = BACKENDS[:1],
    keep_raw: bool = False,
) -> Plan:
    """Resolve ``settings`` for this machine. Nothing is written or started.

    Each of ``backends`` has server starts of its own. Raises ``UsageError`` where there is no such recorder, or the
    installed SGLang does not know an argument.
    """
    if not concurrencies or min(concurrencies) < 1:
        raise UsageError("--conc: give concurrencies from 1, such as 1,32,128")
    recorders = check_names(backends)
    package = find_sglang()
    modes = {"on": (True,), "off": (False,), "both": (True, False)}[graphs or settings.graphs]
    servers: dict[bool, tuple[dict[str, Any], tuple[str, ...]]] = {}
    remarks = [] if package else ["SGLang is not installed here: its arguments are not checked"]
    for with_graphs in modes:
        wanted, remark = _server_arguments(settings, max(concurrencies), folder, with_graphs)
        known = read_arguments(package) if package else assumed_arguments(wanted)
        server, renamed = resolve(wanted, known)
        remarks += [*remark, *renamed, *remarks_on(settings, server, max(concurrencies), with_graphs)]
        servers[with_graphs] = server, tuple(_command(server, known))
    remarks += memory_remarks(settings, max(concurrencies), least_memory(_devices(settings)))
    passes = [
        Pass(with_graphs, recorder, _suffix(servers, with_graphs, recorders, recorder), *servers[with_graphs])
        for recorder in recorders
        for with_graphs in servers
    ]
    unique = tuple(dict.fromkeys(remarks))
    ordered = tuple(dict.fromkeys(concurrencies))
    return Plan(settings, ordered, tuple(passes), folder, recorders, package, known.version, unique, keep_raw)


def _suffix(modes: Collection[bool], with_graphs: bool, recorders: Sequence[str], recorder: str) -> str:
    """``-eager`` where there is a pass with graphs too, and the recorder's name where it is not the first."""
    eager = "-eager" if len(modes) > 1 and not with_graphs else ""
    return eager + (f"-{recorder}" if recorder != recorders[0] else "")


def _command(server: Mapping[str, Any], known: ServerArguments) -> list[str]:
    return [sys.executable, "-m", "sglang.launch_server", *command_line(server, known)]


def _server_arguments(settings: Settings, most: int, folder: Path, graphs: bool) -> tuple[dict[str, Any], list[str]]:
    server = {"host": HOST, "port": settings.port, **settings.server}
    remarks = []
    if settings.dummy:
        server.setdefault("model_path", str(folder / "models" / "target"))
        if settings.dummy.drafter:
            server.setdefault("speculative_draft_model_path", str(folder / "models" / "drafter"))
    if "model_path" not in server:
        raise UsageError("no model: set server.model_path, or dummy.target for one without weights")
    if not graphs:
        server["disable_decode_cuda_graph"] = True
    if server.get("speculative_algorithm") and "max_running_requests" not in server and most > SPECULATIVE_DEFAULT:
        server["max_running_requests"] = most
        said = f"SGLang runs at most {SPECULATIVE_DEFAULT} requests at once when it speculates"
        remarks.append(f"{said}: max_running_requests is set to {most}")
    return server, remarks


def write_models(plan: Plan) -> None:
    """Write the model folders without weights that the plan's server loads, if it loads any."""
    dummy = plan.settings.dummy
    if dummy is None:
        return
    write_model(plan.folder / "models" / "target", target_config(dummy.target, dummy.layers))
    if dummy.drafter and plan.block_size is not None:
        write_model(plan.folder / "models" / "drafter", drafter_config(dummy.target, plan.block_size, dummy.layers))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a recorder puts around the server: the command line before its own, and all variables that are added."""

    wrapper: Sequence[str]
    environment: Mapping[str, str]


def describe(plan: Plan, recorders: Mapping[str, Surroundings]) -> str:
    """The plan as text: every command, variable, window and file, without secrets.

    ``recorders`` are those of the plan, by name; they may name the folder of the run's own files as ``$SCRATCH``.
    """
    settings, windows = plan.settings, plan.settings.windows
    memory = memory_in_words(settings, max(plan.concurrencies), least_memory(plan.devices))
    common = _common([one.environment for one in recorders.values()])
    least, most = f"{windows.measure_s:g} s", f"{windows.measure_most_s:g} s"
    measure = f"measure {least}"
    if windows.measure_most_s > windows.measure_s:
        measure = f"measure through a whole output of every request (at least {least}, at most {most})"
    per_window = f"warm up (at most {windows.warm_up_s:g} s), {measure}, record {windows.steps} decode steps, measure"
    lines = [
        f"configuration   {settings.name}: {settings.description}".rstrip(": "),
        f"engine          SGLang {plan.version}, {settings.gpus} GPU(s), port {settings.port}",
        f"output          {plan.folder}",
        f"scratch         $SCRATCH, a private folder in {tempfile.gettempdir()} that goes at the end",
        f"load            {_load(settings)}",
        *([f"memory          {memory}"] if memory else []),
        *(f"remark          {remark}" for remark in plan.remarks),
        f"environment     {_variables(common)}",
    ]
    for one in plan.passes:
        around = recorders[one.recorder]
        own = {name: value for name, value in around.environment.items() if name not in common}
        lines += ["", f"server          CUDA graphs {'on' if one.graphs else 'off'}, recorder {one.recorder}"]
        lines += [f"  with {_variables(own)}"] if own else []
        lines += [f"  {shlex.join([*around.wrapper, *one.command])}"]
        lines += [f"  concurrency {c}: {per_window} again -> {one.window(c)}/" for c in plan.concurrencies]
    low, high = _seconds(plan)
    lines += ["", f"time            {low} to {high} s, of which each server start takes 30 to 120 s"]
    return Scrubber({**os.environ, **settings.env})("\n".join(lines))


def _common(environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The variables that all of ``environments`` have alike."""
    shared = set.intersection(*(set(one.items()) for one in environments))
    return dict(sorted(shared))


def _variables(environment: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shown(name, value)}" for name, value in sorted(environment.items()))


def _load(settings: Settings) -> str:
    load = settings.load
    kind = f"prompts of {load.prompts}" if load.prompts else f"random prompts of {load.prompt_len} tokens"
    return f"{kind}, {load.output_len} tokens out, sent as {'text' if load.text else 'token ids'}"


def _seconds(plan: Plan) -> tuple[int, int]:
    windows = plan.settings.windows
    least = 3 + 2 * windows.measure_s + 4
    most = windows.warm_up_s + 2 * max(windows.measure_s, windows.measure_most_s) + 30
    runs = len(plan.concurrencies) * len(plan.passes)
    return int(30 * len(plan.passes) + least * runs), int(140 * len(plan.passes) + most * runs)
