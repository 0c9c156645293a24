"""One window: opened at a good moment, closed by the server itself, and waited for until tokens flow again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .context import Context
from .endpoints import NoAnswerError, RefusedError, RequestError
from .importing import Window
from .load import Load
from .remarks import window_passes
from .server import Server
from .server_log import ServerLog
from .step_clock import Gaps, latest_context, read_gaps, step_times, without_first
from .window_ends import ends_since

DONE = re.compile(r"Profiling done")
"""What SGLang logs when it has closed a window by itself."""

BEGAN, ENDED = re.compile(r"Profiling starts"), re.compile(r"Stop profiling|Profiling done")
"""What each rank logs just before its recorder starts, and before and after it stops.

A recorder inside the server has written its dump by then, and notes the end itself (``window_ends``).
"""

NEAR = ((12.0, 0.01), (30.0, 0.03))
"""How near to typical contexts a window has to lie, as a share of an output, while it has waited for less than so many
seconds; then anywhere.

At batch 32 attention is two thirds of a step, so that 3 % of an output make two windows differ by as much.
"""

ROOM_WAIT_S = 40.0
MOST_OF_ACCEPTED = 1.3
"""No request gets more than this times the mean accept length in each of the window's steps."""

RESUME_S = 0.5

STEPS_AHEAD, MOST_LEAD_S = 1.5, 0.5
"""Counters are sampled for so many steps after the host has ended the last one, and no longer than this."""

Check = Callable[[], None]


def record_window(
    context: Context, server: Server, load: Load, window: Window, scratch: Path, check: Check, patient: Check
) -> None:
    """Record one window: where the server refuses it, that is the window's failure and the run goes on.

    With several ranks the recorder holds the server while it writes its report: once a window is open ``patient`` is
    called instead of ``check``, until tokens flow again.
    """
    settings = context.plan.settings
    steps = window_passes(settings)
    context.counters.prepare(scratch)
    wait_for_place(context, load, window, check)
    since = server.log.position
    context.say(f"{server.phase}: {steps} forward passes")
    window.number = 1 + max((other.number for other in context.windows), default=0)
    body = context.backend.window(window.number, steps, scratch)
    with context.counters:
        window.opened_ns, asked_ns = time.time_ns(), time.monotonic_ns()
        ended = partial(_ends, context, server.log, since, asked_ns)
        opened = _open(server, window, body, since, settings.windows.record_s, check)
        answered_ns = time.monotonic_ns()
        if opened:
            # Counters only while steps are recorded: a recorder may hold the server long after the last one.
            server.wait_until(ended, settings.windows.record_s, patient)
            time.sleep(_lead_s(window))
    _take_counters(context, window)
    if opened and not server.wait_for(DONE, since, settings.windows.record_s, patient):
        _close(server, window, settings.windows.report_s, patient)
    window.closed_ns = time.time_ns()
    if opened:
        began_ns = max(server.log.times_of(BEGAN, since), default=answered_ns)
        ended_ns = min(ended(), default=time.monotonic_ns())
        window.gaps_recorded = _recorded_gaps(context, window, began_ns, ended_ns)
        if context.backend.importer:
            server.wait_while_runs(context.backend.importer, settings.windows.report_s)
    load.expect_tokens()


def _lead_s(window: Window) -> float:
    """How long the GPU may still work on the last steps when the host has ended them: the host can be a step ahead."""
    return min(MOST_LEAD_S, STEPS_AHEAD * window.step_times.median_ns * 1e-9) if window.step_times else 0.0


def _take_counters(context: Context, window: Window) -> None:
    counters = context.counters
    window.counters, window.counter_interval_ns = counters.rows, counters.interval_ns
    window.counter_clock_error_ns = counters.clock_error_ns
    for remark in counters.remarks:
        context.record.remark(remark, context.say)


def _ends(context: Context, log: ServerLog, since: int, asked_ns: int) -> list[int]:
    """When ranks have ended the window that was asked for at ``asked_ns``: as they note it, and as the log tells."""
    return [*log.times_of(ENDED, since), *ends_since(context.plugin_folder, asked_ns)]


