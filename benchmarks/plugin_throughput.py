"""What the active plugin costs a server: throughput with it over throughput without it, on a GPU host.

    python -m benchmarks.plugin_throughput [PRESET] [SECONDS]

Two servers run at once, one per GPU, one of them with the plugin; both are loaded and measured in the same windows.
Then they change places, so that a difference between the GPUs cancels out. Nothing is recorded.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from profkit.capture.configuration import load_settings
from profkit.capture.load import Load
from profkit.capture.plan import Plan, make_plan, write_models
from profkit.capture.plugin import plugin_environment
from profkit.capture.secrets import Scrubber, without_secrets
from profkit.capture.server import Server
from profkit.capture.server_log import ServerLog

CONCURRENCIES = (1, 32)
WINDOW_S = 2.0


@dataclass(slots=True)
class Side:
    """A server on one GPU, with the plugin or without."""

    gpu: int
    plugin: bool
    server: Server
    plan: Plan


def start(preset: str, gpu: int, plugin: bool, folder: Path) -> Side:
    """Start a server on one GPU."""
    settings = load_settings(preset, [f"server.port={31000 + gpu}"])
    plan = make_plan(settings, list(CONCURRENCIES), folder / "out")
    (folder / "out").mkdir(parents=True)
    write_models(plan)
    environment = {**without_secrets(os.environ), **plan.settings.env, "CUDA_VISIBLE_DEVICES": str(gpu)}
    if plugin:
        environment |= plugin_environment(os.environ, folder, folder / "out")
    log = ServerLog(folder / "server.log", Scrubber(environment))
    server = Server(plan.passes[0].command, [], environment, settings.port, folder, log)
    server.start()
    return Side(gpu, plugin, server, plan)


def measure(sides: list[Side], concurrency: int, seconds: float) -> dict[bool, list[float]]:
    """Tokens per second of both sides in the same windows, by whether the plugin is active."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(sides)) as pool:
        loads = [stack.enter_context(Load(s.server.endpoints, concurrency, s.plan.settings.load)) for s in sides]
        deadline = time.monotonic() + 30
        while not all(load.is_full() for load in loads) and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(4)
        for _ in range(max(3, int(seconds / WINDOW_S))):
            found = pool.map(
                lambda pair: pair[1].measure(WINDOW_S, pair[0].server.check), zip(sides, loads, strict=True)
            )
            for side, rate in zip(sides, found, strict=True):
                rates[side.plugin].append(rate)
    return rates


def main(preset: str = "tp1-dflash", seconds: float = 16.0) -> None:
    """Print throughput of each round, and the ratio over both rounds."""
    ratios: dict[int, list[float]] = {concurrency: [] for concurrency in CONCURRENCIES}
    for with_plugin in (0, 1):
        with tempfile.TemporaryDirectory() as folder:
            sides = [start(preset, gpu, gpu == with_plugin, Path(folder) / str(gpu)) for gpu in (0, 1)]
            try:
                for side in sides:
                    side.server.wait_until_healthy(300, lambda text: None)
                for concurrency in CONCURRENCIES:
                    rates = measure(sides, concurrency, seconds)
                    on, off = statistics.median(rates[True]), statistics.median(rates[False])
                    ratios[concurrency].append(on / off)
                    print(
                        f"plugin on GPU {with_plugin}, concurrency {concurrency}: {on:,.1f} with, {off:,.1f} without",
                        flush=True,
                    )
            finally:
                for side in sides:
                    side.server.stop(10, 1)
    for concurrency, found in ratios.items():
        print(f"concurrency {concurrency}: with over without {statistics.geometric_mean(found):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:2], *(float(value) for value in sys.argv[2:3]))
