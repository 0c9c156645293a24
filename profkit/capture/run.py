"""The run: start, warm up, measure, record, measure again at each concurrency, stop, import, and the sweep's record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from profkit.sglang import RECORDER_VARIABLE
from profkit.traces import OutputError, UsageError

from .backends import Backend, backend_of
from .checks import check_plan, check_port, nvtx_faults
from .collecting import collect
from .context import Context
from .importing import Window
from .interrupts import Interrupts
from .load import HangError, Load, LoadError
from .machine import Sampler, without_nvlink
from .plan import Plan, Surroundings, describe, write_models
from .plugin import plugin_environment, read_report
from .pm_sampling import PmSampling
from .record import Record
from .recording import Check, record_window, resume
from .remarks import left_behind_remark
from .secrets import Scrubber, without_secrets
from .server import Server, ServerError
from .server_log import ServerLog
from .step_clock import Gaps, read_gaps, remove_rings
from .surroundings import Say, log_beside, scratch_folder, temporary_places
from .window_ends import remove_ends

STEADY = 0.1
"""Throughput of two seconds in a row may differ by this share of it."""

CRASH_WAIT_S = 10.0
PORT_WAIT_S = 5.0


def merged_environment(plan: Plan) -> dict[str, str]:
    """The variables of this process with those of the configuration."""
    return {**os.environ, **plan.settings.env}


def environment_of(plan: Plan, recorder: str, scratch: Path, plugin_folder: Path) -> dict[str, str]:
    """The variables that a capture adds to the server's environment: its own over those of the configuration.

    Lists that have entries already (``PYTHONPATH``, ``SGLANG_PLUGINS``) are added to, not replaced.
    """
    own = plugin_environment(merged_environment(plan), scratch, plugin_folder)
    backend = backend_of(recorder, on_gpu=plan.settings.gpus > 0)
    return {**plan.settings.env, **own, RECORDER_VARIABLE: recorder, **backend.environment()}


def backends_of(plan: Plan) -> dict[str, Backend]:
    """The plan's recorders by name."""
    return {name: backend_of(name, on_gpu=plan.settings.gpus > 0) for name in plan.backends}


def check_recorders(plan: Plan) -> None:
    """Raise one ``UsageError`` that names everything for which recorders of ``plan`` would not run here."""
    faults = []
    for backend in backends_of(plan).values():
        try:
            backend.check()
        except UsageError as error:
            faults.append(str(error))
    faults += nvtx_faults(plan.backends)
    if faults and plan.package is None:
        faults.append("SGLang is not installed either: `profkit doctor` names all that a capture lacks here")
    if faults:
        raise UsageError("; ".join(dict.fromkeys(faults)))


def dry_run(plan: Plan) -> str:
    """The plan as text; nothing is checked, written or started."""
    with scratch_folder() as scratch:
        recorders = {
            name: Surroundings(backend.wrapper(scratch), environment_of(plan, name, scratch, plan.folder / "plugin"))
            for name, backend in backends_of(plan).items()
        }
        return describe(plan, recorders).replace(str(scratch), "$SCRATCH")


def capture(plan: Plan, command: str, say: Say, ends_program: bool = False) -> Record:
    """Run ``plan`` and return its record, which stands in ``plan.folder`` from the start and grows.

    ``ends_program`` says that the caller ends once it is told to stop: further signals then do nothing.

    ``ServerError`` after the record is complete where the server failed and no pass recorded anything after that;
    ``KeyboardInterrupt`` likewise: what was recorded until then is kept.
    """
    backends = backends_of(plan)
    check_recorders(plan)
    check_plan(plan)
    _make_folder(plan.folder)
    write_models(plan)
    scrub = Scrubber(merged_environment(plan))
    record = Record(plan, command, {name: backend.version() for name, backend in backends.items()}, scrub)
    with log_beside(plan.folder / "capture.log", say, scrub) as tell, Interrupts(tell, ends_program) as interrupts:
        for remark in plan.remarks:
            tell(remark)
        failure = None
        counters = PmSampling(plan.devices, scrub, without_nvlink(plan.devices))
        for one in plan.passes:
            interrupts.raise_from(1)
            failure = _run_pass(Context(plan, one, backends[one.recorder], record, scrub, interrupts, tell, counters))
        record.finish()
        interrupts.raise_from(1)
        if failure:
            raise failure
    return record


def _run_pass(context: Context) -> ServerError | None:
    """One server start. A server that fails is recorded, with all windows before that, and returned."""
    sampler = Sampler(context.plan.devices)
    context.counters.begin_anew()
    with scratch_folder() as scratch:
        try:
            with sampler:
                return serve(context, scratch, _run_concurrencies)
        finally:
            context.counters.end()
            collect(context, scratch, sampler)
            context.record.save()
            remove_rings(context.plugin_folder)
            remove_ends(context.plugin_folder)


Work = Callable[[Context, Server, Path], None]
"""What is done with a server that is up; the folder is for the files of the run itself."""