def _recorded_gaps(context: Context, window: Window, began_ns: int, ended_ns: int) -> Gaps:
    """The times from step to step within the window, without the first, which holds the start of the recording.

    The window is from the last rank's start to the first one's end; where the server tells neither, from the answer to
    ``/start_profile`` until the window was seen to be closed.
    """
    return without_first(read_gaps(context.plugin_folder, began_ns, ended_ns, window.concurrency))


def _open(server: Server, window: Window, body: dict[str, object], since: int, timeout_s: float, check: Check) -> bool:
    """Whether a window is open, or was. Only a refusal says that the recorder has not begun to number one more."""
    try:
        server.endpoints.start_profile(body, timeout_s)
    except RefusedError as error:
        _look(server, check)
        window.number, window.failure = 0, str(error)
        return False
    except NoAnswerError as error:
        if not server.log.find(DONE, since):
            _look(server, check)
            _end_unanswered(server, window, str(error), timeout_s)
    return True


def _look(server: Server, check: Check) -> None:
    """Whether the server died, which may show a moment after a request has failed."""
    check()
    server.died_within(1.0)


def _end_unanswered(server: Server, window: Window, fault: str, timeout_s: float) -> None:
    """A window that is closed for certain costs only itself; otherwise the next one's report could be mistaken."""
    try:
        server.endpoints.stop_profile(timeout_s)
    except RequestError as error:
        unsure = "whether it still opens a window is unknown, so no more are recorded"
        window.failure = fault
        raise server.fail(f"{fault}; {unsure}") from error
    window.failure = f"{fault}; the window was closed early"


def _close(server: Server, window: Window, timeout_s: float, check: Check) -> None:
    """Close a window that takes too long; a server that refuses had closed it and not said so in its log."""
    try:
        server.endpoints.stop_profile(timeout_s)
        window.failure = "fewer steps than wanted ran in time; raise windows.record_s"
    except RefusedError:
        return
    except NoAnswerError as error:
        _look(server, check)
        raise server.fail(f"{error}; the server hangs") from error


def wait_for_place(context: Context, load: Load, window: Window, check: Check) -> None:
    """Wait for a moment at which contexts are nearly typical, for a while, and requests have room for the window."""
    steps, times = window_passes(context.plan.settings), step_times(window.gaps_before)
    place = _Place(context, load, window.concurrency, steps, times.context if times else None)
    _wait_for_room(place, context.plan.block_size or 1, check)


@dataclass(frozen=True, slots=True)
class _Place:
    """How far contexts are from where a window of ``steps`` steps has to begin to have typical ones in its middle.

    ``typical`` is the context that steps had in the median while nothing was recorded: tokens of all requests.
    """

    context: Context
    load: Load
    requests: int
    steps: int
    typical: int | None

    def off(self) -> float:
        """The distance as a share of an output: by the engine's count where it keeps one, else by what came back."""
        output = self.context.plan.settings.load.output_len
        half = self.steps * (self.load.accept_length() or 1.0) / 2 / output
        now = latest_context(self.context.plugin_folder, self.requests)
        if self.typical is None or now is None:
            return abs(self.load.progress() + half - 0.5)
        return abs((now - self.typical) / (output * self.requests) + half)


def _wait_for_room(place: _Place, block_size: int, check: Check) -> None:
    """Wait for a moment at which contexts are as long as they typically are, and no request is about to end.

    The window then holds decode steps only, and steps that take what steps take on average. If no such moment comes,
    one with room will do.
    """
    accepted = place.load.accept_length()
    tokens = place.steps * min(block_size, MOST_OF_ACCEPTED * accepted if accepted else block_size)
    began = time.monotonic()
    while (waited := time.monotonic() - began) < ROOM_WAIT_S:
        near = next((share for until, share in NEAR if waited < until), 1.0)
        if place.load.room() >= tokens and place.off() <= near:
            return
        check()
        time.sleep(0.01)


def resume(load: Load, check: Check, patient: Check) -> None:
    """Wait until tokens flow again, and a moment more."""
    while load.measure(RESUME_S, patient) <= 0:
        continue
    load.measure(RESUME_S, check)
