"""Hardware counters: the process that samples them is played by a script, the files and words are the real ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.capture import pm_sampling
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
    """The GPUs that each of ``count`` blocks of one more server has samples of."""
    found = []
    sampling.begin_anew()
    for _ in range(count):
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


NO_SAMPLE = "gave no sample in a window ({} counters asked for): in this server's next windows"


def test_a_gpu_without_any_sample_is_asked_for_fewer_counters(
    served: Callable[..., PmSampling], tmp_path: Path
) -> None:
    """By the servers after this one too, as fewer gave samples; told once. The other GPU is asked for all."""
    sampling = served(silent("gpu == 0 and len(counters) > 6"), [0, 3])
    assert [blocks(sampling, tmp_path, count) for count in (2, 1)] == [[{3}, {0, 3}], [{0, 3}]]
    assert asked_of_each(tmp_path) == [{0: EVERYTHING, 3: EVERYTHING}, *[{0: FEWER, 3: EVERYTHING}] * 2]
    assert sampling.remarks == [f"GPU 0 {NO_SAMPLE.format(8)} it is asked for 6"]


def test_gpus_that_stay_silent_are_sampled_no_more(served: Callable[..., PmSampling], tmp_path: Path) -> None:
    """By this server: nothing shows that it was the counters, so the next one asks for all of them again."""
    sampling = served(silent("True"), [0, 3])
    assert blocks(sampling, tmp_path, 5) == [set()] * 5
    assert blocks(sampling, tmp_path, 1) == [set()]
    tried = (EVERYTHING, FEWER, LINKS, EVERYTHING)
    assert asked_of_each(tmp_path) == [dict.fromkeys((0, 3), names) for names in tried]
    thens = ((8, "asked for 6"), (6, "asked for 2"), (2, "not sampled"))
    assert sampling.remarks == [f"GPUs 0, 3 {NO_SAMPLE.format(count)} they are {then}" for count, then in thens]


def test_a_gpu_that_gave_samples_of_all_counters_has_them(served: Callable[..., PmSampling], tmp_path: Path) -> None:
    """One silent window later on is not their fault, though fewer give samples after it."""
    sampling = served(silent("os.path.exists(path.replace('npz', 'once')) and len(counters) > 6"), [0])
    once = tmp_path / "counters.once"
    assert blocks(sampling, tmp_path, 1) == [{0}]
    once.touch()
    assert blocks(sampling, tmp_path, 2) == [set(), {0}]
    once.unlink()
    assert blocks(sampling, tmp_path, 1) == [{0}]
    assert asked_of_each(tmp_path) == [{0: names} for names in (EVERYTHING, EVERYTHING, FEWER, EVERYTHING)]


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
        (HANGS, "did not answer within 3 s: busy"),
        ('say("ready"); sys.exit(4)', "ended with status 4"),
        (f'say("ready"); {HANGS}', "did not answer within 3 s: busy"),
    ],
)
def test_a_sampler_that_fails_costs_one_window_and_says_why(
    does: str, fault: str, played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as soon:
        for patience in ("READY_S", "BEGIN_S", "WRITE_S") if HANGS in does else ():
            soon.setattr(pm_sampling, patience, 3.0)
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
