"""Windows open and close with SGLang's profiler, and nothing of them reaches the server."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.sglang.hooks import close_hook, load_hook, open_hook
from profkit.sglang.record import ProcessRecord
from profkit.sglang.windows import Windows
from profkit.traces import open_trace
from tests.sglang.cupti_host import Host, install
from tests.sglang.fake_cupti import kernel


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return install(monkeypatch)


def kept(folder: Path) -> ProcessRecord:
    return ProcessRecord(folder, "0.5.17", attached=True)


def profiler(folder: Path) -> SimpleNamespace:
    return SimpleNamespace(torch_profiler_output_dir=str(folder))


def words(record: ProcessRecord) -> list[str]:
    return [f"{fault['where']}: {fault['error']}" for fault in record.content["faults"]]


def test_hooks_around_a_profilers_window(host: Host, tmp_path: Path) -> None:
    windows, order = Windows("cupti", kept(tmp_path)), []
    loaded = SimpleNamespace(loaded=lambda runner: order.append("loaded"))

    def start(profiler: Any) -> str:
        order.append(f"start, {len(host.cupti.enabled)} kinds")
        return "started"

    def stop(profiler: Any) -> str:
        order.append(f"stop, dump {(tmp_path / 'window-1').exists()}")
        return "stopped"

    ours = profiler(tmp_path / "window-1")
    load_hook(loaded, windows)(lambda runner: None, object())  # type: ignore[arg-type]
    assert len(host.cupti.subscribers) == 1, "nodes are noted before graphs are captured"
    load_hook(loaded, windows)(lambda runner: None, object())  # type: ignore[arg-type]
    assert len(host.cupti.subscribers) == 1, "a drafter's model is a second one"
    assert open_hook(windows)(start, ours) == "started"
    assert len(host.cupti.enabled) == 8
    host.cupti.queued.append(kernel(host.names, "gemm", 1, 2, 3))
    assert close_hook(windows)(stop, ours) == "stopped"
    assert order == ["loaded", "loaded", "start, 0 kinds", "stop, dump True"]
    assert len(open_trace(tmp_path / "window-1").ops) == 1


@pytest.mark.parametrize("recorder", ["nsys", "torch"])
def test_a_recorder_from_outside_has_no_windows(recorder: str, host: Host, tmp_path: Path) -> None:
    windows = Windows(recorder, record := kept(tmp_path))
    windows.prepare()
    windows.open(profiler(tmp_path))
    windows.close()
    assert not windows.records_itself
    assert (host.cupti.subscribers, host.cupti.enabled, words(record)) == ([], {}, [])
    assert list(tmp_path.glob("*.cupti")) == []


def test_without_the_package(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)
    windows = Windows("cupti", record := kept(tmp_path))
    windows.prepare()
    windows.open(profiler(tmp_path))
    windows.close()
    (fault,) = words(record)
    assert fault.startswith("cupti: ModuleNotFoundError: ") and "cupti.cupti" in fault


def fails(*args: Any) -> None:
    raise RuntimeError("no such device")


@pytest.mark.parametrize("name", ["subscribe", "activity_enable", "activity_flush_all", "get_callback_name"])
def test_no_fault_reaches_the_server(name: str, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.cupti, name, fails)
    windows = Windows("cupti", record := kept(tmp_path))
    for folder in ("one", "two"):
        windows.prepare()
        windows.open(profiler(tmp_path / folder))
        host.cupti.queued.append(b"".join([(4).to_bytes(4, "little"), bytes(36)]))
        windows.close()
    assert words(record) == ["cupti: RuntimeError: no such device"]
    assert list(tmp_path.rglob("*.cupti")) == []


@pytest.mark.parametrize("strange", [None, object(), SimpleNamespace(torch_profiler_output_dir=None)])
def test_a_profiler_that_says_no_folder(strange: Any, host: Host, tmp_path: Path) -> None:
    windows = Windows("cupti", record := kept(tmp_path))
    windows.prepare()
    windows.open(strange)
    windows.close()
    (fault,) = words(record)
    assert fault.startswith("cupti: ")
    windows.open(profiler(tmp_path / "window-2"))
    windows.close()
    assert (tmp_path / "window-2").exists(), "the next window is a window again"


@pytest.mark.parametrize("fault", [None, RuntimeError("CUDA error")])
def test_the_end_is_noted_before_anything_is_written(
    fault: Exception | None, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the GPU is done, or cannot be waited for."""
    seen: dict[str, bool] = {}

    def look(name: str) -> None:
        seen.setdefault(name, bool(list(tmp_path.glob("ends-*.txt"))))

    def synchronize() -> None:
        look("synchronize")
        if fault:
            raise fault

    windows = Windows("cupti", kept(tmp_path), tmp_path)
    windows.prepare()
    windows.open(profiler(tmp_path / "window-1"))
    host.synchronize = synchronize
    monkeypatch.setattr(host.cupti, "activity_flush_all", lambda forced: look("flush"))
    windows.close()
    assert seen == {"synchronize": False, "flush": True}
    assert (tmp_path / "window-1").exists() == (fault is None)
    windows.close()
    (end,) = (tmp_path / f"ends-{os.getpid()}.txt").read_text().split()
    assert 0 < int(end) <= time.monotonic_ns()


def test_what_the_user_should_know(host: Host, tmp_path: Path) -> None:
    windows = Windows("cupti", record := kept(tmp_path))
    windows.prepare()
    windows.open(profiler(tmp_path / "window-1"))
    host.cupti.dropped = 3
    windows.close()
    assert record.content["remarks"] == ["CUPTI had no room for 3 records: record fewer steps"]
    assert words(record) == []
