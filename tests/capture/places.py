"""Where the stand-in poses as SGLang, and how a capture of it is run as a user runs one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
STANDIN = Path(__file__).resolve().parent / "standin.py"

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
warm_up_s = 4
measure_s = 0.5
steps = 4
record_s = 10
start_s = 20
hang_s = 3
stop_s = 2
report_s = 30
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
    body = f"import sys\nsys.path.insert(0, {str(STANDIN.parent)!r})\nfrom standin import main\n"
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
