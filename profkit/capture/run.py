"""The run: start, warm up, measure, record, measure again at each concurrency, stop, import, and the sweep's record."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from profkit.traces import OutputError, ProfkitError

from .backends import Backend, backend_of
from .checks import check_plan
from .endpoints import RefusedError
from .importing import Window, import_window
from .load import Load, LoadError
from .machine import Sampler, visible_gpus
from .plan import Pass, Plan, describe, write_models
from .plugin import plugin_environment, read_report
from .record import Record
from .secrets import Scrubber, without_secrets
from .server import Server, ServerError
from .surroundings import Say, log_beside, scratch_folder, temporary_places, termination_as_interrupt

DONE = re.compile(r"Profiling done")
"""What SGLang logs when it has closed a window by itself."""

STEADY = 0.1
"""Throughput of two seconds in a row may differ by this share of it."""

EXTRA_STEPS = 4
ROOM_WAIT_S = 10.0
CRASH_WAIT_S = 10.0
SETTLE_S = 60.0
RESUME_S = 1.0


def environment_of(plan: Plan, backend: Backend, scratch: Path, plugin_folder: Path) -> dict[str, str]:
    """The variables that a capture adds to the server's environment."""
    own = plugin_environment(os.environ, scratch, plugin_folder)
    return {**own, **backend.environment(), **plan.settings.env}


def dry_run(plan: Plan) -> str:
    """The plan as text; nothing is checked, written or started."""
    backend = backend_of(plan.backend, on_gpu=plan.settings.gpus > 0)
    with scratch_folder() as scratch:
        return describe(plan, backend.wrapper(scratch), environment_of(plan, backend, scratch, plan.folder / "plugin"))


def capture(plan: Plan, command: str, say: Say) -> Record:
    """Run ``plan`` and return its record, which stands in ``plan.folder`` from the start and grows.

    ``ServerError`` after the record is complete where the server failed and no pass recorded anything after that;
    ``KeyboardInterrupt`` likewise: what was recorded until then is kept.
    """
    backend = backend_of(plan.backend, on_gpu=plan.settings.gpus > 0)
    backend.check()
    check_plan(plan)
    _make_folder(plan.folder)
    write_models(plan)
    record = Record(plan, command, backend.version())
    with log_beside(plan.folder / "capture.log", say) as tell, termination_as_interrupt():
        for remark in plan.remarks:
            tell(remark)
        failure = None
        for one in plan.passes:
            failure = _run_pass(_Context(plan, one, backend, record, tell))
        record.finish()
        if failure:
            raise failure
    return record


@dataclass(slots=True)
class _Context:
    """What the steps of one pass share."""

    plan: Plan
    one: Pass
    backend: Backend
    record: Record
    say: Say
    windows: list[Window] = field(default_factory=list)

    @property
    def plugin_folder(self) -> Path:
        """Where the plugin leaves its records of this pass."""
        return self.plan.folder / f"plugin{self.one.suffix}"


def _run_pass(context: _Context) -> ServerError | None:
    """One server start. A server that fails is recorded, with all windows before that, and returned."""
    with scratch_folder() as scratch:
        failure = None
        try:
            with Sampler(visible_gpus()[: context.plan.settings.gpus]) as sampler:
                try:
                    failure = _serve(context, scratch)
                finally:
                    _import(context, scratch, sampler)
        finally:
            context.record.save()
    return failure


def _serve(context: _Context, scratch: Path) -> ServerError | None:
    plan, windows = context.plan, context.plan.settings.windows
    environment = {
        **without_secrets(os.environ),
        **temporary_places(scratch),
        **environment_of(plan, context.backend, scratch, context.plugin_folder),
    }
    context.plugin_folder.mkdir()
    server = Server(context.one.command, context.backend.wrapper(scratch), environment, plan.settings.port, scratch)
    failure = None
    try:
        context.say(f"starting SGLang {plan.version}, CUDA graphs {'on' if context.one.graphs else 'off'}")
        server.start(plan.folder / f"server{context.one.suffix}.log", Scrubber(os.environ))
        server.wait_until_healthy(windows.start_s, context.say)
        context.record.server_is_up(server.endpoints.server_info(), max(plan.concurrencies), context.say)
        context.record.plugin_says(read_report(context.plugin_folder), context.say)
        for concurrency in plan.concurrencies:
            _run_concurrency(context, server, concurrency, scratch)
    except ServerError as error:
        failure = error
        context.record.server_failed(error, context.one)
        context.say(f"{error}; its last lines are in {plan.folder / 'sweep.json'}")
    finally:
        _stop(context, server)
    return failure


def _stop(context: _Context, server: Server) -> None:
    windows = context.plan.settings.windows
    context.say("stopping the server")
    try:
        survivors = server.stop(windows.stop_s, windows.report_s)
    except KeyboardInterrupt:
        server.kill()
        raise
    if survivors:
        context.say(f"processes {survivors} could not be ended; end them by hand")


