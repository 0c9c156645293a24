"""From the recorder's reports of a pass to bundles: each window by itself, whatever becomes of the others."""

from __future__ import annotations

import shutil
from pathlib import Path

from profkit.traces import OutputError, ProfkitError

from .backends import EmptyReportError
from .context import Context
from .importing import Window, import_window
from .interrupts import APART_S
from .machine import Sampler
from .plugin import read_report

REMOVED = "its raw report is removed{}: record again with --keep-raw to keep it"
KEPT = "its raw report is kept in raw/{}"
SINCE = ", since it holds the server's environment"
BEWARE = ": it holds the server's whole environment, so do not pass it on"
PAUSE_S = 2.0
NOTICE = f"the import goes on; again, after {PAUSE_S:.0f} s or more, gives up the windows that are not imported yet"


def collect(context: Context, scratch: Path, sampler: Sampler) -> None:
    """Import the windows of a pass into the plan's folder; what cannot be imported is told in the window's failure.

    The first signal from here on breaks nothing off; the second gives up the windows that are not imported yet.
    """
    reports = context.backend.reports(scratch)
    interrupts = context.interrupts
    interrupts.notice, interrupts.pause_s = NOTICE, PAUSE_S
    give_up_at = interrupts.count + 2
    for window in context.windows:
        report = reports.get(window.number)
        if report is not None:
            _collect_one(context, window, report, scratch, sampler, give_up_at)
        elif window.trace is None:
            window.failure = window.failure or _why_nothing(context)
        _note(context, window)
    interrupts.notice, interrupts.pause_s = "", APART_S


def _why_nothing(context: Context) -> str:
    stopped = context.interrupts.count > 0
    return "stopped before it was recorded" if stopped else "nothing of it was recorded; see capture.log and server.log"


def _collect_one(
    context: Context, window: Window, report: Path, scratch: Path, sampler: Sampler, give_up_at: int
) -> None:
    fault = None
    try:
        with context.interrupts.raising(give_up_at):
            context.say(f"importing {window.name}")
            recorded = context.backend.read(report, scratch)
            span = window.began_ns, window.ended_ns
            rows = [*sampler.between(*span), *window.counters]
            ranks = read_report(context.plugin_folder).ranks
            import_window(context.plan, window, recorded, rows, ranks, context.record.machine)
            if window.no_counters:
                context.record.remark(window.no_counters, context.say)
    except KeyboardInterrupt:
        fault = "stopped before its report was imported"
    except EmptyReportError as error:
        window.failure = window.failure or str(error)
    except ProfkitError as error:
        fault = f"its report could not be imported ({error})"
    except Exception as error:  # whatever a damaged report makes a reader do, the other windows are sound
        fault = f"its report could not be imported ({type(error).__name__}: {error})"
    if fault and window.trace is None:
        fault = fault.replace(f"{scratch}/", "")
        window.failure = f"{fault}; {_keep(context, report, window)}"
    if window.failure:
        context.say(f"{window.name}: {window.failure}")


def _keep(context: Context, report: Path, window: Window) -> str:
    """Move the report into the sweep if the user wants that; the sentence about what became of it."""
    secret = context.backend.holds_environment
    if not context.plan.keep_raw:
        return REMOVED.format(SINCE if secret else "")
    kept = context.plan.folder / "raw"
    target = kept / f"{window.name}{report.suffix}"
    try:
        kept.mkdir(mode=0o700, exist_ok=True)
        shutil.move(report, target)
    except OSError as error:
        _remove(target)
        return f"its raw report could not be kept in raw/ either ({error.strerror})"
    return KEPT.format(BEWARE if secret else "")


def _remove(report: Path) -> None:
    """Remove a report, which may be a folder."""
    if report.is_dir():
        shutil.rmtree(report, ignore_errors=True)
    else:
        report.unlink(missing_ok=True)


def _note(context: Context, window: Window) -> None:
    """Write what is known of ``window``: a record that cannot be written is no reason not to import the next one."""
    try:
        context.record.measured(window)
    except OutputError as error:
        context.say(str(error))
