"""A stand-in for SGLang on a plain machine: its endpoints, its process tree, its ranges, and its ways to fail.

A main process speaks HTTP; one worker per rank runs steps, pushes profkit's ranges and notes when steps begin, as the
plugin does. With `PROFKIT_RECORDER=torch` each rank leaves a file of the PyTorch profiler for a window.
`STANDIN_MODE` says how it misbehaves, one or more of: slow_start, never_ready, crash_start, crash_window, graph_crash,
hang, slow_stop; refuse_window, refuse_first (the first window), late (the first is opened after 3 s),
late_second_answer (the second is opened at once and answered after 4 s), stall (nothing goes on for 4 s after a window,
as while a recorder writes); one_rank (the plugin runs in the first rank only), hook_fault (it notes a fault when a
window opens).
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing as mp
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

MODES = set(os.environ.get("STANDIN_MODE", "").split(","))
STEP_S = 0.004
BLOCK = 8


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


def begin(rank: int, ranks: int) -> None:
    """What the plugin does when its process starts."""
    global RECORDER, CLOCK, note_end
    from profkit.sglang.step_clock import StepClock
    from profkit.sglang.window_ends import note_end

    leave_record(rank)
    RECORDER = Kineto(rank, ranks) if os.environ["PROFKIT_RECORDER"] == "torch" else Nvtx()
    CLOCK = StepClock(Path(os.environ["PROFKIT_OUT"]) / f"steps-{os.getpid()}.bin")


def run_step(kind: str, tokens: list[int], speculative: bool) -> None:
    """One pass over a batch of requests with so many tokens, in the ranges that design.md names."""
    batch = len(tokens)
    requests = [SimpleNamespace(origin_input_ids=range(100), output_ids=range(count)) for count in tokens]
    CLOCK.note(time.monotonic_ns(), batch, kind == "decode", SimpleNamespace(reqs=requests))
    inner = ["target"]
    if kind == "decode" and speculative:
        inner = ["prepare", "draft", "draft_sample", "target", "accept", "accept_sim", "kv_append"]
    RECORDER.push(f"step:{kind} bs={batch}")
    for name in inner:
        RECORDER.push(name)
        time.sleep(STEP_S / len(inner))
        RECORDER.pop()
    RECORDER.pop()


class Scheduler:
    """Rank 0: the batch, the window, and the other ranks, which repeat each step."""

    def __init__(self, inbox, outbox, peers, args) -> None:
        self.inbox, self.outbox, self.peers, self.args = inbox, outbox, peers, args
        self.requests: dict[str, dict] = {}
        self.is_open = False
        self.steps_left = 0
        self.count = 0
        self.most = 0

    def run(self) -> None:
        while True:
            self.take_orders()
            if not self.requests:
                time.sleep(0.002)
                continue
            self.step()

    def take_orders(self) -> None:
        while True:
            try:
                order, value = self.inbox.get_nowait()
            except queue.Empty:
                return
            getattr(self, order)(value)

    def add(self, request: dict) -> None:
        self.requests[request["rid"]] = {**request, "tokens": 0, "verify": 0, "sent": 0, "new": True}
        self.most = max(self.most, len(self.requests))

    def abort(self, _: object) -> None:
        for request in list(self.requests.values()):
            self.finish(request, "abort")

    def start_profile(self, order: dict) -> None:
        if "hook_fault" in MODES:
            leave_record(
                0, faults=[{"where": "batch", "error": "KeyError: 'x'"}], remarks=["no counters: not permitted"]
            )
        print(f"[standin TP0] at most {self.most} requests in flight so far", flush=True)
        print("[standin TP0] Profiling starts. Traces will be saved to: /nowhere", flush=True)
        self.tell("start", order["body"])
        RECORDER.start(order["body"])
        self.is_open = True
        self.steps_left = order["body"].get("num_steps") or 1 << 30
        self.outbox.put((order["rid"], {"done": True}))

    def stop_profile(self, order: dict) -> None:
        self.outbox.put((order["rid"], {"done": self.is_open}))
        if self.is_open:
            self.close_window()

    def tell(self, *order: object) -> None:
        """Only files of the PyTorch profiler are each rank's own."""
        for peer in self.peers if isinstance(RECORDER, Kineto) else ():
            peer.put(order)

    def close_window(self) -> None:
        note_end(Path(os.environ["PROFKIT_OUT"]))
        print("[standin TP0] Stop profiling...", flush=True)
        self.tell("stop")
        RECORDER.stop()
        self.is_open, self.steps_left = False, 0
        if "lingers" in MODES:
            global STEP_S
            STEP_S *= 2
        if "stall" in MODES:
            time.sleep(4)
        print("[standin TP0] Profiling done. Traces are saved to: /nowhere", flush=True)

    def step(self) -> None:
        fresh = [request for request in self.requests.values() if request["new"]]
        kind, batch = ("prefill", fresh) if fresh else ("decode", list(self.requests.values()))
        tokens = [request["tokens"] for request in batch]
        self.misbehave(kind)
        speculative = self.args.speculative_algorithm == "DFLASH"
        for peer in self.peers:
            peer.put(("step", kind, tokens, speculative))
        run_step(kind, tokens, speculative)
        self.count += 1
        for request in batch:
            self.advance(request, 1 if fresh or not speculative else 3 + self.count % 2)
        if self.is_open:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self.close_window()

    def misbehave(self, kind: str) -> None:
        if "graph_crash" in MODES and kind == "decode" and not self.args.disable_decode_cuda_graph:
            raise AttributeError("'NoneType' object has no attribute 'replay'")
        if "crash_window" in MODES and self.is_open and self.steps_left < 8:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if "hang" in MODES and self.count > 100:
            time.sleep(3600)

    def advance(self, request: dict, tokens: int) -> None:
        request["new"] = False
        request["tokens"] = min(request["tokens"] + tokens, request["max_new_tokens"])
        request["verify"] += 1
        if request["tokens"] >= request["max_new_tokens"]:
            self.finish(request, "length")
        elif request["tokens"] - request["sent"] >= request["interval"]:
            request["sent"] = request["tokens"]
            self.outbox.put((request["rid"], {"completion_tokens": request["tokens"], "finish_reason": None}))

    def finish(self, request: dict, reason: str) -> None:
        meta = {"completion_tokens": request["tokens"], "finish_reason": {"type": reason}}
        if self.args.speculative_algorithm == "DFLASH":
            meta["spec_verify_ct"] = request["verify"]
            meta["spec_accept_length"] = request["tokens"] / max(request["verify"], 1)
        self.outbox.put((request["rid"], meta))
        self.requests.pop(request["rid"], None)


