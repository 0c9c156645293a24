"""What records a rank: ranges for nsys, or a file as the PyTorch profiler writes it."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path


class Nvtx:
    """Ranges for nsys, and the range that opens its window."""

    def push(self, text: str) -> None:
        import nvtx

        nvtx.push_range(text, domain="profkit")

    def pop(self) -> None:
        import nvtx

        nvtx.pop_range(domain="profkit")

    def start(self, body: dict) -> None:
        import nvtx

        self.window = nvtx.start_range("window", domain="profkit-capture")

    def stop(self) -> None:
        import nvtx

        nvtx.end_range(self.window)


class Kineto:
    """Ranges as SGLang's profiler writes them: annotations of the rank's own file, in a window only."""

    BASE = time.time_ns() // 10**15 * 10**15

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks, self.folder, self.open, self.events = rank, ranks, None, [], []

    def push(self, text: str) -> None:
        self.open.append((text, time.time_ns()))

    def pop(self) -> None:
        text, began = self.open.pop()
        times = {"ts": (began - self.BASE) / 1e3, "dur": (time.time_ns() - began) / 1e3}
        who = {"pid": os.getpid(), "tid": os.getpid()}
        self.events.append({"ph": "X", "cat": "user_annotation", "name": f"profkit|{text}", **who, **times, "args": {}})

    def start(self, body: dict) -> None:
        assert body["activities"] == ["CPU"], "the stand-in has no GPU"
        self.folder, self.events = Path(body["output_dir"]), []

    def stop(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        meta = {"schemaVersion": 1, "distributedInfo": {"rank": self.rank, "world_size": self.ranks}}
        content = {**meta, "baseTimeNanoseconds": self.BASE, "traceEvents": self.events}
        file = self.folder / f"{time.time()}-TP-{self.rank}.trace.json.gz"
        file.write_bytes(gzip.compress(json.dumps(content).encode()))
        time.sleep(0.3)
