"""``profkit doctor``: what a host can record, and what to do about the rest."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import profkit
from profkit.capture import cupti, doctor, plugin, served_plugin
from profkit.capture.backends import BACKENDS
from profkit.capture.plugin import TARGET
from profkit.capture.served_plugin import EntryPoint
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
    monkeypatch.setattr(doctor, "sampling_lacks", lambda: "")
    monkeypatch.setattr(doctor, "loads_plugins", lambda package: True)
    monkeypatch.setattr(doctor, "served_plugin", lambda environment: [EntryPoint(TARGET)])
    monkeypatch.delenv("SGLANG_PLUGINS", raising=False)
    monkeypatch.setattr(doctor, "_has", lambda module: True)
    monkeypatch.setattr(doctor, "_version", lambda name: "2.11.0")
    monkeypatch.setattr(doctor, "nvtx_version", lambda: "0.2.17")
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
        (
            {"sampling_lacks": lambda: "cupti-python 13.0.1 does not sample them"},
            "PM sampling",
            "limited",
            "pip install 'cupti-python>=13.3' cuda-bindings",
        ),
        ({"loads_plugins": lambda package: False}, "profkit's plugin", "limited", "install SGLang 0.5.12 or newer"),
        ({"served_plugin": lambda environment: []}, "profkit's plugin", "limited", "pip install profkit"),
        ({"served_plugin": lambda environment: [EntryPoint("old:go")]}, "profkit's plugin", "limited", "names old:go"),
        (
            {"served_plugin": lambda environment: [EntryPoint(TARGET, "ImportError: x")]},
            "profkit's plugin",
            "limited",
            "pip install 'profkit[capture]'",
        ),
        ({"is_installed": lambda: False}, "profkit's plugin", "ok", ""),
        ({"_has": lambda module: module != "torch"}, "PyTorch", "missing", "it comes with SGLang"),
        ({"nvtx_version": lambda: ""}, "NVTX", "missing", "profkit[capture]"),
    ],
)
def test_findings(host: pytest.MonkeyPatch, changed: dict[str, Any], what: str, status: str, says: str) -> None:
    for name, value in changed.items():
        host.setattr(doctor, name, value)
    found = finding(what)
    assert found.status == status and says in found.remedy
    lost = set(found.for_.removeprefix("--backend ").split(",")) if status == "missing" else set()
    assert lost <= set(BACKENDS) and bool(lost) == (status == "missing")
    assert doctor.recorders_of(doctor.examine()) == [recorder for recorder in BACKENDS if recorder not in lost]


def test_the_last_line_names_the_recorders_that_would_run(
    host: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.setattr(doctor, "find_nsys", lambda: None)
    host.setattr(doctor, "cupti_version", lambda: "")
    several = "`profkit capture --backend torch,cupti,nsys` cannot run here with cupti and nsys; it can with"
    for options, status, said in (
        ([], 3, "`profkit capture` cannot run here with nsys, its default; it can with --backend torch."),
        (["--backend", "torch"], 0, "`profkit capture --backend torch` can run here."),
        (["--backend", "torch, cupti,nsys"], 3, f"{several} --backend torch."),
    ):
        assert main(["doctor", *options]) == status
        assert capsys.readouterr().out.splitlines()[-1] == said
    host.setattr(doctor, "_has", lambda module: module != "torch")
    assert main(["doctor", "--backend", "torch"]) == 3
    assert capsys.readouterr().out.splitlines()[-1] == "`profkit capture --backend torch` cannot run here yet."


def test_torch_alone_needs_no_nvtx(host: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host.setattr(doctor, "nvtx_version", lambda: "")
    assert main(["doctor", "--backend", "torch"]) == 0
    assert "without it: no --backend nsys,cupti; pip install 'profkit[capture]'" in capsys.readouterr().out
    assert main(["doctor", "--backend", "cupti"]) == main(["doctor"]) == 3


@pytest.mark.parametrize("backend", ["perf", "", ",", "nsys,"])
def test_a_recorder_that_there_is_not(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--backend", backend]) == 2
    assert "--backend" in (said := capsys.readouterr().err) and said.count("\n") == 1


def test_findings_as_json(host: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host.setattr(doctor, "find_nsys", lambda: None)
    assert main(["doctor", "--json", "--backend", "cupti"]) == 0
    said = json.loads(capsys.readouterr().out)
    found = {entry["what"]: entry for entry in said.pop("findings")}
    assert said == {
        "schema": "profkit.doctor/1", "asked": ["cupti"], "can_capture": True, "recorders": ["cupti", "torch"]
    }  # fmt: skip
    assert found["SGLang"] == {"what": "SGLang", "status": "ok", "found": "0.5.17", "for": None, "remedy": None}
    assert (found["Nsight Systems"]["status"], found["Nsight Systems"]["for"]) == ("missing", "--backend nsys")
    assert main(["doctor", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["can_capture"] is False


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_without_the_extra(
    option: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == "profkit.capture" or name.startswith("profkit.capture.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("profkit.capture", raising=False)
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert main(["doctor", *option]) == 3
    said = capsys.readouterr().out
    assert "psutil is not installed" in said and "pip install 'profkit[capture]'" in said
    assert not option or json.loads(said)["findings"][0]["status"] == "missing"


def test_whatever_is_amiss_has_a_remedy(host: pytest.MonkeyPatch) -> None:
    """On a host that has nothing at all."""
    host.setattr(doctor, "nvml", lambda: contextlib.nullcontext(None))
    host.setattr(doctor, "DRIVER_SETTINGS", Path("/nowhere/params"))
    host.setattr(doctor.shutil, "disk_usage", lambda place: SimpleNamespace(free=2**20))
    absent: dict[str, Any] = {"find_nsys": None, "find_sglang": None, "cupti_version": "", "nvtx_version": ""}
    for name, value in absent.items():
        host.setattr(doctor, name, lambda value=value: value)
    host.setattr(doctor, "_has", lambda module: False)
    host.setattr(doctor, "served_plugin", lambda environment: [])
    host.setattr(doctor, "sampling_lacks", lambda: "the package cupti is not installed")
    found = doctor.examine()
    assert all(one.status != "ok" and one.remedy and one.for_ for one in found), found


@pytest.mark.parametrize(
    ("named", "status"), [("", "ok"), (" , ", "ok"), ("other, profkit", "ok"), ("other", "limited")]
)
def test_plugins_restricted_by_name(named: str, status: str, host: pytest.MonkeyPatch) -> None:
    host.setenv("SGLANG_PLUGINS", named)
    assert finding("profkit's plugin").status == status
    assert status == "ok" or "export SGLANG_PLUGINS=other,profkit" in finding("profkit's plugin").remedy


def test_the_plugin_is_looked_for_in_a_process_like_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another package has taken its name, and where profkit is not installed but on PYTHONPATH."""
    monkeypatch.setattr(plugin, "is_installed", lambda: False)
    found = served_plugin.served_plugin({"PATH": os.defpath})
    assert EntryPoint(TARGET) in found and {one.value for one in found} == {TARGET}
    stranger = tmp_path / "stranger-1.dist-info"
    stranger.mkdir()
    (stranger / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (stranger / "entry_points.txt").write_text("[sglang.srt.plugins]\nprofkit = stranger:go\n")
    (tmp_path / "stranger.py").write_text("raise RuntimeError('no')")
    found = served_plugin.served_plugin({"PATH": os.defpath, "PYTHONPATH": str(tmp_path)})
    assert EntryPoint("stranger:go", "RuntimeError: no") in found
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(OSError, match="this Python does not say what is installed"):
        served_plugin.served_plugin({})


def test_which_sglang_loads_plugins(tmp_path: Path) -> None:
    assert not served_plugin.loads_plugins(tmp_path)
    (tmp_path / "srt" / "plugins").mkdir(parents=True)
    (tmp_path / "srt" / "plugins" / "__init__.py").touch()
    assert served_plugin.loads_plugins(tmp_path)


def test_the_servers_path_names_each_folder_once(tmp_path: Path) -> None:
    root = str(Path(profkit.__file__).resolve().parents[1])
    environment = {"PYTHONPATH": os.pathsep.join([root, "/a", "/b", "/a"])}
    path = plugin.plugin_environment(environment, tmp_path, tmp_path)["PYTHONPATH"].split(os.pathsep)
    assert path[-3:] == [root, "/a", "/b"]


@pytest.mark.parametrize(
    ("version", "modules", "lacks"),
    [
        ("", ("pm_sampling", "profiler_host"), "the package cupti is not installed"),
        ("13.2.9", ("pm_sampling", "profiler_host"), "cupti-python 13.2.9 does not sample them"),
        ("9.9", ("pm_sampling", "profiler_host"), "cupti-python 9.9 does not sample them"),
        ("13.3.0", ("pm_sampling",), "cupti-python 13.3.0 has no profiler_host"),
        ("14", (), "cupti-python 14 has no pm_sampling and no profiler_host"),
        ("13.10.1", ("pm_sampling", "profiler_host"), ""),
        ("unknown release", ("pm_sampling", "profiler_host"), ""),
    ],
)
def test_what_pm_sampling_needs(
    version: str, modules: tuple[str, ...], lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cupti", "cuda/bindings"):
        (tmp_path / name).mkdir(parents=True)
    for module in modules:
        (tmp_path / "cupti" / f"{module}.cpython-311-x86_64-linux-gnu.so").touch()
    (tmp_path / "cupti" / "pm_sampling_old.py").touch()
    places = {"cupti": [str(tmp_path / "cupti")], "cuda": [str(tmp_path / "cuda")]}
    monkeypatch.setattr(
        cupti.importlib.util, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=places.get(name))
    )
    monkeypatch.setattr(cupti, "cupti_version", lambda: version)
    assert cupti.sampling_lacks() == lacks
    (tmp_path / "cuda" / "bindings").rmdir()
    assert cupti.sampling_lacks() == (lacks or "the package cuda.bindings is not installed")


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
