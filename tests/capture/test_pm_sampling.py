"""Hardware counters: the process that samples them is played by a script, the files and words are the real ones."""

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

from profkit.capture import pm_sampler, pm_sampling
from profkit.capture.pm_efforts import ACTIVITY, EFFORTS, EVERYTHING, LINKS, Effort
from profkit.capture.pm_sampling import PmSampling
from profkit.capture.secrets import Scrubber

SCRIPT = """
import functools, os, signal, sys, time
import numpy as np
path, interval, *gpus = sys.argv[1:]
counters = gpus[0].split('=')[1]
print(interval, *gpus, file=open(path.replace('counters.npz', 'asked'), 'a'))
say = functools.partial(print, flush=True)
{does}
sys.stdin.readline()
{begins}
sys.stdin.readline()
names, now = counters.split(","), time.time_ns()
np.savez(
    open(path, "wb"), counters=np.array(names), time=np.array([now - 10, now]) + {ahead}, device=np.array([3, 3]),
    counter=np.array([0, 1]), value=np.array([1.5, 2.5]), devices=np.array([3]),
    brackets=np.array([[now - 10 - 2_000_000, now - 10, now, now + 2_000_000]]),
)
print("written", flush=True)
"""

WORKS = 'say("ready", counters)'
HANGS = 'print("busy", file=sys.stderr, flush=True); time.sleep(60)'

SAMPLES = 'say("sampling")'

Played = Callable[..., PmSampling]


def script(does: str, begins: str = SAMPLES, ahead: int = 0) -> str:
    """A sampler whose clock is ``ahead`` of UTC."""
    return SCRIPT.format(does=does, begins=begins, ahead=ahead)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    def acting(does: str, begins: str = SAMPLES, ahead: int = 0) -> PmSampling:
        program = tmp_path / "sampler.py"
        program.write_text(script(does, begins, ahead))
        monkeypatch.setattr(pm_sampling, "PROGRAM", program)
        sampling = PmSampling([3], Scrubber({}))
        sampling.prepare(tmp_path)
        return sampling

    return acting


def test_samples_of_a_window_are_kept_under_nvmls_number(played: Played) -> None:
    sampling = played(WORKS)
    with sampling:
        pass
    now = time.time_ns()
    assert [(row[1:], now - row[0] < 1e9) for row in sampling.rows] == [
        ((3, EFFORTS[0].counters[0], 1.5), True),
        ((3, EFFORTS[0].counters[1], 2.5), True),
    ]
    assert (sampling.remarks, sampling.interval_ns, sampling.clock_error_ns) == ([], EFFORTS[0].interval_ns, None)


def test_a_host_that_refuses_is_asked_once_and_says_why(played: Played, tmp_path: Path) -> None:
    sampling = played('say("refused this user may not read GPU counters: run as root")')
    for _ in range(2):
        sampling.begin_anew()
        sampling.prepare(tmp_path)
        with sampling:
            pass
        (tmp_path / "sampler.py").write_text(script(WORKS))
    assert (sampling.rows, sampling.interval_ns) == ([], None)
    assert sampling.remarks == ["GPU counters are not sampled: this user may not read GPU counters: run as root"]


FULL = "say('ready'); sys.stdin.readline(); say('sampling'); sys.stdin.readline(); say('too much'); sys.exit()"


def asked(folder: Path) -> list[Effort]:
    """What each sampler was asked for."""
    lines = (line.split() for line in (folder / "asked").read_text().splitlines())
    return [Effort(tuple(first.partition("=")[2].split(",")), int(interval)) for interval, first, *_ in lines]


def test_less_is_sampled_of_a_server_after_a_window_that_the_buffer_did_not_hold(
    played: Played, tmp_path: Path
) -> None:
    """And all again of the next server."""
    sampling = played(FULL)
    with sampling:
        pass
    lost = "the GPU counters of a window were lost: they were more than the GPU's buffer holds"
    assert (sampling.rows, sampling.remarks) == ([], [f"{lost}; the next ones of this server are sampled less"])
    (tmp_path / "sampler.py").write_text(script(WORKS))
    for _ in range(2):
        sampling.prepare(tmp_path)
        with sampling:
            pass
        sampling.begin_anew()
    assert asked(tmp_path) == [EFFORTS[0], EFFORTS[1], EFFORTS[0]]
    assert len(sampling.rows) == 2


def test_buffers_that_never_hold_a_block_are_a_remark(played: Played, tmp_path: Path) -> None:
    sampling = played(FULL)
    for _ in EFFORTS:
        with sampling:
            pass
        sampling.prepare(tmp_path)
    assert sampling.remarks[-1].endswith("this server's are sampled no more")


