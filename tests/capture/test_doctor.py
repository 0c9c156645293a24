"""``profkit doctor``: what a host can record, and what to do about the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.capture import doctor
from profkit.capture.backends import BACKENDS
from profkit.cli import main

DRIVER = SimpleNamespace(
    nvmlDeviceGetCount=lambda: 2,
    nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlDeviceGetName=lambda handle: b"NVIDIA H200",
    nvmlSystemGetDriverVersion=lambda: "580.1",
)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """A host that can record: two GPUs, nsys 2025, SGLang, and counters for everyone."""
    settings = tmp_path / "params"
    settings.write_text("RmProfilingAdminOnly: 0\n")
    monkeypatch.setattr(doctor, "nvml", lambda: contextlib.nullcontext(DRIVER))
    monkeypatch.setattr(doctor, "find_nsys", lambda: Path("/opt/nsys"))
    monkeypatch.setattr(doctor, "nsys_version", lambda nsys: (2025, 3, 1))
    monkeypatch.setattr(doctor, "find_importer", lambda nsys: Path("/opt/QdstrmImporter"))
    monkeypatch.setattr(doctor, "find_sglang", lambda: tmp_path)
    monkeypatch.setattr(doctor, "sglang_version", lambda package: "0.5.17")
    monkeypatch.setattr(doctor, "cupti_library", lambda: Path("/opt/libcupti.so.13"))
    monkeypatch.setattr(doctor, "cupti_version", lambda: "13.4.0")
    monkeypatch.setattr(doctor, "samples_counters", lambda: True)
    monkeypatch.setattr(doctor, "_has", lambda module: True)
    monkeypatch.setattr(doctor, "_version", lambda name: {"nvtx": "0.2.17"}.get(name, "2.11.0"))
    monkeypatch.setattr(doctor, "DRIVER_SETTINGS", settings)
    yield monkeypatch


def finding(what: str) -> doctor.Finding:
    return next(found for found in doctor.examine() if found.what == what)


def test_a_host_that_can_record(host: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "2 × NVIDIA H200, driver 580.1" in said and "2025.3.1 at /opt/nsys" in said and "0.5.17" in said
    assert "cupti-python 13.4.0, /opt/libcupti.so.13" in said
    assert said.splitlines()[-1] == "`profkit capture` can run here, also with --backend cupti or torch."
    assert "MISSING" not in said


def test_a_host_with_nothing(host: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host.setattr(doctor, "nvml", lambda: contextlib.nullcontext(None))
    host.setattr(doctor, "find_nsys", lambda: None)
    host.setattr(doctor, "find_sglang", lambda: None)
    host.setattr(doctor, "DRIVER_SETTINGS", Path("/nowhere/params"))
    host.setattr(doctor.shutil, "disk_usage", lambda place: SimpleNamespace(free=2**20))
    assert main(["doctor"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "`profkit capture` cannot run here yet."
    missing = [place for place, line in enumerate(lines) if line.startswith("MISSING")]
    assert len(missing) >= 4
    assert all(lines[place + 1].startswith(" ") for place in missing)  # each with its remedy


@pytest.mark.parametrize(
    ("changed", "what", "status", "says"),
    [
        ({"nsys_version": lambda nsys: (2021, 1)}, "Nsight Systems", "missing", "install nsys"),
        ({"find_importer": lambda nsys: None}, "Nsight Systems", "limited", "host tools"),
        ({"nsys_version": lambda nsys: (2023, 4)}, "NVTX", "missing", "pip install nvtx==0.2.11"),
        ({"sglang_version": lambda package: "0.5.12"}, "SGLang", "ok", ""),
        ({"cupti_version": lambda: ""}, "CUPTI", "missing", "pip install 'profkit[capture]'"),
        ({"cupti_library": lambda: None}, "CUPTI", "missing", "set $CUDA_HOME"),
        ({"samples_counters": lambda: False}, "PM sampling", "limited", "pip install 'cupti-python>=13.3'"),
        ({"_has": lambda module: module != "torch"}, "PyTorch", "missing", "it comes with SGLang"),
        ({"_has": lambda module: module != "nvtx"}, "NVTX", "missing", "profkit[capture]"),
    ],
)
def test_findings(host: pytest.MonkeyPatch, changed: dict[str, Any], what: str, status: str, says: str) -> None:
    for name, value in changed.items():
        host.setattr(doctor, name, value)
    found = finding(what)
    assert found.status == status and says in found.remedy
    lost = (
        {recorder for recorder in BACKENDS if f"--backend {recorder}" == found.for_} if status == "missing" else set()
    )
    lost = set(BACKENDS) if status == "missing" and found.for_ == "capture" else lost
    assert bool(lost) == (status == "missing")
    assert doctor.recorders_of(doctor.examine()) == [recorder for recorder in BACKENDS if recorder not in lost]


def test_the_last_line_names_the_recorders_that_would_run(
    host: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.setattr(doctor, "find_nsys", lambda: None)
    host.setattr(doctor, "cupti_version", lambda: "")
    assert main(["doctor"]) == 0
    said = "`profkit capture` can run here with --backend torch; not with nsys, its default."
    assert capsys.readouterr().out.splitlines()[-1] == said
    host.setattr(doctor, "_has", lambda module: module != "torch")
    assert main(["doctor"]) == 3


def test_counters_for_administrators_only(host: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "params").write_text("RmProfilingAdminOnly: 1\n")
    host.setattr(doctor.os, "geteuid", lambda: 1000)
    assert finding("GPU counters").status == "limited"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in finding("GPU counters").remedy
    host.setattr(doctor.os, "geteuid", lambda: 0)
    assert finding("GPU counters").status == "ok"


def test_a_driver_without_gpus(host: pytest.MonkeyPatch) -> None:
    empty = SimpleNamespace(**vars(DRIVER) | {"nvmlDeviceGetCount": lambda: 0})
    host.setattr(doctor, "nvml", lambda: contextlib.nullcontext(empty))
    assert finding("GPUs and driver").status == "missing"
