"""A process in which CUPTI can be recorded: the fake module, library and torch, in small buffers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from profkit.sglang import cupti_buffers, cupti_recorder
from tests.sglang.fake_cupti import Cupti, Library, Names


def _nothing() -> None:
    return None


@dataclass
class Host:
    """What a test plays with; ``synchronize`` is torch's."""

    cupti: Cupti
    library: Library
    names: Names = field(default_factory=Names)
    synchronize: Callable[[], None] = _nothing

    def properties(self, number: int) -> Any:
        """As torch 2.9 has them: an H200 with 132 multiprocessors."""
        return SimpleNamespace(
            name="NVIDIA H200", multi_processor_count=132, memory_clock_rate=3_201_000, memory_bus_width=6144,
            pci_domain_id=0, pci_bus_id=0x19 + number, pci_device_id=0,
        )  # fmt: skip


def install(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Put the fakes where profkit looks for the real ones."""
    library = Library()
    host = Host(Cupti(library), library)
    cuda = SimpleNamespace(
        synchronize=lambda: host.synchronize(), get_device_properties=lambda number: host.properties(number)
    )
    torch = ModuleType("torch")
    torch.cuda = cuda  # type: ignore[attr-defined]
    for name, module in {"cupti": ModuleType("cupti"), "cupti.cupti": host.cupti, "torch": torch}.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    monkeypatch.setattr(cupti_recorder, "library", lambda: library)
    monkeypatch.setattr(cupti_buffers, "SIZE", 1 << 10)
    monkeypatch.setattr(cupti_buffers, "PREPARED", 2)
    return host
