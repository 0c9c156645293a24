"""What surrounds a run: a private folder, a log of what was said, and signals that stop it cleanly."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .secrets import Scrubber

Say = Callable[[str], None]


def temporary_places(scratch: Path) -> dict[str, str]:
    """Temporary files go with the run; torch's cache of compiled code, which is one of them, is to last."""
    kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    cache = kept or str(Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}")
    return {"TMPDIR": str(scratch), "TORCHINDUCTOR_CACHE_DIR": cache}


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private folder with a short path (sockets of the server go there too); all in it goes at the end."""
    with tempfile.TemporaryDirectory(prefix="profkit-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def log_beside(file: Path, say: Say) -> Iterator[Say]:
    """``say``, with the time since the start, also written to ``file``; never the value of a secret."""
    began = time.monotonic()
    scrub = Scrubber(os.environ)
    with file.open("w", encoding="utf-8") as log:

        def tell(text: str) -> None:
            line = scrub(f"{time.monotonic() - began:7.1f} s  {text}")
            log.write(line + "\n")
            log.flush()
            say(line)

        yield tell


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """SIGTERM and a closed terminal stop a capture as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # A program under nohup ignores SIGHUP, and has to go on doing so.
    wanted = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
