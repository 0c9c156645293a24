"""The NVTX domain ``profkit``, over the two interfaces that the package nvtx has had."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

NAME = "profkit"

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


def open_domain() -> Domain:
    """The domain of the process. Raises ``ImportError`` where the package nvtx is missing."""
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
