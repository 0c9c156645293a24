"""Ctrl-C, SIGTERM and a closed terminal while a capture runs: each step decides what they may break off."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
APART_S = 0.5
"""Signals closer together are one: ``timeout`` sends each twice, and a key that is held down repeats."""


class Interrupts:
    """Counts the signals that ask to stop, from which moment on they do nothing else while the block runs.

    Only in a block of ``raising`` do they raise ``KeyboardInterrupt``, and each such block raises it once: what runs
    outside, such as stopping the server, is never broken off. ``notice`` is what a further signal is answered with;
    one that comes within ``pause_s`` of another is answered but does not count: a series of them is no second thought.
    With ``for_good`` what comes after the block that a signal ended does nothing either, which is for a program that
    ends then: its last lines and its clearing up are not broken off.
    """

    def __init__(self, say: Callable[[str], None], for_good: bool = False) -> None:
        self.count = 0
        self.notice = ""
        self.pause_s = APART_S
        self._for_good = for_good
        self._say = say
        self._last = -APART_S
        self._raise_at: int | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._notices: list[threading.Thread] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # A program under nohup ignores SIGHUP, and has to go on doing so.
            wanted = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
            self._before = {one: signal.signal(one, self._take) for one in wanted}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._for_good and self.count else handler)
        for thread in self._notices:
            thread.join()

    @contextmanager
    def raising(self, at: int) -> Iterator[None]:
        """Raise ``KeyboardInterrupt`` in this block as soon as ``at`` signals have come since the start."""
        self._raise_at = at
        try:
            self.raise_from(at)
            yield
        finally:
            self._raise_at = None

    def raise_from(self, at: int) -> None:
        """Raise ``KeyboardInterrupt`` if ``at`` signals have come."""
        if self.count >= at:
            self._raise_at = None
            raise KeyboardInterrupt

    def _take(self, *_: object) -> None:
        now = time.monotonic()
        quiet_s, self._last = now - self._last, now
        if quiet_s < APART_S:
            return
        if quiet_s >= self.pause_s:
            self.count += 1
            if self._raise_at is not None:
                self.raise_from(self._raise_at)
        if self.notice:
            # In a thread: the line that this signal interrupts may be half written.
            thread = threading.Thread(target=self._say, args=(self.notice,), name="notice", daemon=True)
            self._notices.append(thread)
            thread.start()
