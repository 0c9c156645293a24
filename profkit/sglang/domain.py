"""The domain ``profkit``: in NVTX, over the two interfaces that its package has had, or in the PyTorch profiler."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

NAME = "profkit"
SEPARATOR = "|"

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Domain:
    """``range_of(text)`` is the call that pushes a range of that text, made once for each; ``pop`` closes the last.

    ``mark(text, payload)`` sets a mark. ``attached`` is false where no tool listens; nvtx from 0.2.13 decides that
    when the domain is made.
    """

    range_of: Callable[[str], Call]
    pop: Call
    mark: Callable[[str, int], Any]
    attached: bool


def open_domain(recorder: str) -> Domain:
    """The domain in which ``recorder`` looks. Raises ``ImportError`` where the package nvtx, or torch, is missing."""
    return _torch_domain() if recorder == "torch" else _nvtx_domain()


class _OpenRanges(threading.local):
    def __init__(self) -> None:
        self.ranges: list[Any] = []


def _torch_domain() -> Domain:
    """Ranges as records of the PyTorch profiler, which has no domains: the name says which one it is."""
    profiler = importlib.import_module("torch._C._profiler")
    range_type = getattr(profiler, "_RecordFunctionFast", None)
    range_type = range_type or importlib.import_module("torch.profiler").record_function
    opened = _OpenRanges()

    def push(text: str) -> None:
        one = range_type(f"{NAME}{SEPARATOR}{text}")
        one.__enter__()
        opened.ranges.append(one)

    def pop() -> None:
        opened.ranges.pop().__exit__(None, None, None)

    return Domain(lambda text: partial(push, text), pop, lambda text, payload: None, attached=False)


def _nvtx_domain() -> Domain:
    nvtx = importlib.import_module("nvtx")
    domain = nvtx.get_domain(NAME)
    attributes = domain.get_event_attributes
    if hasattr(domain, "push_range"):
        return Domain(
            lambda text: partial(domain.push_range, attributes(message=text)),
            domain.pop_range,
            lambda text, payload: domain.mark(attributes(message=text, payload=payload)),
            attached=type(domain).__name__ != "DummyDomain",
        )
    library, handle = importlib.import_module("nvtx._lib"), domain.handle
    return Domain(
        lambda text: partial(library.push_range, attributes(message=text), handle),
        partial(library.pop_range, handle),
        lambda text, payload: library.mark(attributes(message=text, payload=payload), handle),
        attached=True,
    )
