"""What a late host did, and what to do about it, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .host_time import WAITS, host_time
from .view import View
from .words import launching

REMEDIES = (
    (r"Malloc|MemAlloc|MemCreate|MemMap", "allocate before serving, or let the allocator keep what it has"),
    (r"Free|MemUnmap|MemRelease", "let the allocator keep its memory, as giving it back waits for the GPU"),
    (
        r"Module|Library|FuncGet|Loading|Compiler",
        "load modules before serving, by running every shape once",
    ),
)
"""What to do about calls, by parts of their names."""

OF_CUDA = re.compile(r"driver compiler|(module|function) loading|command buffer full", re.IGNORECASE)
"""What CUPTI calls overhead and the application would have without a recorder too."""


@dataclass(frozen=True, slots=True)
class HostWords:
    """Where a host's time went: its phase, ``in Python between steps``, and advice.

    ``doing`` is ``None`` where nothing is known beyond the part.
    """

    phase: str
    doing: str | None
    advice: str


def host_words(view: View, device: int, part: str, phase: str) -> HostWords:
    """What the host of ``device`` did in ``part``, which it mostly spent before it launched ``phase``."""
    if part not in WAITS:
        return HostWords(phase, None, view.advice_for_host(part))
    time = host_time(view.attribution, device)
    if time.overhead and not OF_CUDA.search(time.overhead):
        doing = f"in {time.overhead}, the recorder's own work"
        return HostWords(phase, doing, "that time is not the engine's, so judge by the steps without it")
    call = re.sub(r"_v\d+$", "", time.dearest_call or "") if part == "gap_api" else ""
    call = call or time.overhead or ""
    named = call and not re.search(r"Launch(?!HostFunc)", call)
    if time.is_between_steps:
        where = {"gap_api": "CUDA calls", "gap_sync": "blocking calls"}.get(part, "Python")
        doing = f"in {call if named else where} between steps"
        advice = "look at what the scheduler does there, and whether it had requests to serve"
        return HostWords("outside", doing, _remedy(call, advice) if named else advice)
    if named:
        doing = f"in {call} while {launching(phase)}"
        return HostWords(phase, doing, _remedy(call, "look at why it is called there"))
    return HostWords(phase, None, view.advice_for_host(part))


def _remedy(call: str, otherwise: str) -> str:
    return next((advice for pattern, advice in REMEDIES if re.search(pattern, call)), otherwise)
