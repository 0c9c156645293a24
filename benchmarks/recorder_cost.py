"""What Nsight Systems and CUPTI cost the steps of a window: many windows by each in turn, on a GPU host.

    python -m benchmarks.recorder_cost [WINDOWS [ROUNDS [RECORDER,… [FILE]]]]

In each round each recorder has a server of its own (``tp1-dflash`` with CUDA graphs, batch 1), which records that many
windows of 124 forward passes: over 100,000 records each. Before and after each nothing is recorded for a whole request
at least; the window's ratio is that of ``profkit capture``: its steps over those, at the same contexts. In turn with
these there are *idle* windows: as many steps at the same contexts that nothing records, with a ratio got alike. The
means of servers are what is compared: windows of one server share the steps between them. ``FILE`` gets all ratios as
JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns

import numpy as np

from profkit.analyzers.diff.student import reach_95
from profkit.capture.backends import backend_of
from profkit.capture.configuration import load_settings
from profkit.capture.context import Context
from profkit.capture.importing import Window
from profkit.capture.interrupts import Interrupts
from profkit.capture.load import Load
from profkit.capture.plan import make_plan, write_models
from profkit.capture.pm_sampling import PmSampling
from profkit.capture.record import Record
from profkit.capture.recording import record_window, resume, wait_for_place
from profkit.capture.remarks import window_passes
from profkit.capture.run import checker, serve, warm_up
from profkit.capture.secrets import Scrubber
from profkit.capture.server import Server
from profkit.capture.step_clock import Gaps, read_gaps, without_first
from profkit.capture.surroundings import log_beside, scratch_folder

OVERRIDES = (
    "windows.steps=60",
    "windows.measure_s=4.5",
    "load.output_len=1400",
    "server.cuda_graph_bs_decode=[1]",
    "server.mem_fraction_static=0.3",
)


@dataclass(slots=True)
class Found:
    """What windows of one server showed: ratios with a recorder, of idle windows, and records in the last window.

    ``lost`` windows have no ratio: too few steps, or none at their contexts outside of them.
    """

    recorder: str
    recorded: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    records: int = 0
    steps: int = 0
    lost: int = 0

    def take(self, window: Window, ratios: list[float]) -> None:
        """Keep the ratio of ``window``."""
        cost = window.recording_cost
        if cost is None:
            self.lost += 1
            return
        ratios.append(cost.ratio)
        self.steps = cost.steps


def measure(recorder: str, windows: int, folder: Path) -> Found:
    """Record ``windows`` windows with a server under ``recorder``; its files go to ``folder``."""
    found = Found(recorder)
    backend = backend_of(recorder, on_gpu=True)
    backend.check()
    plan = make_plan(load_settings("tp1-dflash", list(OVERRIDES)), [1], folder, backends=[recorder])
    folder.mkdir(parents=True)
    write_models(plan)
    scrub = Scrubber({})
    record = Record(plan, "", {recorder: backend.version()}, scrub)
    with log_beside(folder / "capture.log", print, scrub) as say, Interrupts(say) as interrupts:
        context = Context(plan, plan.passes[0], backend, record, scrub, interrupts, say, PmSampling([]))
        with scratch_folder() as scratch:
            failure = serve(context, scratch, lambda *server: _record(*server, windows, found))
            if failure:
                raise failure
            reports = backend.reports(scratch)
            tables = backend.read(reports[max(reports)], scratch).trace.tables()
            found.records = sum(len(tables[name]) for name in ("ops", "launches", "ranges"))
    return found


def _record(context: Context, server: Server, scratch: Path, windows: int, found: Found) -> None:
    times = context.plan.settings.windows
    with Load(server.endpoints, 1, context.plan.settings.load) as load:
        check, patient = (checker(server, load, seconds) for seconds in (times.hang_s, times.report_s))
        server.phase = "warm up"
        warm_up(load, "c1", times.warm_up_s, check, context.say)
        before = _gaps(context, load, check)
        for number in range(2 * windows):
            window = Window(1, True, f"c1-{number}", found.recorder, gaps_before=before)
            server.phase = f"window {number}"
            if number % 2:
                context.windows.append(window)
                record_window(context, server, load, window, scratch, check, patient)
                resume(load, check, patient)
            else:
                _leave_alone(context, load, window, check)
            window.gaps_after = before = _gaps(context, load, check)
            found.take(window, found.recorded if number % 2 else found.idle)
            context.say(f"window {number}, {'recorded' if number % 2 else 'idle'}: {window.recording_cost}")


def _leave_alone(context: Context, load: Load, window: Window, check: Callable[[], None]) -> None:
    """As many steps as a window has, begun where one would begin, without recording them."""
    wait_for_place(context, load, window, check)
    began, wanted = monotonic_ns(), window_passes(context.plan.settings) - 2
    while min((len(own) for own in window.gaps_recorded.values()), default=0) < wanted:
        load.measure(0.05, check)
        window.gaps_recorded = without_first(read_gaps(context.plugin_folder, began, monotonic_ns(), 1))
    window.gaps_recorded = {pid: gaps[:wanted] for pid, gaps in window.gaps_recorded.items()}


def _gaps(context: Context, load: Load, check: Callable[[], None]) -> Gaps:
    """From step to step while nothing is recorded, over all contexts that a request passes through."""
    times, began = context.plan.settings.windows, monotonic_ns()
    load.measure(times.measure_s, check, times.measure_most_s)
    return read_gaps(context.plugin_folder, began, monotonic_ns(), 1)


def mean_of(ratios: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval (not a number for fewer than two)."""
    if len(ratios) < 2:
        return (ratios[0] if ratios else float("nan")), float("nan")
    reach = float(reach_95(np.array([len(ratios) - 1.0]))[0])
    return float(np.mean(ratios)), reach * float(np.std(ratios, ddof=1)) / len(ratios) ** 0.5


def main(windows: str = "3", rounds: str = "3", recorders: str = "nsys,cupti", file: str = "") -> None:
    """Print the ratios of each server, and the means of each recorder over servers."""
    servers: list[Found] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(int(rounds)):
            for recorder in recorders.split(","):
                servers.append(one := measure(recorder, int(windows), Path(folder) / f"{number}-{recorder}"))
                _print(one)
                if file:
                    Path(file).write_text(json.dumps([_plain(server) for server in servers]))
    for name in recorders.split(","):
        for what in ("recorded", "idle"):
            means = [
                float(np.mean(getattr(one, what))) for one in servers if one.recorder == name and getattr(one, what)
            ]
            mean, half = mean_of(means)
            print(f"{name}, {what}: {mean:.4f} ± {half:.4f} (mean of {len(means)} servers, 95 %)")


def _print(one: Found) -> None:
    for what, ratios in (("recorded", one.recorded), ("idle", one.idle)):
        print(f"{one.recorder}, {what}: {' '.join(f'{ratio:.4f}' for ratio in ratios)}")
    lost = f", {one.lost} windows without a ratio" if one.lost else ""
    print(f"  {one.steps} steps a window, {one.records:,} records in the last one{lost}", flush=True)


def _plain(server: Found) -> dict[str, object]:
    return {name: getattr(server, name) for name in Found.__dataclass_fields__}


if __name__ == "__main__":
    main(*sys.argv[1:])
