"""The NVTX domain over both interfaces of the package nvtx."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from profkit.sglang.domain import Domain, open_domain


class Domain13:
    """As of nvtx 0.2.13: the domain pushes."""

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self.calls = calls

    def get_event_attributes(self, message: str | None = None, payload: int | None = None) -> str:
        return f"{message}/{payload}"

    def push_range(self, attributes: str) -> None:
        self.calls.append(("push", attributes))

    def pop_range(self) -> None:
        self.calls.append(("pop",))

    def mark(self, attributes: str) -> None:
        self.calls.append(("mark", attributes))


class DummyDomain(Domain13):
    """As of nvtx 0.2.13, where no tool listens."""


class Domain11:
    """Up to nvtx 0.2.11: functions of the library take the domain's handle."""

    handle = "handle"
    get_event_attributes = Domain13.get_event_attributes


def opened(monkeypatch: pytest.MonkeyPatch, domain: object, **library: object) -> Domain:
    nvtx = ModuleType("nvtx")
    nvtx.get_domain = lambda name: domain  # type: ignore[attr-defined]
    inner = ModuleType("nvtx._lib")
    vars(inner).update(library)
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    monkeypatch.setitem(sys.modules, "nvtx._lib", inner)
    return open_domain("nsys")


def play(domain: Domain) -> None:
    domain.range_of("draft")()
    domain.pop()
    domain.mark("clock", 7)


@pytest.mark.parametrize(("kind", "attached"), [(Domain13, True), (DummyDomain, False)])
def test_a_domain_that_pushes(monkeypatch: pytest.MonkeyPatch, kind: type[Domain13], attached: bool) -> None:
    calls: list[tuple[Any, ...]] = []
    domain = opened(monkeypatch, kind(calls))
    play(domain)
    assert calls == [("push", "draft/None"), ("pop",), ("mark", "clock/7")]
    assert domain.attached is attached


def test_a_library_that_pushes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    library = {
        f"{name}": lambda *args, name=name: calls.append((name, *args)) for name in ("push_range", "pop_range", "mark")
    }
    domain = opened(monkeypatch, Domain11(), **library)
    play(domain)
    assert calls == [("push_range", "draft/None", "handle"), ("pop_range", "handle"), ("mark", "clock/7", "handle")]
    assert domain.attached
