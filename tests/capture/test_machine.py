"""NVML's answers, from a library that poses as pynvml with two GPUs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.capture import checks, load_settings, machine, make_plan
from profkit.traces import UsageError


class FakeError(Exception):
    """NVML cannot say."""


class NotSupportedError(FakeError):
    """Not of this GPU."""


class NoSuchLinkError(FakeError):
    """The GPU has fewer links."""


def unsupported(*_: Any) -> None:
    raise FakeError


FAKE = SimpleNamespace(
    NVMLError=FakeError, NVMLError_NotSupported=NotSupportedError, NVMLError_InvalidArgument=NoSuchLinkError,
    NVML_NVLINK_MAX_LINKS=3, NVML_FEATURE_DISABLED=0,
    NVML_P2P_CAPS_INDEX_NVLINK=2, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2,
    NVML_PCIE_UTIL_TX_BYTES=0, NVML_PCIE_UTIL_RX_BYTES=1,
    nvmlDeviceGetCount=lambda: 2,
    nvmlDeviceGetHandleByIndex=lambda i: i,
    nvmlDeviceGetUUID=lambda h: ("GPU-ab12", "GPU-cd34")[h],
    nvmlDeviceGetName=lambda h: b"NVIDIA H200",
    nvmlDeviceGetPciInfo=lambda h: SimpleNamespace(busId=f"0000000{h}:1B:00.0"),
    nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(total=1 << 37),
    nvmlDeviceGetMaxPcieLinkGeneration=lambda h: 5,
    nvmlDeviceGetMaxPcieLinkWidth=lambda h: 16,
    nvmlDeviceGetMaxClockInfo=lambda h, which: {1: 1980, 2: 3201}[which],
    nvmlDeviceGetMemoryBusWidth=lambda h: 6016,
    nvmlDeviceGetEnforcedPowerLimit=unsupported,
    nvmlDeviceGetTopologyCommonAncestor=lambda a, b: 50,
    nvmlDeviceGetP2PStatus=lambda a, b, c: 0,
    nvmlDeviceGetPcieThroughput=lambda h, which: 2000,
    nvmlDeviceGetClockInfo=lambda h, which: 1980,
    nvmlDeviceGetPowerUsage=lambda h: 350_000,
    nvmlDeviceGetCurrentClocksThrottleReasons=unsupported,
    nvmlDeviceGetUtilizationRates=lambda h: SimpleNamespace(gpu=97, memory=40),
)  # fmt: skip


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def fake() -> Iterator[Any]:
        yield FAKE

    monkeypatch.setattr(machine, "nvml", fake)


def test_description() -> None:
    known = machine.describe_machine()
    assert known["gpus"][0]["name"] == "NVIDIA H200"
    assert known["gpus"][0]["pcie_bytes_per_s"] == 16 * 3_938_000_000
    assert known["gpus"][0]["memory_bytes_per_s"] == 4_814_304_000_000, "what Nsight Systems and CUPTI say of an H200"
    assert known["gpus"][0]["power_limit_mw"] is None
    assert known["topology"] == [{"gpus": [0, 1], "pcie": "system", "nvlink": True}]


@pytest.mark.parametrize(
    ("named", "seen"),
    [
        (None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("7", []), ("0,7,1", [0]), ("-1", []), ("", []),
        ("GPU-cd", [1]), ("GPU-cd34,GPU-ab12", [1, 0]), ("GPU-ef", []), ("GPU-", []), ("MIG-1,MIG-2", [0, 1]),
    ],
)  # fmt: skip
def test_visible_gpus(named: str | None, seen: list[int]) -> None:
    assert machine.visible_gpus({} if named is None else {"CUDA_VISIBLE_DEVICES": named}) == seen


def test_the_gpus_that_a_plan_uses(tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES of the configuration counts, for the check and for the record."""
    plan = make_plan(load_settings("tp1", ["env.CUDA_VISIBLE_DEVICES=1"]), [1], tmp_path / "out")
    assert plan.devices == [1]
    assert machine.describe_machine(plan.devices)["used"] == [1]
    checks._check_gpus(plan.settings)
    with pytest.raises(UsageError, match=r"takes 2 GPU\(s\) and 1 can be seen"):
        checks._check_gpus(load_settings("ep2", ["env.CUDA_VISIBLE_DEVICES=1"]))
    with pytest.raises(UsageError, match="takes GPU 5 and 2 can be seen"):
        checks._check_gpus(load_settings("ep2", ["server.base_gpu_id=4"]))


def links_of(*gpus: list[int | FakeError]) -> Callable[[int, int], int]:
    """NVML's answer to whether a link of a GPU is active."""

    def state(gpu: int, link: int) -> int:
        said = gpus[gpu][link]
        if isinstance(said, FakeError):
            raise said
        return said

    return state


@pytest.mark.parametrize(
    ("links", "is_unlinked"),
    [
        ([0, 0, 0], True), ([0, 0, NoSuchLinkError()], True), ([NotSupportedError()] * 3, True),
        ([0, 1, 0], False), ([NotSupportedError(), 1, 0], False), ([0, FakeError(), 0], False),
    ],
)  # fmt: skip
def test_gpus_without_nvlink(links: list[int | FakeError], is_unlinked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself; a driver that cannot tell is no reason to leave its counters out."""
    monkeypatch.setattr(FAKE, "nvmlDeviceGetNvLinkState", links_of(links, [1, 1, 1]), raising=False)
    assert machine.without_nvlink([1, 0]) == ([0] if is_unlinked else [])
    monkeypatch.setattr(FAKE, "nvmlDeviceGetNvLinkState", links_of([1, 1, 1], links))
    assert machine.without_nvlink([0, 1]) == ([1] if is_unlinked else [])


def test_a_gpu_that_nvml_does_not_find_may_have_nvlink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAKE, "nvmlDeviceGetHandleByIndex", unsupported)
    assert machine.without_nvlink([0]) == []


def test_samples_of_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PERIOD_S", 0.01)
    began = time.time_ns()
    with machine.Sampler([0, 1]) as sampler:
        time.sleep(0.2)
    rows = sampler.between(began, time.time_ns())
    assert {row[1] for row in rows} == {0, 1}
    last = {row[2]: row[3] for row in rows}
    assert last == {
        "pcie_tx_bytes_per_s": 2e6, "pcie_rx_bytes_per_s": 2e6, "sm_clock_mhz": 1980.0, "memory_clock_mhz": 1980.0,
        "power_w": 350.0, "gpu_utilisation_percent": 97.0, "memory_utilisation_percent": 40.0,
    }  # fmt: skip
    assert sampler.between(0, began - 1) == []