FEWER = (*LINKS, *ACTIVITY)
WHILE = 20_000_000
"""How long the played samplers below sample."""


def silent(when: str) -> str:
    """A sampler whose GPUs give no sample ``when`` it is told what to sample; nothing fails."""
    return f"""
asked = {{int(gpu): counters.split(",") for gpu, counters in (one.split("=") for one in gpus)}}
heard = [gpu for gpu, counters in asked.items() if not ({when})]
say("ready"); sys.stdin.readline(); say("sampling"); sys.stdin.readline()
now = time.time_ns()
np.savez(
    open(path, "wb"), counters=np.array(counters.split(",")), time=np.full(len(heard), now), device=np.array(heard),
    counter=np.zeros(len(heard), int), value=np.ones(len(heard)), devices=np.array(list(asked)),
    brackets=np.array([[now - {WHILE}] * 2 + [now] * 2] * len(asked)),
)
say("written"); sys.exit()
"""


def blocks(sampling: PmSampling, folder: Path, count: int) -> list[set[int]]:
    """The GPUs that each of ``count`` more blocks has samples of, in servers of their own."""
    found = []
    for _ in range(count):
        sampling.begin_anew()
        sampling.prepare(folder)
        with sampling:
            pass
        assert sampling.rows or not sampling.remarks or sampling.interval_ns is None
        found.append({row[1] for row in sampling.rows})
    return found


def asked_of_each(folder: Path) -> list[dict[int, tuple[str, ...]]]:
    """What each sampler was to sample of each GPU."""
    lines = (line.split()[1:] for line in (folder / "asked").read_text().splitlines())
    pairs = ([one.split("=") for one in line] for line in lines)
    return [{int(gpu): tuple(counters.split(",")) for gpu, counters in line} for line in pairs]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PmSampling]:
    def acting(does: str, gpus: list[int], unlinked: tuple[int, ...] = ()) -> PmSampling:
        (tmp_path / "sampler.py").write_text(script(does))
        monkeypatch.setattr(pm_sampling, "PROGRAM", tmp_path / "sampler.py")
        return PmSampling(gpus, unlinked=unlinked)

    return acting


def test_a_gpu_without_nvlink_is_not_asked_for_its_counters(served: Callable[..., PmSampling], tmp_path: Path) -> None:
    """The other GPUs of the host are; nothing is to be said of it."""
    sampling = served(silent("gpu == 3 and len(counters) > 6"), [0, 3], (3,))
    assert blocks(sampling, tmp_path, 1) == [{0, 3}]
    assert asked_of_each(tmp_path) == [{0: EVERYTHING, 3: FEWER}]
    assert sampling.remarks == []


def test_without_nvlink_a_full_buffer_is_not_asked_for_the_same_again(played: Played, tmp_path: Path) -> None:
    played(FULL).end()
    (tmp_path / "asked").unlink()
    sampling = PmSampling([3], unlinked=[3])
    for _ in EFFORTS:
        sampling.prepare(tmp_path)
        with sampling:
            pass
    assert asked(tmp_path) == [effort for effort in EFFORTS if effort.counters != EVERYTHING]


def test_a_gpu_without_any_sample_is_asked_for_fewer_counters(
    served: Callable[..., PmSampling], tmp_path: Path
) -> None:
    """From then on, by the servers after this one too, and told once; the other GPU is asked for all."""
    sampling = served(silent("gpu == 0 and len(counters) > 6"), [0, 3])
    assert blocks(sampling, tmp_path, 3) == [{3}, {0, 3}, {0, 3}]
    assert asked_of_each(tmp_path) == [{0: EVERYTHING, 3: EVERYTHING}, *[{0: FEWER, 3: EVERYTHING}] * 2]
    said = "GPU 0 gave no sample of the 8 counters that it was asked for in a window: it is sampled with 6 from now on"
    assert sampling.remarks == [said]


def test_gpus_that_stay_silent_are_sampled_no_more(served: Callable[..., PmSampling], tmp_path: Path) -> None:
    sampling = served(silent("True"), [0, 3])
    assert blocks(sampling, tmp_path, 5) == [set()] * 5
    assert asked_of_each(tmp_path) == [dict.fromkeys((0, 3), names) for names in (EVERYTHING, FEWER, LINKS)]
    lost = "GPUs 0, 3 gave no sample of the {} counters that they were asked for in a window: they are sampled {}"
    thens = ((8, "with 6 from now on"), (6, "with 2 from now on"), (2, "no more"))
    assert sampling.remarks == [lost.format(*then) for then in thens]


