"""The process that samples hardware counters, on a cupti-python that is played: its words, its file."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from profkit.capture import pm_sampler
from profkit.capture.pm_efforts import EFFORTS
from profkit.capture.pm_sampling import PmSampling


class Host:
    """cupti-python's host profiler on a chip that has PCIe and SM counters, the SM's only by their second name."""

    HAS = ("PCI.TriageCompute.pcie__read_bytes.sum.per_second", "sm__cycles_active.avg.pct_of_peak_sustained_elapsed")

    def __init__(self, chip: str, kind: str) -> None:
        self.alive = False

    def initialize(self) -> None:
        self.alive = True

    def deinitialize(self) -> None:
        self.alive = False

    def create_config_image(self, metrics: list[str]) -> list[str]:
        if any(metric not in self.HAS for metric in metrics):
            raise RuntimeError("ERROR_INVALID_PARAMETER (1)")
        return metrics


def test_the_counters_that_the_chip_has_are_sampled() -> None:
    module = SimpleNamespace(
        ProfilerHost=Host, ProfilerType=SimpleNamespace(PM_SAMPLING=0), get_num_of_passes=lambda image: 1
    )
    found = pm_sampler.metrics_in_one_pass(module, "GH100", list(pm_sampler.COUNTERS))
    assert found == {"pm_pcie_read_bytes_per_s": Host.HAS[0], "pm_sm_active_percent": Host.HAS[1]}


def test_counters_that_need_a_second_pass_are_left_out() -> None:
    module = SimpleNamespace(
        ProfilerHost=Host, ProfilerType=SimpleNamespace(PM_SAMPLING=0), get_num_of_passes=lambda image: len(image)
    )
    assert list(pm_sampler.metrics_in_one_pass(module, "GH100", list(pm_sampler.COUNTERS))) == [
        "pm_pcie_read_bytes_per_s"
    ]


def fake_cupti(monkeypatch: pytest.MonkeyPatch, status: object = 0, **failing: Exception) -> None:
    """The modules that the sampler imports; the collector's methods named in ``failing`` raise."""

    class Collector:
        _chip_name = "GH100"

        def __init__(self, device: int) -> None:
            self.metrics: list[str] = []

        def enable(self) -> None: ...

        def configure(self, metrics: list[str], **settings: int) -> None:
            self.metrics = metrics

        def start(self) -> None: ...

        def stop(self) -> None: ...

        def decode(self, max_samples: int) -> list[Any]:
            return [SimpleNamespace(end_timestamp=5, metric_values=[float(n) for n, _ in enumerate(self.metrics)])]

    def raising(error: Exception) -> Callable[..., None]:
        def method(*args: object, **settings: object) -> None:
            raise error

        return method

    for name, error in failing.items():
        setattr(Collector, name, raising(error))
    modules = {
        "cuda.bindings.driver": SimpleNamespace(cuInit=lambda flags: (status,)),
        "cupti.cupti": SimpleNamespace(get_timestamp=lambda: 0),
        "cupti.pm_sampling": SimpleNamespace(Collector=Collector),
        "cupti.profiler_host": SimpleNamespace(
            ProfilerHost=Host, ProfilerType=SimpleNamespace(PM_SAMPLING=0), get_num_of_passes=lambda image: 1
        ),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    for package in ("cuda", "cuda.bindings", "cupti"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))


