"""What surrounds a run: a private folder, and a log of what was said."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .secrets import Scrubber

Say = Callable[[str], None]


def temporary_places(scratch: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Temporary files go with the run; torch's cache of compiled code, which is one of them, is to last."""
    kept = environment.get("TORCHINDUCTOR_CACHE_DIR")
    cache = kept or str(Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}")
    return {"TMPDIR": str(scratch), "TORCHINDUCTOR_CACHE_DIR": cache}


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private folder with a short path (sockets of the server go there too); all in it goes at the end."""
    with tempfile.TemporaryDirectory(prefix="profkit-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def log_beside(file: Path, say: Say, scrub: Scrubber) -> Iterator[Say]:
    """``say``, with the time since the start, also written to ``file``; never the value of a secret.

    It never raises: the server has to be stopped also where the terminal is gone or the disk is full.
    """
    began = time.monotonic()
    with file.open("wb", buffering=0) as log:
        sinks: list[Callable[[str], object]] = [lambda line: log.write(line.encode() + b"\n"), say]
        lock = threading.Lock()

        def tell(text: str) -> None:
            line = scrub(f"{time.monotonic() - began:7.1f} s  {text}")
            with lock:
                for sink in list(sinks):
                    try:
                        sink(line)
                    except OSError as error:
                        sinks.remove(sink)
                        line = f"{line}\n{file.name} cannot be written any more ({error.strerror})"

        yield tell