def _run_concurrency(context: _Context, server: Server, concurrency: int, scratch: Path) -> None:
    windows = context.plan.settings.windows
    window = Window(concurrency, context.one.graphs, f"c{concurrency}{context.one.suffix}")
    load = Load(server.endpoints, concurrency, context.plan.settings.load)

    def check() -> None:
        server.check()
        _check_load(server, load, windows.hang_s)

    def measure(what: str) -> float:
        server.phase = f"{what} c{concurrency}"
        rate = load.measure(windows.measure_s, check)
        context.say(f"c{concurrency}: {rate:,.0f} tok/s")
        return rate

    context.windows.append(window)
    window.began_ns = time.time_ns()
    try:
        with load:
            server.phase = f"warm up c{concurrency}"
            _warm_up(load, windows.warm_up_s, check, context.say)
            window.rates.append(measure("measure"))
            server.phase = f"record c{concurrency}"
            _record(context, server, load, window, scratch, check)
            server.phase = f"resume c{concurrency}"
            if _resume(load, check, context.say):
                window.rates.append(measure("measure again"))
            server.phase = f"drain c{concurrency}"
    finally:
        window.ended_ns = time.time_ns()
        window.accept_length = load.accept_length()
        context.record.measured(window)


def _check_load(server: Server, load: Load, hang_s: float) -> None:
    try:
        load.check(hang_s)
    except LoadError as error:
        # Requests break a moment before the process is seen to be gone.
        server.died_within(0.0 if "hangs" in str(error) else CRASH_WAIT_S)
        raise server.fail(str(error)) from error


def _warm_up(load: Load, most_s: float, check: Callable[[], None], say: Say) -> None:
    """Until every request has brought tokens and throughput is the same in two seconds in a row."""
    say(f"c{load.concurrency}: warming up")
    deadline, before = time.monotonic() + most_s, 0.0
    while not load.is_full() and time.monotonic() < deadline:
        load.measure(0.2, check)
    while time.monotonic() < deadline:
        rate = load.measure(1.0, check)
        if before and abs(rate - before) <= STEADY * max(rate, before):
            return
        before = rate
    say(f"c{load.concurrency}: not steady after {most_s:.0f} s; going on")


def _resume(load: Load, check: Callable[[], None], say: Say) -> bool:
    """Wait until tokens flow again: with several ranks the recorder holds the server while it writes its report."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        if load.measure(RESUME_S, check) > 0:
            load.measure(RESUME_S, check)
            return True
    say(f"c{load.concurrency}: no tokens for {SETTLE_S:.0f} s after the recording; not measured again")
    return False


def _record(
    context: _Context, server: Server, load: Load, window: Window, scratch: Path, check: Callable[[], None]
) -> None:
    """One window: where the server cannot open it, that is the window's failure and the run goes on."""
    settings = context.plan.settings
    steps = 2 * settings.windows.steps + EXTRA_STEPS
    _wait_for_room(load, steps * (context.plan.block_size or 1), check)
    since = server.log.position
    context.say(f"{server.phase}: {steps} forward passes")
    window.opened_ns = time.time_ns()
    try:
        server.endpoints.start_profile(context.backend.window(steps, scratch), settings.windows.record_s)
        window.number = 1 + sum(1 for other in context.windows if other.number)
        if not server.wait_for(DONE, since, settings.windows.record_s, check):
            _cut_short(server, window, settings.windows.record_s)
    except RefusedError as error:
        check()
        server.died_within(1.0)
        window.failure = str(error)
    window.closed_ns = time.time_ns()
    server.wait_while_runs(context.backend.importer, SETTLE_S)


def _cut_short(server: Server, window: Window, record_s: float) -> None:
    """Close a window that takes too long; a server that refuses had closed it and not said so in its log."""
    try:
        server.endpoints.stop_profile(record_s)
        window.failure = f"fewer steps than wanted ran in {record_s:.0f} s"
    except RefusedError:
        return


def _wait_for_room(load: Load, tokens: int, check: Callable[[], None]) -> None:
    """Wait for a moment after which no request ends for ``tokens`` tokens: the window then holds decode steps only."""
    deadline = time.monotonic() + ROOM_WAIT_S
    while load.room() < tokens and time.monotonic() < deadline:
        check()
        time.sleep(0.02)


def _import(context: _Context, scratch: Path, sampler: Sampler) -> None:
    reports = context.backend.reports(scratch)
    ranks = read_report(context.plugin_folder).ranks
    for window in context.windows:
        report = reports.get(window.number)
        if report is None:
            window.failure = window.failure or "nothing of it was recorded; see capture.log and server.log"
            context.record.measured(window)
            continue
        context.say(f"importing {window.name}")
        try:
            recorded = context.backend.read(report, scratch)
            rows = sampler.between(window.began_ns, window.ended_ns)
            import_window(context.plan, window, recorded, rows, ranks, context.record.machine)
        except (ProfkitError, OSError) as error:
            kept = context.plan.folder / "raw"
            kept.mkdir(mode=0o700, exist_ok=True)
            shutil.copy2(report, kept / f"{window.name}{report.suffix}")
            window.failure = f"its report could not be imported ({error}); it is kept in raw/"
            context.say(f"{window.name}: {window.failure}")
        context.record.measured(window)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(folder, f"cannot make it ({error.strerror})", "choose another place with -o") from error
