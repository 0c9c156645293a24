"""The main process: it starts the ranks, serves, and stops."""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import threading
import time

from .endpoints import Handler, Server, State
from .modes import MODES
from .ranks import follower, scheduler


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--speculative-algorithm")
    parser.add_argument("--disable-decode-cuda-graph", action="store_true")
    return parser.parse_known_args()[0]


def main() -> None:
    args = parse()
    print(f"server_args={args}, environment says {os.environ.get('PLANTED_WORD', 'nothing')}", flush=True)
    if "crash_start" in MODES:
        raise SystemExit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    # A helper in a session of its own, as daemons of an engine are: it has to go with the rest.
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    peers = [context.Queue() for _ in range(args.tp_size - 1)]
    loaded = context.Barrier(args.tp_size + 1)
    workers = [context.Process(target=scheduler, args=(inbox, outbox, peers, args, loaded), daemon=True)]
    workers += [
        context.Process(target=follower, args=(peer, rank, args.tp_size, loaded), daemon=True)
        for rank, peer in enumerate(peers, 1)
    ]
    for worker in workers:
        worker.start()

    def stop(*_: object) -> None:
        if "slow_stop" in MODES:
            time.sleep(3600)
        for worker in workers:
            worker.kill()
        os._exit(0)

    def child_failed(*_: object) -> None:
        for worker in workers:
            worker.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGQUIT, child_failed)
    Handler.state = State(inbox, outbox)
    server = Server((args.host, args.port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    time.sleep(3.0 if "slow_start" in MODES else 0.0)
    loaded.wait()
    if "never_ready" in MODES:
        time.sleep(3600)
    Handler.state.ready = True
    print("The server is fired up and ready to roll!", flush=True)
    while True:
        time.sleep(3600)