def leave_record(rank: int, faults: list[dict] | None = None, remarks: list[str] | None = None) -> None:
    """As the plugin does, in `PROFKIT_OUT`."""
    if rank and "one_rank" in MODES:
        return
    runners = [{"role": "target", "gpu_id": rank}]
    record = {"pid": os.getpid(), "probes": [{"target": "x"}], "runners": runners}
    record |= {"faults": faults or [], "remarks": remarks or []}
    file = Path(os.environ["PROFKIT_OUT"]) / f"plugin-{os.getpid()}.json"
    file.write_text(json.dumps(record))


def scheduler(inbox, outbox, peers, args, loaded) -> None:
    try:
        begin(0, args.tp_size)
        loaded.wait()
        Scheduler(inbox, outbox, peers, args).run()
    except Exception:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os.kill(os.getppid(), signal.SIGQUIT)


def follower(inbox, rank, ranks, loaded) -> None:
    begin(rank, ranks)
    loaded.wait()
    orders = {"step": run_step, "start": RECORDER.start, "stop": RECORDER.stop}
    while True:
        order, *values = inbox.get()
        orders[order](*values)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        if self.path in ("/health", "/health_generate"):
            self.answer(200 if self.state.ready else 503, "")
        elif self.path in ("/server_info", "/get_server_info"):
            known = {"version": "0.5.17", "attention_backend": "triton", "max_running_requests": 4096}
            self.answer(200, json.dumps(known))
        else:
            self.answer(404, "")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw or b"{}")
        if self.path == "/generate":
            self.generate(body)
        elif self.path == "/start_profile" and not self.refuses():
            self.profile("start_profile", body)
        elif self.path == "/stop_profile":
            self.profile("stop_profile", body)
        elif self.path == "/abort_request":
            self.state.inbox.put(("abort", None))
            self.answer(200, "")
        elif self.path == "/flush_cache":
            self.answer(200, "Cache flushed.\n")
        else:
            self.answer(500, "Internal Server Error")

    def refuses(self) -> bool:
        self.state.windows += 1
        return "refuse_window" in MODES or ("refuse_first" in MODES and self.state.windows == 1)

    def profile(self, order: str, body: dict) -> None:
        """SGLang answers once the scheduler has done it, with 500 where it could not."""
        number = self.state.windows if order == "start_profile" else 0
        if number == 1 and "late" in MODES:
            time.sleep(3)
        done = self.state.order(order, body)
        if number == 2 and "late_second_answer" in MODES:
            time.sleep(4)
        self.answer(200 if done else 500, f"{order}\n")

    def answer(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def generate(self, body: dict) -> None:
        if len(body.get("input_ids") or body.get("text", "")) > 100_000:
            self.answer(400, json.dumps({"error": {"message": "the input is too long"}}))
            return
        sampling = body["sampling_params"]
        stream = bool(body.get("stream"))
        if "text" in body:
            print(f"[standin] prompt: {body['text']}", flush=True)
        rid, mailbox = self.state.submit(sampling["max_new_tokens"], sampling.get("stream_interval", 1))
        if not stream:
            while (meta := mailbox.get())["finish_reason"] is None:
                pass
            self.answer(200, json.dumps({"text": "", "meta_info": {"id": rid, **meta}}))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            meta = mailbox.get()
            self.chunk(f"data: {json.dumps({'output_ids': [], 'meta_info': {'id': rid, **meta}})}\n\n")
            if meta["finish_reason"] is not None:
                break
        self.chunk("data: [DONE]\n\n")
        self.chunk("")

    def chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class State:
    def __init__(self, inbox, outbox) -> None:
        self.inbox, self.outbox = inbox, outbox
        self.ready = False
        self.windows = 0
        self.mailboxes: dict[str, queue.Queue] = {}
        self.count = 0
        self.lock = threading.Lock()
        threading.Thread(target=self.deliver, daemon=True).start()

    def submit(self, tokens: int, interval: int) -> tuple[str, queue.Queue]:
        with self.lock:
            self.count += 1
            rid = f"r{self.count}"
            self.mailboxes[rid] = queue.Queue()
        self.inbox.put(("add", {"rid": rid, "max_new_tokens": tokens, "interval": interval}))
        return rid, self.mailboxes[rid]

    def order(self, name: str, body: dict) -> bool:
        with self.lock:
            self.count += 1
            rid = f"o{self.count}"
            self.mailboxes[rid] = queue.Queue()
        self.inbox.put((name, {"rid": rid, "body": body}))
        return self.mailboxes[rid].get()["done"]

    def deliver(self) -> None:
        while True:
            rid, meta = self.outbox.get()
            self.mailboxes[rid].put(meta)


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


if __name__ == "__main__":
    main()
