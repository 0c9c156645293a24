"""The domain over both interfaces of the package nvtx, and over both of the PyTorch profiler."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any, ClassVar

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


class FastRange:
    """As torch's ``_RecordFunctionFast``; ``calls`` is set by the test."""

    calls: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.calls.append(f"> {self.name}")

    def __exit__(self, *raised: object) -> None:
        assert raised == (None, None, None)
        self.calls.append(f"< {self.name}")


@pytest.fixture(params=["fast", "older torch"])
def torch_domain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Domain:
    """The domain in either of torch's interfaces, its calls noted in ``FastRange.calls``."""
    monkeypatch.setattr(FastRange, "calls", [])
    fast = {"_RecordFunctionFast": FastRange} if request.param == "fast" else {}
    inside = {"torch._C._profiler": fast, "torch.profiler": {"record_function": FastRange}}
    for name, content in ({"torch": {}, "torch._C": {}} | inside).items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return open_domain("torch")


def test_ranges_of_the_profiler_say_whose_they_are(torch_domain: Domain) -> None:
    step, draft = torch_domain.range_of("step:decode bs=3"), torch_domain.range_of("draft")
    for _ in range(2):
        step()
        draft()
        torch_domain.pop()
        torch_domain.pop()
    torch_domain.mark("clock", 7)
    once = ["> profkit|step:decode bs=3", "> profkit|draft", "< profkit|draft", "< profkit|step:decode bs=3"]
    assert FastRange.calls == once * 2
    assert not torch_domain.attached


def test_each_thread_closes_its_own_range_of_the_profiler(torch_domain: Domain) -> None:
    torch_domain.range_of("step")()
    other = threading.Thread(target=lambda: (torch_domain.range_of("copy")(), torch_domain.pop()))
    other.start()
    other.join()
    torch_domain.pop()
    assert FastRange.calls == ["> profkit|step", "> profkit|copy", "< profkit|copy", "< profkit|step"]


@pytest.mark.parametrize(("recorder", "package"), [("torch", "torch._C._profiler"), ("cupti", "nvtx")])
def test_a_package_that_is_missing(recorder: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError):
        open_domain(recorder)
