"""The processes of the ranks: the first one schedules, all run the steps."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from .modes import MODES
from .recorders import Kineto, Nvtx

STEP_S = 0.004


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
