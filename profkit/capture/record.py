"""The sweep's record, written anew whenever something is known: a run that is cut short leaves what it had."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from profkit.traces import Sweep, SweepRun, save_sweep
from profkit.traces.sweep import SCHEMA, ServerFailure

from .importing import Window
from .machine import describe_machine, versions
from .plan import Pass, Plan
from .plugin import PluginReport
from .secrets import Scrubber
from .server import ServerError

RESOLVED = (
    "attention_backend", "sampling_backend", "speculative_draft_attention_backend", "moe_runner_backend", "dtype",
    "kv_cache_dtype", "max_total_num_tokens", "max_running_requests", "chunked_prefill_size", "mem_fraction_static",
    "disable_overlap_schedule", "disable_custom_all_reduce", "page_size",
)  # fmt: skip
"""What of the server's own account is kept; the rest repeats the configuration."""


class Record:
    """What is known of a capture, and ``sweep.json`` in its folder."""

    def __init__(self, plan: Plan, command: str, recorders: Mapping[str, str], scrub: Scrubber) -> None:
        self.machine = describe_machine(plan.devices)
        self.machine["p2p_disabled"] = plan.settings.env.get("NCCL_P2P_DISABLE") == "1"
        self._plan = plan
        self._scrub = scrub
        self._windows: dict[str, Window] = {}
        self._said: list[list[str]] = []
        self._ended: list[str] = []
        modes = {one.graphs for one in plan.passes}
        self._sweep = Sweep(
            schema=SCHEMA,
            config=plan.settings.name,
            runs=[],
            graphs=modes.pop() if len(modes) == 1 else None,
            block_size=plan.block_size,
            graph_batch_sizes=plan.graph_batch_sizes,
            engine=f"sglang {plan.version}",
            hardware=self.machine,
            versions={**versions(plan.package or Path()), **recorders},
            settings=scrub.over(
                {
                    "command": command,
                    "configuration": plan.settings.record(),
                    "server": [_portable(one.command, plan) for one in plan.passes],
                    "remarks": list(plan.remarks),
                }
            ),
            note="stopped before its end",
        )
        self.save()

    @property
    def sweep(self) -> Sweep:
        """The record as it stands."""
        return self._sweep

    def server_is_up(self, said: Mapping[str, Any], most: int, say: Callable[[str], None]) -> None:
        """Keep how the server resolved what the configuration leaves open."""
        self._sweep.settings["resolved"] = {key: said[key] for key in RESOLVED if said.get(key) is not None}
        allowed = said.get("max_running_requests")
        if isinstance(allowed, int) and allowed < most:
            say(f"the server runs at most {allowed} requests at once, fewer than {most}: see max_running_requests")
        self.save()

    def plugin_says(self, report: PluginReport, one: Pass, say: Callable[[str], None]) -> None:
        """Keep what is amiss with the plugin in this pass, and say what has not been said of it."""
        number, ranks = self._plan.passes.index(one), ranks_of(one)
        self._said += [[] for _ in range(len(self._said), number + 1)]
        amiss = list(report.amiss)
        if 0 < len(report.ranks) < ranks:
            amiss.append(f"the plugin ran in {len(report.ranks)} of {ranks} ranks: the others' steps have no names")
        for sentence in amiss:
            if sentence not in self._said[number]:
                say(sentence)
        self._said[number] = amiss
        self._sweep.settings["plugin"] = self._said
        self.save()

    def remark(self, text: str, say: Callable[[str], None]) -> None:
        """Keep something that the user should know of the capture, and say it, once."""
        remarks: list[str] = self._sweep.settings["remarks"]
        if text not in remarks:
            remarks.append(text)
            say(text)
            self.save()

    def server_failed(self, error: ServerError, one: Pass) -> None:
        """Keep how the server ended, in which window, and which concurrencies it left untried."""
        failure = ServerFailure(
            phase=error.phase,
            fault=self._scrub(error.fault),
            graphs=one.graphs,
            exit_status=error.server_exit_status,
            log=error.log,
            recorder=one.recorder,
        )
        self._sweep.failures.append(failure)
        for window in self._windows.values():
            if window.name == error.phase.split(" ")[-1]:
                window.failure = str(error)
        untried = {name: c for c in self._plan.concurrencies if (name := one.window(c)) not in self._windows}
        for name, concurrency in untried.items():
            why = "not tried: the server had ended"
            self._windows[name] = Window(concurrency, one.graphs, name, one.recorder, failure=why)
        names = f", not tried: {', '.join(untried)}" if untried else ""
        who = f"{one.recorder}, " if len(self._plan.backends) > 1 else ""
        self._ended.append(f"the server ended early ({who}{error.phase}){names}")
        self.save()

    def measured(self, window: Window) -> None:
        """Take up what is known of ``window``."""
        self._windows[window.name] = window
        self.save()

    def finish(self) -> None:
        """The capture has come to its end; what is left to note is where a server had not."""
        self._sweep.note = "; ".join(self._ended)
        self.save()

    def save(self) -> None:
        """Write the record."""
        self._sweep.runs = [_run(window, self._scrub) for window in self._windows.values()]
        save_sweep(self._sweep, self._plan.folder)


def _portable(command: Sequence[str], plan: Plan) -> str:
    """The server's command line without the places of this machine."""
    return shlex.join(["python", *command[1:]]).replace(str(plan.folder), ".")


def ranks_of(one: Pass) -> int:
    """How many processes of the server run steps."""
    sizes = {key: int(one.server.get(key, 1)) for key in ("tp_size", "pp_size", "dp_size")}
    copies = 1 if one.server.get("enable_dp_attention") else sizes["dp_size"]
    return sizes["tp_size"] * sizes["pp_size"] * copies


def _run(window: Window, scrub: Scrubber) -> SweepRun:
    return SweepRun(
        concurrency=window.concurrency,
        trace=window.trace,
        graphs=window.graphs,
        accept_len=window.accept_length,
        tokens_per_s=window.tokens_per_s,
        tokens_per_s_recorded=window.tokens_per_s_recorded,
        tokens_per_s_before=window.rate_before,
        tokens_per_s_after=window.rate_after,
        step_times=window.step_times,
        step_times_recorded=window.step_times_recorded,
        recording_cost=window.recording_cost,
        recorder=window.recorder,
        failure=scrub(window.failure) if window.failure else None,
    )