def serve(context: Context, scratch: Path, work: Work) -> ServerError | None:
    """Start the server of a pass, do ``work`` with it and stop it; a first signal breaks that off.

    A server that failed is recorded, and returned.
    """
    plan = context.plan
    log = ServerLog(plan.folder / f"server{context.one.suffix}.log", context.scrub)
    environment = _server_environment(context, scratch)
    context.plugin_folder.mkdir()
    wrapper = context.backend.wrapper(scratch)
    server = Server(context.one.command, wrapper, environment, plan.settings.port, scratch, log)
    try:
        with context.interrupts.raising(1):
            _start(context, server)
            work(context, server, scratch)
    except ServerError as error:
        context.record.server_failed(error, context.one)
        context.say(f"{error}; its last lines are in {plan.folder / 'sweep.json'}")
        return error
    finally:
        _stop(context, server)
    return None


def _server_environment(context: Context, scratch: Path) -> Mapping[str, str]:
    return {
        **without_secrets(os.environ),
        **environment_of(context.plan, context.one.recorder, scratch, context.plugin_folder),
        **temporary_places(scratch, merged_environment(context.plan)),
    }


def _start(context: Context, server: Server) -> None:
    plan, record = context.plan, context.record
    graphs = "on" if context.one.graphs else "off"
    context.say(f"starting SGLang {plan.version}, CUDA graphs {graphs}, recorder {context.one.recorder}")
    _wait_for_port(server, plan.settings.port)
    server.start()
    server.wait_until_healthy(plan.settings.windows.start_s, context.say)
    record.server_is_up(server.endpoints.server_info(), max(plan.concurrencies), context.say)
    record.plugin_says(read_report(context.plugin_folder), context.one, context.say)


def _wait_for_port(server: Server, port: int) -> None:
    """The server of the pass before may still leave it; a stranger that took it would be measured instead of ours."""
    deadline = time.monotonic() + PORT_WAIT_S
    while True:
        try:
            return check_port(port)
        except UsageError as error:
            if time.monotonic() > deadline:
                raise server.fail(str(error)) from error
            time.sleep(0.2)


def _stop(context: Context, server: Server) -> None:
    windows, interrupts = context.plan.settings.windows, context.interrupts
    before = interrupts.count
    interrupts.notice = "the server is ended without waiting; what is recorded is imported after that"
    context.say("stopping the server")
    is_recorded = any(window.number for window in context.windows)
    recorder_s = windows.report_s if is_recorded else 0.0
    survivors = server.stop(windows.stop_s, recorder_s, lambda: interrupts.count - before)
    if survivors:
        context.say(f"processes {survivors} could not be ended; end them by hand")
    if context.windows:
        context.record.plugin_says(read_report(context.plugin_folder), context.one, context.say)


def _run_concurrencies(context: Context, server: Server, scratch: Path) -> None:
    for concurrency in context.plan.concurrencies:
        _run_concurrency(context, server, concurrency, scratch)


def _run_concurrency(context: Context, server: Server, concurrency: int, scratch: Path) -> None:
    windows = context.plan.settings.windows
    window = Window(concurrency, context.one.graphs, context.one.window(concurrency), context.one.recorder)
    load = Load(server.endpoints, concurrency, context.plan.settings.load)
    check = checker(server, load, windows.hang_s)
    patient = checker(server, load, max(windows.hang_s, windows.report_s))

    def measure(what: str) -> tuple[float, Gaps]:
        server.phase, began_ns = f"{what} {window.name}", time.monotonic_ns()
        rate = load.measure(windows.measure_s, check, windows.measure_most_s)
        context.say(f"{window.name}: {rate:,.0f} tok/s")
        return rate, read_gaps(context.plugin_folder, began_ns, time.monotonic_ns(), concurrency)

    context.windows.append(window)
    window.began_ns = time.time_ns()
    try:
        with load:
            server.phase = f"warm up {window.name}"
            warm_up(load, window.name, windows.warm_up_s, check, context.say)
            window.rate_before, window.gaps_before = measure("measure")
            server.phase = f"record {window.name}"
            record_window(context, server, load, window, scratch, check, patient)
            server.phase = f"resume {window.name}"
            resume(load, check, patient)
            window.measured_again(*measure("measure again"))
            if window.left_behind is not None:
                context.record.remark(left_behind_remark(window.name, window.left_behind), context.say)
            server.phase = f"drain {window.name}"
    finally:
        window.ended_ns = time.time_ns()
        window.accept_length = load.accept_length()
        context.record.measured(window)


def checker(server: Server, load: Load, hang_s: float) -> Check:
    """A function that raises ``ServerError`` where the server died, requests fail, or no token came for too long."""

    def check() -> None:
        server.check()
        try:
            load.check(hang_s)
        except LoadError as error:
            # Requests break a moment before the process is seen to be gone.
            server.died_within(0.0 if isinstance(error, HangError) else CRASH_WAIT_S)
            raise server.fail(str(error)) from error

    return check


def warm_up(load: Load, name: str, most_s: float, check: Check, say: Say) -> None:
    """Wait until every request has brought tokens and throughput is the same in two seconds in a row."""
    say(f"{name}: warming up")
    deadline, before = time.monotonic() + most_s, 0.0
    while not load.is_full() and time.monotonic() < deadline:
        load.measure(0.2, check)
    while time.monotonic() < deadline:
        rate = load.measure(1.0, check)
        if before and abs(rate - before) <= STEADY * max(rate, before):
            return
        before = rate
    say(f"{name}: not steady after {most_s:.0f} s; going on")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(folder, f"cannot make it ({error.strerror})", "choose another place with -o") from error