def said(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[int, list[str]]:
    """What the sampler's process would say and end with, of a window that opens and ends at once."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n"))
    voice = io.StringIO()
    status = pm_sampler.main([str(folder / "counters.npz"), "50000", "0=pm_pcie_read_bytes_per_s"], voice)
    return status, voice.getvalue().splitlines()


READY = "ready pm_pcie_read_bytes_per_s"


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        ({}, [READY, "sampling", "written"]),
        (
            {"enable": PermissionError("ERROR_INSUFFICIENT_PRIVILEGES")},
            [
                "refused this user may not read GPU counters: run as root, or load the driver with "
                "NVreg_RestrictProfilingToAdminUsers=0"
            ],
        ),
        ({"__init__": OSError("gone")}, ["failed PM sampling of GPU 0 cannot be opened (OSError: gone)"]),
        ({"enable": KeyError("x")}, ["failed PM sampling of GPU 0 cannot be opened (KeyError: 'x')"]),
        (
            {"configure": RuntimeError("a line\nand another")},
            ["failed PM sampling of GPU 0 cannot be configured (RuntimeError: a line and another)"],
        ),
        ({"start": OSError("busy")}, [READY, "failed PM sampling of GPU 0 does not start (OSError: busy)"]),
        ({"stop": OSError("busy")}, [READY, "sampling", "failed PM sampling of GPU 0 does not stop (OSError: busy)"]),
        (
            {"decode": ValueError("?")},
            [READY, "sampling", "failed the samples of GPU 0 cannot be decoded (ValueError: ?)"],
        ),
        ({"decode": MemoryError()}, [READY, "sampling", "too much"]),
        ({"status": 100}, ["failed the CUDA driver does not start (cuInit: 100)"]),
    ],
)
def test_the_sampler_never_ends_without_a_word(
    failing: dict[str, Any], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cupti(monkeypatch, **failing)
    status, lines = said(monkeypatch, tmp_path)
    assert lines == words
    assert status == int(words[-1].startswith("failed"))


def test_samples_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cupti(monkeypatch)
    status, lines = said(monkeypatch, tmp_path / "gone")
    assert (status, lines[:2]) == (1, [READY, "sampling"])
    assert lines[2].startswith("failed the samples cannot be written (FileNotFoundError: ")


DRIVER = "def cuInit(flags):\n    print('noise of a library', flush=True)\n    return (0,)\n"
COLLECTOR = """
import time
from types import SimpleNamespace

class Collector:
    _chip_name = "GH100"

    def __init__(self, device): pass
    def enable(self): pass
    def configure(self, metrics, sampling_interval, hardware_buffer_size): self.metrics = metrics
    def start(self): self.began = time.time_ns()
    def stop(self): self.ended = time.time_ns()

    def decode(self, max_samples):
        print("more noise")
        return [SimpleNamespace(end_timestamp=at, metric_values=[1.0] * 2) for at in (self.began, self.ended)]
"""
HOST = f"""
class ProfilerType:
    PM_SAMPLING = 0

class ProfilerHost:
    def __init__(self, chip, kind): pass
    def initialize(self): pass
    def deinitialize(self): pass

    def create_config_image(self, metrics):
        if not set(metrics) <= set({Host.HAS!r}):
            raise RuntimeError("ERROR_INVALID_PARAMETER")

def get_num_of_passes(image):
    return 1
"""


def test_the_real_process_samples_within_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, with NVIDIA's packages played on disk; what they print is not taken for its words."""
    files = {
        "cuda/bindings/driver.py": DRIVER, "cupti/cupti.py": "def get_timestamp():\n    return 0\n",
        "cupti/pm_sampling.py": COLLECTOR, "cupti/profiler_host.py": HOST,
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sampling = PmSampling([0, 2])
    for _ in range(2):
        sampling.prepare(tmp_path)
        before = time.time_ns()
        with sampling:
            time.sleep(0.5)
            inside = time.time_ns()
        assert sampling.remarks == []
        rows = [row for row in sampling.rows if before <= row[0] <= time.time_ns()]
        assert len(rows) == 8 and {row[1] for row in rows} == {0, 2}
        assert {row[2] for row in rows} == {"pm_pcie_read_bytes_per_s", "pm_sm_active_percent"}
        assert min(row[0] for row in rows) < inside <= max(row[0] for row in rows)
        assert sampling.interval_ns == EFFORTS[0].interval_ns


def test_the_real_process_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library prints does not get between its words."""
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "__init__.py").write_text('print("a banner", flush=True)\nraise ImportError("no libcuda.so")')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sampling = PmSampling([0])
    sampling.prepare(tmp_path)
    assert sampling.remarks == [
        "GPU counters are not sampled: no libcuda.so: pip install 'cupti-python>=13.3' cuda-bindings"
    ]
    assert (tmp_path / "counters.log").read_text() == "a banner\n"


def test_without_cupti_python_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(pm_sampler.RefusedError, match=r"cupti-python>=13\.3"):
        pm_sampler.open_samplers(1, {0: list(pm_sampler.COUNTERS)})


def test_what_was_sampled_is_written_as_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cupti(monkeypatch)
    samplers = pm_sampler.open_samplers(50_000, {1: list(pm_sampler.COUNTERS)})
    before = time.time_ns()
    for sampler in samplers:
        sampler.start()
        sampler.stop()
    pm_sampler.write_samples(tmp_path / "counters.npz", samplers)
    with np.load(tmp_path / "counters.npz", allow_pickle=False) as found:
        assert found["counters"].tolist() == ["pm_pcie_read_bytes_per_s", "pm_sm_active_percent"]
        assert found["time"].tolist() == [5, 5]
        assert found["device"].tolist() == [1, 1]
        assert found["counter"].tolist() == [0, 1]
        assert found["value"].tolist() == [0.0, 1.0]
        assert found["devices"].tolist() == [1]
        (bracket,) = found["brackets"].tolist()
    assert len(bracket) == 4 and bracket == sorted(bracket)
    assert before <= bracket[0] and bracket[3] <= time.time_ns()