def test_a_block_too_short_for_a_sample_says_nothing_of_a_gpu(
    served: Callable[..., PmSampling], tmp_path: Path
) -> None:
    sampling = served(silent("True").replace(str(WHILE), str(2 * EFFORTS[0].interval_ns)), [0])
    assert blocks(sampling, tmp_path, 2) == [set()] * 2
    assert asked_of_each(tmp_path) == [{0: EVERYTHING}] * 2
    assert (sampling.remarks, sampling.interval_ns) == ([], EFFORTS[0].interval_ns)


LOST = "the GPU counters of a window were lost: "


@pytest.mark.parametrize(
    ("does", "fault"),
    [
        ('sys.exit("TOKEN=hf_abcdefghijklmnopqrstuvwx refused")', "ended with status 1: TOKEN=[removed] refused"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by signal 11 (Segmentation fault)"),
        ('say("what?")', "said 'what?'"),
        (HANGS, "did not answer within 1 s: busy"),
        ('say("ready"); sys.exit(4)', "ended with status 4"),
        (f'say("ready"); {HANGS}', "did not answer within 1 s: busy"),
    ],
)
def test_a_sampler_that_fails_costs_one_window_and_says_why(
    does: str, fault: str, played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("READY_S", "BEGIN_S", "WRITE_S"):
        monkeypatch.setattr(pm_sampling, patience, 1.0)
    sampling = played(does)
    with sampling:
        pass
    assert (sampling.rows, sampling.interval_ns) == ([], None)
    assert sampling.remarks[-1] == f"{LOST}their sampler {fault}"
    (tmp_path / "sampler.py").write_text(script(WORKS))
    sampling.prepare(tmp_path)
    with sampling:
        pass
    assert len(sampling.rows) == 2


SLOW = 'time.sleep(0.4); say("sampling")'
HOUR = 3_600_000_000_000


def test_a_block_is_entered_once_samples_are_taken(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may take its time to start; too long is a remark, and what was sampled then is kept."""
    sampling = played(WORKS, SLOW)
    began = time.monotonic()
    with sampling:
        assert time.monotonic() - began > 0.35
    assert (sampling.remarks, len(sampling.rows)) == ([], 2)
    monkeypatch.setattr(pm_sampling, "BEGIN_S", 0.1)
    sampling = played(WORKS, SLOW)
    with sampling:
        pass
    assert sampling.remarks == ["GPU counters were not sampled yet 0 s after they were to be: some are missing"]
    assert len(sampling.rows) == 2


def test_a_sampler_that_does_not_start_says_so_at_the_end_of_its_block(played: Played) -> None:
    sampling = played(WORKS, 'say("failed", "PM sampling of GPU 3 does not start"); sys.exit(1)')
    with sampling:
        pass
    assert (sampling.rows, sampling.remarks) == ([], [f"{LOST}PM sampling of GPU 3 does not start"])


@pytest.mark.parametrize(("ahead", "way"), [(HOUR, "3,600.000 s ahead of"), (-HOUR, "3,600.000 s behind")])
def test_samples_by_a_clock_that_is_not_utc_are_moved(ahead: int, way: str, played: Played, tmp_path: Path) -> None:
    """In each window, and it is told once."""
    sampling = played(WORKS, ahead=ahead)
    for _ in range(2):
        sampling.prepare(tmp_path)
        before = time.time_ns()
        with sampling:
            pass
        assert len(sampling.rows) == 2
        assert all(before - 2e6 < row[0] < time.time_ns() + 2e6 for row in sampling.rows)
        # The first sample ends as the start returns, the last one as the stop is called: 2 intervals either way.
        assert sampling.clock_error_ns == 100_000
    assert sampling.remarks == [
        f"the clock of GPU 3's counters is {way} UTC: the samples are moved by that, which is known to ± 0.1 ms"
    ]


def test_samples_that_cannot_be_read(played: Played, tmp_path: Path) -> None:
    sampling = played('say("ready"); sys.stdin.readline(); say("written"); sys.exit()')
    (tmp_path / "counters.npz").write_bytes(b"no archive")
    with sampling:
        pass
    assert sampling.remarks[-1].startswith(f"{LOST}counters.npz cannot be read (")


def test_a_sampler_that_cannot_be_started(played: Played, tmp_path: Path) -> None:
    sampling = played(WORKS)
    with sampling:
        pass
    sampling.prepare(tmp_path / "gone")
    assert sampling.remarks == [f"{LOST}their sampler cannot be started (No such file or directory)"]


def test_without_gpus_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pm_sampling, "PROGRAM", tmp_path / "not there")
    sampling = PmSampling([])
    sampling.prepare(tmp_path)
    with sampling:
        pass
    assert sampling.remarks == []


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
