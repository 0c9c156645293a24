"""Where the stand-in poses as SGLang, and how a capture of it is run as a user runs one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

from profkit.traces.nsys_export import find_importer, find_nsys

ROOT = Path(__file__).resolve().parents[2]
STANDIN_FOLDER = Path(__file__).resolve().parent

ARGUMENTS = """
class ServerArgs:
    model_path: A[str, Arg(help="The model.", aliases=["--model"])]
    host: A[str, "Host."] = "127.0.0.1"
    port: A[int, "Port."] = 30000
    device: A[Optional[str], "Device."] = None
    tp_size: A[int, "Ranks."] = 1
    speculative_algorithm: A[Optional[str], Arg(help="Drafting.", choices=["DFLASH", "EAGLE"])] = None
    speculative_draft_model_path: A[Optional[str], "The drafter."] = None
    speculative_dflash_block_size: A[Optional[int], "Block."] = None
    max_running_requests: A[Optional[int], "Most."] = None
    cuda_graph_bs_decode: A[Optional[List[int]], "Sizes."] = None
    disable_decode_cuda_graph: A[bool, "Eager."] = False
"""

CONFIGURATION = """
description = "the stand-in"

[dummy]
target = "qwen3-8b"
drafter = true

[server]
device = "cpu"
port = {port}
tp_size = {ranks}
speculative_algorithm = "DFLASH"
speculative_dflash_block_size = 8
cuda_graph_bs_decode = [1, 2, 4]

[env]
STANDIN_MODE = "{mode}"

[load]
prompt_len = 16
output_len = 600

[windows]
warm_up_s = 1
measure_s = 0.5
steps = 4
record_s = 10
start_s = 20
hang_s = 20
stop_s = 0.5
report_s = 30
"""


EXPORT = """#!/bin/sh
if [ "$1" = export ]; then {before}; fi
exec {nsys} "$@"
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_package(folder: Path) -> Path:
    """A package called sglang whose server is the stand-in."""
    package = folder / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "version.py").write_text('__version__ = "0.5.17"\n')
    (package / "srt" / "server_args.py").write_text(ARGUMENTS)
    body = f"import sys\nsys.path.insert(0, {str(STANDIN_FOLDER)!r})\nfrom standin.server import main\n"
    (package / "launch_server.py").write_text(body + "if __name__ == '__main__':\n    main()\n")
    return folder


def write_configuration(folder: Path, mode: str = "", ranks: int = 1, port: int | None = None) -> Path:
    file = folder / "standin.toml"
    file.write_text(CONFIGURATION.format(port=port or free_port(), mode=mode, ranks=ranks))
    return file


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), **more}


def start_capture(folder: Path, configuration: Path, *options: str, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "profkit", "capture", "--config", str(configuration), "-o", str(folder / "out")]
    return subprocess.Popen(
        [*command, *options],
        env=environment(folder, **more),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def write_nsys(folder: Path, before_export: str) -> str:
    """An nsys that runs a line of shell before each export, whose target is `$7` and whose report is `$8`."""
    real = find_nsys()
    assert real is not None
    importer = find_importer(real)
    named = [("bin/nsys", EXPORT.format(before=before_export, nsys=real))]
    named += [("host/QdstrmImporter", f'#!/bin/sh\nexec {importer} "$@"\n')] if importer else []
    for name, text in named:
        file = folder / "tools" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.chmod(0o755)
    return str(folder / "tools" / "bin" / "nsys")


def press(process: subprocess.Popen[str], sent: signal.Signals, times: int = 1, apart_s: float = 0.7) -> None:
    """Send a signal, and again as long as the capture runs."""
    for number in range(times):
        time.sleep(apart_s if number else 0.0)
        if process.poll() is None:
            process.send_signal(sent)


def survivors(folder: Path) -> list[str]:
    """Command lines of processes that belong to a capture in ``folder``."""
    mark = str(folder)
    found = []
    for process in psutil.process_iter():
        try:
            belongs = mark in " ".join(process.cmdline()) or mark in process.environ().get("PROFKIT_OUT", "")
            if belongs and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(" ".join(process.cmdline())[:120])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_for(found, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not found():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
