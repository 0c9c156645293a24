"""A closed loop of requests: exactly C are in flight at any moment, and what comes back is counted as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from profkit.traces import ProfkitError

from .endpoints import Endpoints, RequestError
from .prompts import prompts
from .settings import LoadSettings

GROUPS = 4
"""Requests start in this many groups, so that refills are neither all at once nor in every step."""

DRAIN_S = 15.0

Arrival = tuple[float, int]
"""When tokens came, and how many the slot had seen by then."""


class LoadError(ProfkitError):
    """A request failed."""


class HangError(LoadError):
    """No tokens come any more."""


class _Meta(msgspec.Struct):
    completion_tokens: int = 0
    spec_verify_ct: int | None = None
    spec_accept_length: float | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct):
    meta_info: _Meta = msgspec.field(default_factory=_Meta)
    error: Any = None


@dataclass(slots=True)
class Slot:
    """One of the C places in the loop: the tokens that its request has and will have, and those of all so far.

    ``first`` and ``last`` are the arrivals at the ends of what is measured.
    """

    received: int = 0
    expected: int = 0
    total: int = 0
    first: Arrival | None = None
    last: Arrival | None = None

    def begin(self) -> None:
        """Measure from the next arrival on."""
        self.first = self.last = None

    def count(self, now: float, tokens: int) -> None:
        """Take note of ``tokens`` new tokens."""
        self.received += tokens
        self.total += tokens
        self.last = now, self.total
        self.first = self.first or self.last

    def rate(self) -> float | None:
        """Tokens per second from the first to the last arrival; ``None`` without two of them."""
        first, last = self.first, self.last
        if first is None or last is None or last[0] <= first[0]:
            return None
        return (last[1] - first[1]) / (last[0] - first[0])


class Load:
    """C requests in flight against ``url``, in a thread of its own, while the block runs."""

    def __init__(self, endpoints: Endpoints, concurrency: int, settings: LoadSettings) -> None:
        self.concurrency = concurrency
        self.tokens = 0
        self.last_token = time.monotonic()
        self._endpoints = endpoints
        self._settings = settings
        self._prompts = prompts(settings)
        self._slots = [Slot() for _ in range(concurrency)]
        self._finished: list[_Meta] = []
        self._failure: str | None = None
        self._stopping = False
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._thread = threading.Thread(target=self._run_loop, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping = True
        if kind is None:
            self._drain()
        self._cancel()
        self._thread.join(timeout=DRAIN_S)

    def _cancel(self) -> None:
        if self._running is None:
            return
        loop, task = self._running
        # The loop may end, and then close, at any moment.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)

    def _drain(self) -> None:
        """End the loop: running requests are aborted, so that they still say how much was accepted."""
        try:
            self._endpoints.abort_all()
        except RequestError:
            return
        self._thread.join(timeout=DRAIN_S)

    def check(self, hang_s: float) -> None:
        """Raise ``LoadError`` where a request has failed, or no token has come for ``hang_s`` seconds."""
        if self._failure:
            raise LoadError(self._failure)
        if time.monotonic() - self.last_token > hang_s:
            raise HangError(f"no token for {hang_s:.0f} s: the server hangs")

    def expect_tokens(self) -> None:
        """Count the time without tokens from now on: until here the server was held up."""
        self.last_token = time.monotonic()

    def is_full(self) -> bool:
        """Whether every request has brought its first tokens: the batch holds all of them."""
        return all(slot.received > 0 for slot in self._slots)

    def room(self) -> int:
        """The least number of tokens that a running request has still to bring; 0 while one is being refilled."""
        return min(slot.expected - slot.received if slot.received else 0 for slot in self._slots)

    def progress(self) -> float:
        """The mean share of their output that running requests have brought, of the length that all but the first have.

        It tells how long contexts are: over the life of a request, half of it is typical.
        """
        received = sum(slot.received for slot in self._slots)
        return received / (len(self._slots) * max(self._settings.output_len, 1))

    def measure(self, seconds: float, check: Callable[[], None], most_s: float = 0.0) -> float:
        """Tokens per second over the next ``seconds``, or longer; ``check`` is called all the while.

        Steps take longer as contexts grow. To have contexts as long as they are on average, it goes on until every
        slot has brought as many tokens as a request has, but for no longer than ``most_s``.

        Tokens come in bursts of many steps, so each slot's rate counts from burst to burst; where one has had too few
        of them, all tokens of the time are counted.
        """
        began, before = time.monotonic(), self.tokens
        for slot in self._slots:
            slot.begin()
        whole = [slot.total + self._settings.output_len for slot in self._slots]
        while True:
            check()
            lacks = any(slot.total < total for slot, total in zip(self._slots, whole, strict=True))
            left = began + (max(seconds, most_s) if lacks else seconds) - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(0.05, left))
        rates = [slot.rate() for slot in self._slots]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if len(known) == len(rates) else (self.tokens - before) / (time.monotonic() - began)

    def accept_length(self) -> float | None:
        """Tokens per verify step over all finished requests, as the server counts them; ``None`` for plain decoding."""
        counted = [meta for meta in self._finished if meta.spec_verify_ct]
        if counted:
            return sum(meta.completion_tokens for meta in counted) / sum(meta.spec_verify_ct or 0 for meta in counted)
        said = [meta.spec_accept_length for meta in self._finished if meta.spec_accept_length]
        return sum(said) / len(said) if said else None

    def _run_loop(self) -> None:
        """Whatever ends the loop before its time is the load's failure: without it the server would seem to hang."""
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            return
        except Exception as error:
            self._failure = self._failure or f"the load broke down: {_told(error)}"

    async def _run(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._running = asyncio.get_running_loop(), task
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        timeout = httpx.Timeout(None, connect=10.0)
        async with (
            httpx.AsyncClient(base_url=self._endpoints.url, limits=limits, timeout=timeout, trust_env=False) as client,
            asyncio.TaskGroup() as group,
        ):
            for number in range(self.concurrency):
                group.create_task(self._keep_busy(client, number))

    async def _keep_busy(self, client: httpx.AsyncClient, number: int) -> None:
        length = self._first_length(number)
        while not self._stopping and self._failure is None:
            try:
                await self._request(client, self._slots[number], length)
            except (httpx.HTTPError, msgspec.MsgspecError, LoadError) as error:
                self._failure = self._failure or f"a request failed: {str(error) or type(error).__name__}"
            length = self._settings.output_len

    def _first_length(self, number: int) -> int:
        """The first requests of the groups end at different times; later ones have the full length."""
        groups = min(GROUPS, self.concurrency)
        return max(1, self._settings.output_len * (groups - number % groups) // groups)

    async def _request(self, client: httpx.AsyncClient, slot: Slot, length: int) -> None:
        slot.received, slot.expected = 0, length
        async with client.stream("POST", "/generate", json=self._body(length)) as answer:
            if answer.status_code != 200:
                said = (await answer.aread()).decode("utf-8", "replace")
                raise LoadError(f"the server answered {answer.status_code}: {said[:200]}")
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    self._count(slot, msgspec.json.decode(line[6:], type=_Chunk))

    def _body(self, length: int) -> dict[str, Any]:
        sampling = {
            "max_new_tokens": length,
            "temperature": 0,
            "ignore_eos": True,
            "stream_interval": max(1, min(16, self.concurrency // 2)),
        }
        return {**next(self._prompts), "sampling_params": sampling, "stream": True}

    def _count(self, slot: Slot, chunk: _Chunk) -> None:
        if chunk.error:
            raise LoadError(f"the server answered {chunk.error}")
        reason = chunk.meta_info.finish_reason
        if isinstance(reason, dict) and reason.get("type") == "abort" and not self._stopping:
            raise LoadError(f"the server gave up a request: {reason.get('message')}")
        new = chunk.meta_info.completion_tokens - slot.received
        if new > 0:
            self.tokens += new
            self.last_token = time.monotonic()
            slot.count(self.last_token, new)
        if reason:
            self._finished.append(chunk.meta_info)


def _told(error: BaseException) -> str:
    """The first error in a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
