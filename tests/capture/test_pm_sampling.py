"""Hardware counters: the process that samples them is played by a script, the files and words are the real ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from profkit.capture import pm_sampler, pm_sampling
from profkit.capture.pm_sampling import EFFORTS, PmSampling

SCRIPT = """
import sys
import numpy as np
path, interval, counters, *devices = sys.argv[1:]
print({said}, flush=True)
sys.stdin.readline()
sys.stdin.readline()
names = counters.split(",")
np.savez(
    open(path, "wb"), counters=np.array(names), time=np.array([10, 20]), device=np.array([int(devices[0])] * 2),
    counter=np.array([0, 1]), value=np.array([1.5, 2.5]),
)
"""

Played = Callable[[str], PmSampling]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    def with_words(said: str) -> PmSampling:
        program = tmp_path / "sampler.py"
        program.write_text(SCRIPT.format(said=said))
        monkeypatch.setattr(pm_sampling, "PROGRAM", program)
        sampling = PmSampling([3])
        sampling.prepare(tmp_path)
        return sampling

    return with_words


def test_samples_of_a_window_are_kept_under_nvmls_number(played: Played) -> None:
    sampling = played('"ready", counters')
    with sampling:
        pass
    assert sampling.between(0, 15) == [(10, 3, EFFORTS[0].counters[0], 1.5)]
    assert sampling.remark is None


def test_a_host_that_refuses_is_asked_once_and_says_why(played: Played, tmp_path: Path) -> None:
    sampling = played('"refused this user may not read GPU counters: run as root"')
    for _ in range(2):
        sampling.prepare(tmp_path)
        with sampling:
            pass
    assert sampling.between(0, 100) == []
    assert sampling.remark == "GPU counters are not sampled: this user may not read GPU counters: run as root"


FULL = '"ready", flush=True); [sys.stdin.readline() for _ in range(2)]; print("too much"); raise SystemExit(0'


def test_less_is_sampled_in_the_block_after_one_that_the_buffer_did_not_hold(played: Played, tmp_path: Path) -> None:
    sampling = played(FULL)
    with sampling:
        pass
    lost = "the GPU counters of a window were lost: they were more than the GPU's buffer holds"
    assert (sampling.between(0, 100), sampling.remark) == ([], f"{lost}; the next ones are sampled less")
    (tmp_path / "sampler.py").write_text(SCRIPT.format(said='"ready", counters'))
    sampling.prepare(tmp_path)
    with sampling:
        pass
    assert sampling.between(0, 15)[0][2] == EFFORTS[1].counters[0]


def test_buffers_that_never_hold_a_block_are_a_remark(played: Played, tmp_path: Path) -> None:
    sampling = played(FULL)
    for _ in EFFORTS:
        with sampling:
            pass
        sampling.prepare(tmp_path)
    assert sampling.remark is not None and sampling.remark.endswith("none are sampled any more")


def test_a_sampler_that_ends_at_once_is_a_remark(played: Played) -> None:
    assert played('""); raise SystemExit(1').remark == "GPU counters are not sampled: their sampler ended at once"


def test_a_sampler_that_dies_loses_its_samples_only(played: Played) -> None:
    sampling = played('"ready"); raise SystemExit(1')
    with sampling:
        pass
    assert sampling.between(0, 100) == []
    assert sampling.remark == "the GPU counters of a window were lost: their sampler ended early"


def test_without_gpus_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pm_sampling, "PROGRAM", tmp_path / "not there")
    sampling = PmSampling([])
    sampling.prepare(tmp_path)
    with sampling:
        pass
    assert sampling.remark is None


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


def fake_cupti(monkeypatch: pytest.MonkeyPatch, enable: Callable[[], None]) -> None:
    class Collector:
        _chip_name = "GH100"

        def __init__(self, device: int) -> None:
            self.metrics: list[str] = []

        def enable(self) -> None:
            enable()

        def configure(self, metrics: list[str], **settings: int) -> None:
            self.metrics = metrics

        def start(self) -> None: ...

        def stop(self) -> None: ...

        def decode(self, max_samples: int) -> list[Any]:
            return [SimpleNamespace(end_timestamp=5, metric_values=[float(n) for n, _ in enumerate(self.metrics)])]

    modules = {
        "cuda.bindings.driver": SimpleNamespace(cuInit=lambda flags: None),
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


def test_a_user_without_permission_is_told_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError("ERROR_INSUFFICIENT_PRIVILEGES")

    fake_cupti(monkeypatch, refuse)
    with pytest.raises(pm_sampler.RefusedError, match="NVreg_RestrictProfilingToAdminUsers=0"):
        pm_sampler.open_samplers([0], 1, list(pm_sampler.COUNTERS))


def test_without_cupti_python_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(pm_sampler.RefusedError, match=r"cupti-python>=13\.3"):
        pm_sampler.open_samplers([0], 1, list(pm_sampler.COUNTERS))


def test_what_was_sampled_is_written_as_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cupti(monkeypatch, lambda: None)
    samplers = pm_sampler.open_samplers([1], 50_000, list(pm_sampler.COUNTERS))
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
