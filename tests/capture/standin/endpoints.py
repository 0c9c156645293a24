"""The HTTP endpoints of the main process, and its mailboxes for what the ranks answer."""

from __future__ import annotations

import json
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .modes import MODES


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
