"""The ranges that are open on each thread. Nothing here raises: faults are noted, and the server goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from .domain import Call, Domain

NOT_PUSHED = -1
MARK_EVERY_NS = 20_000_000
CLOCK_MARK = "clock:monotonic"

PREFILL, DECODE = "step:prefill", "step:decode"
DRAFT, TARGET, KV_APPEND = "draft", "target", "kv_append"


class Held(str):
    """A range that stays open until the next one opens, other than those in ``nested``."""

    nested: tuple[str, ...] = ()


class Accept(Held):
    """Acceptance, with SGLang's simulated acceptance inside."""

    nested = ("accept_sim",)


PREPARE, ACCEPT = Held("prepare"), Accept("accept")


class Texts(list[str]):
    """The names of open ranges, the step's first; ``drafts`` where that step is a decode step with a drafter."""

    drafts = False


class Open(threading.local):
    """The ranges that are open on a thread."""

    def __init__(self) -> None:
        self.texts = Texts()


@dataclass(frozen=True, slots=True)
class Step:
    """A step's text and range, kept because the next step is mostly one of the same kind and size."""

    mode: Any
    size: int
    extends: bool
    text: str
    push: Call
    prefill: bool


class RangeStack:
    """Opens and closes ranges so that they nest on each thread, whatever is raised between.

    The methods take the thread's ``open.texts``, which a hook looks up once, and are written for speed: a hook has a
    microsecond, of which SGLang's own wrapper takes a quarter.
    """

    def __init__(
        self, domain: Domain, fault: Callable[[str, Exception], None], note_step: Callable[[int, int, bool, Any], None]
    ) -> None:
        self.open = Open()
        self.fault = fault
        self.note_step = note_step
        self._domain = domain
        self._pop = domain.pop
        self._ranges: dict[str, Call] = {}
        self._last = Step(None, NOT_PUSHED, False, "", domain.pop, False)
        self._next_mark = 0

    def enter(self, texts: Texts, name: str) -> int:
        """Open ``name``; gives what ``leave`` needs. A drafter's forward has no range inside one of the drafter."""
        try:
            top = texts[-1]
            if isinstance(top, Held) and name not in top.nested:
                texts.pop()
                self._pop()
                top = texts[-1]
            if top == name or (name == DRAFT and top == KV_APPEND):
                return NOT_PUSHED
            try:
                push = self._ranges[name]
            except KeyError:
                push = self._ranges[name] = self._domain.range_of(str(name))
            push()
            texts.append(name)
            return len(texts) - 1
        except Exception as error:
            self.fault(name, error)
            return NOT_PUSHED

    def leave(self, texts: Texts, depth: int) -> None:
        """Close the range that ``enter`` opened, and what is still open inside it."""
        if depth == NOT_PUSHED:
            return
        try:
            while len(texts) > depth:
                del texts[-1]
                self._pop()
        except Exception as error:
            self.fault("leave", error)
            self._close(texts, depth)

    def _close(self, texts: Texts, depth: int) -> None:
        """After a fault: close what is open from ``depth`` on, and forget what the tool does not close."""
        while len(texts) > depth:
            del texts[-1]
            try:
                self._pop()
            except Exception as error:
                self.fault("close", error)

    def enter_step(self, texts: Texts, batch: Any, speculative: bool) -> int:
        """Open a step for ``batch``; in a speculative worker's decode step, its preparation too."""
        try:
            mode = batch.forward_mode
            try:
                size = len(batch.reqs)
            except (AttributeError, TypeError):
                size = batch_size(batch)
            extends = speculative and batch.is_extend_in_batch
            last = self._last
            if mode is not last.mode or size != last.size or extends != last.extends:
                last = self._last = self._step(mode, size, extends)
            last.push()
            texts.append(last.text)
            texts.drafts = drafts = speculative and not last.prefill
            now = monotonic_ns()
            self.note_step(now, size, not last.prefill, batch)
            if now >= self._next_mark:
                self._mark_clock(now)
        except Exception as error:
            self._close(texts, 0)
            texts.drafts = False
            self.fault("step", error)
            return NOT_PUSHED
        if drafts:
            self.enter(texts, PREPARE)
        return 0

    def _step(self, mode: Any, size: int, extends: bool) -> Step:
        prefill = extends or is_prefill(mode)
        text = f"{PREFILL if prefill else DECODE} bs={size}"
        if text not in self._ranges:
            self._ranges[text] = self._domain.range_of(text)
        return Step(mode, size, extends, text, self._ranges[text], prefill)

    def _mark_clock(self, now: int) -> None:
        self._next_mark = now + MARK_EVERY_NS
        if self._domain.attached:
            self._domain.mark(CLOCK_MARK, monotonic_ns())


def batch_size(batch: Any) -> int:
    """Requests in a ``ForwardBatch`` or in a batch without requests, without touching the GPU."""
    size = getattr(batch, "batch_size", None)
    return size if isinstance(size, int) else len(batch.seq_lens)


def is_prefill(mode: Any) -> bool:
    """Whether a ``ForwardMode`` reads prompts; SGLang's ``is_extend`` also counts a verify of drafted tokens."""
    return bool(mode.is_extend() and not mode.is_target_verify())
