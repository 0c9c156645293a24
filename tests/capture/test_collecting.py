"""Importing a pass: each window by itself, and what becomes of raw reports, which hold the server's environment."""

from __future__ import annotations

import errno
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.capture import load_settings, make_plan
from profkit.capture.backends import EmptyReportError, Recorded
from profkit.capture.collecting import collect
from profkit.capture.context import Context
from profkit.capture.gpu_names import known_devices, on_devices_of
from profkit.capture.importing import BatchError, Window, check_batch_size, import_window
from profkit.capture.interrupts import Interrupts
from profkit.capture.machine import Sampler
from profkit.capture.plan import Plan
from profkit.capture.pm_sampling import PmSampling
from profkit.capture.secrets import Scrubber
from profkit.traces import Device, InputError, OutputError, Trace, load_bundle, open_trace
from tests.builders import TraceBuilder
from tests.capture import places


def steps(*batches: int) -> Trace:
    builder = TraceBuilder().rank(0)
    for number, batch in enumerate(batches):
        builder = builder.range(1000 * number, 1000 * number + 900, f"step:decode bs={batch}")
    return builder.trace()


class Reports:
    """A recorder whose reports are files, each read as a trace or as an error."""

    holds_environment = True

    def __init__(self, found: Mapping[int, Trace | BaseException], interrupts: Interrupts) -> None:
        self.found = found
        self.interrupts = interrupts

    def reports(self, scratch: Path) -> dict[int, Path]:
        files = {number: scratch / f"report.{number}.nsys-rep" for number in self.found}
        for file in files.values():
            file.write_text("PATH=/bin")
        return files

    def read(self, report: Path, scratch: Path) -> Recorded:
        found = self.found[int(report.name.split(".")[1])]
        if isinstance(found, KeyboardInterrupt):
            self.interrupts.count += 2
            self.interrupts.raise_from(2)
        if isinstance(found, Exception):
            raise found
        return Recorded(found, None)


class Sweeps:
    """A record that notes nothing, and fails if told so."""

    def __init__(self, error: OutputError | None = None) -> None:
        self.machine: dict[str, Any] = {}
        self.error = error
        self.count = 0
        self.remarks: list[str] = []

    def remark(self, text: str, say: Callable[[str], None]) -> None:
        self.remarks.append(text)

    def measured(self, window: Window) -> None:
        self.count += 1
        if self.error:
            raise self.error


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.syspath_prepend(str(places.write_package(tmp_path)))
    plan = make_plan(load_settings(str(places.write_configuration(tmp_path))), [1, 2, 4], tmp_path / "out")
    plan.folder.mkdir()
    (tmp_path / "scratch").mkdir()
    return plan


def collected(
    plan: Plan,
    found: Mapping[int, Trace | BaseException],
    record: Sweeps | None = None,
    sampled: Callable[[Window], None] = lambda window: None,
) -> list[Window]:
    said: list[str] = []
    windows = [Window(c, True, f"c{c}", number=n) for n, c in enumerate(plan.concurrencies, 1) if n in found]
    for window in windows:
        sampled(window)
    scrub, interrupts = Scrubber({}), Interrupts(said.append)
    backend, record = Reports(found, interrupts), record or Sweeps()
    context = Context(plan, plan.passes[0], backend, record, scrub, interrupts, said.append, PmSampling([]), windows)  # type: ignore[arg-type]
    collect(context, plan.folder.parent / "scratch", Sampler([]))
    return windows


def test_a_window_fails_by_itself(plan: Plan) -> None:
    """Whatever a reader raises; the reports go, as they hold the environment."""
    first, second, third = collected(plan, {1: ValueError("bad\x00"), 2: InputError("x", "y", "z"), 3: steps(4, 4, 4)})
    assert first.failure == (
        "its report could not be imported (ValueError: bad\x00); its raw report is removed, since it holds the "
        "server's environment: record again with --keep-raw to keep it"
    )
    assert second.failure and second.failure.startswith("its report could not be imported (x: y; z); its raw report is")
    assert (third.trace, third.failure) == ("c4", None)
    assert not (plan.folder / "raw").exists()


@pytest.mark.parametrize("keep_raw", [False, True])
def test_given_up(plan: Plan, keep_raw: bool) -> None:
    """What was imported before stays; the rest is lost, or kept as it is."""
    found = {1: steps(1, 1, 1), 2: KeyboardInterrupt(), 3: steps(4, 4, 4)}
    first, *others = collected(replace(plan, keep_raw=keep_raw), found)
    assert (first.trace, first.failure) == ("c1", None)
    rest = "is kept in raw/: it holds" if keep_raw else "is removed, since it holds"
    for window in others:
        assert window.trace is None
        assert window.failure and window.failure.startswith(
            f"stopped before its report was imported; its raw report {rest} the server's"
        )


def test_keep_raw(plan: Plan) -> None:
    """A report that cannot be imported is kept where the user wants it; one with nothing in it never is."""
    kept, empty = collected(replace(plan, keep_raw=True), {1: ValueError("bad"), 2: EmptyReportError("holds no event")})
    assert kept.failure and kept.failure.endswith(
        "kept in raw/: it holds the server's whole environment, so do not pass it on"
    )
    assert empty.failure == "holds no event"
    assert [file.name for file in (plan.folder / "raw").iterdir()] == ["c1.nsys-rep"]
    assert stat.S_IMODE((plan.folder / "raw").stat().st_mode) == 0o700


def test_keep_raw_of_a_folder_that_holds_no_environment(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def folders(self: Reports, scratch: Path) -> dict[int, Path]:
        found = {number: scratch / f"window-{number}" for number in self.found}
        for folder in found.values():
            folder.mkdir()
            (folder / "1.json").touch()
        return found

    monkeypatch.setattr(Reports, "holds_environment", False)
    monkeypatch.setattr(Reports, "reports", folders)
    monkeypatch.setattr(Reports, "read", lambda self, report, scratch: open_trace(report))
    (window,) = collected(replace(plan, keep_raw=True), {1: steps(1)})
    assert window.failure and window.failure.endswith("; its raw report is kept in raw/")
    assert [file.name for file in (plan.folder / "raw" / "c1").iterdir()] == ["1.json"]


def test_a_full_disk_is_one_more_sentence(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "move", full)
    record = Sweeps(OutputError("sweep.json", "cannot write the record", "free some space"))
    first, second = collected(replace(plan, keep_raw=True), {1: ValueError("bad"), 2: steps(2, 2, 2)}, record)
    assert first.failure and "could not be kept in raw/ either (No space left on device)" in first.failure
    assert (second.trace, record.count) == ("c2", 2)


def test_steps_of_another_batch_size_are_refused(plan: Plan) -> None:
    (window,) = collected(replace(plan, concurrencies=(4,)), {1: steps(*[1] * 6)})
    assert window.trace is None
    assert window.failure and "its steps ran 1 requests at once, not 4; see max_running_requests" in window.failure
    assert not (plan.folder / "c4").exists()


@pytest.mark.parametrize(("batches", "right"), [((4, 4, 3), True), ((4, 3, 3), False), ((), True), ((48,) * 5, False)])
def test_most_steps_are_of_the_requests_asked_for(batches: tuple[int, ...], right: bool) -> None:
    if right:
        check_batch_size(steps(*batches), 4)
    else:
        with pytest.raises(BatchError):
            check_batch_size(steps(*batches), 4)


def test_a_part_of_the_requests_is_right_with_pipeline_stages(plan: Plan) -> None:
    server = {**plan.settings.server, "pp_size": 2}
    settings = plan.settings.__class__(name="x", server=server)
    window = Window(4, True, "c4")
    import_window(replace(plan, settings=settings), window, Recorded(steps(2, 2, 2), None), [], {}, {})
    assert window.trace == "c4"


def test_samples_go_to_the_gpu_on_the_same_bus(plan: Plan) -> None:
    """CUDA_VISIBLE_DEVICES=3,1 makes the trace's GPU 0 NVML's GPU 3."""
    gpus = [{"index": number, "bus_id": f"00000000:0{number}:00.0", "pcie_bytes_per_s": 1} for number in range(4)]
    devices = (Device(0, bus_id="0000:03:00.0"), Device(1, bus_id="0000:01:00.0"))
    trace = replace(steps(4, 4), devices=devices)
    rows = [(10, 1, "power_w", 1.0), (11, 3, "power_w", 3.0), (12, 2, "power_w", 2.0)]
    assert on_devices_of(devices, rows, {"gpus": gpus}) == [(10, 1, "power_w", 1.0), (11, 0, "power_w", 3.0)]
    assert on_devices_of((), rows, {"gpus": gpus}) == rows
    window = Window(4, True, "c4", opened_ns=1000)
    import_window(plan, window, Recorded(trace, None), rows, {}, {"gpus": gpus})
    assert load_bundle(plan.folder / "c4").samples.device.tolist() == [1, 0]


def test_a_recorder_that_names_no_bus_has_the_numbers_of_cuda(plan: Plan) -> None:
    """As the PyTorch profiler: bus and bandwidths come from NVML, and its samples go to the right GPU."""
    gpus: list[dict[str, object]] = [
        {
            "index": number,
            "bus_id": f"00000000:0{number}:00.0",
            "name": "H",
            "memory_bytes_per_s": 7,
            "pcie_bytes_per_s": 5,
        }
        for number in range(4)
    ]
    machine = {"gpus": gpus, "used": [3, 1]}
    traced = replace(steps(4, 4), devices=(Device(2, "H", 9), Device(3, "H", 9)))
    known = known_devices(traced, machine, range(2, 4))
    assert known == (Device(2, "H", 9, 7, 5, "0000:03:00.0"), Device(3, "H", 9, 7, 5, "0000:01:00.0"))
    other = replace(traced, devices=(Device(2, "another", 9), Device(5, "H", 9)))
    assert known_devices(other, machine, range(2, 4)) == other.devices, "not told, so not guessed"
    window = Window(4, True, "c4", opened_ns=1000)
    moved = replace(plan, settings=plan.settings.__class__(name="x", server={"base_gpu_id": 2, "tp_size": 2}))
    import_window(moved, window, Recorded(traced, None), [(10, 3, "power_w", 3.0)], {}, machine)
    bundle = load_bundle(plan.folder / "c4")
    assert bundle.samples.device.tolist() == [2] and bundle.devices[0] == known[0]


def test_hardware_counters_are_those_of_the_recording(plan: Plan) -> None:
    """With a margin, on both sides; NVML's tell of all the time. Without a GPU the ranges say when that was."""
    zero, margin = 1_700_000_000_000_000_000, 1_000_000
    with_ops = TraceBuilder().rank(0)
    for number in range(3):
        at = 5_000_000 + 1000 * number
        with_ops = with_ops.range(at, at + 900, "step:decode bs=4").launch(at + 1, at + 2, "k", at + 700, at + 1600)
    for trace, first, last in ((with_ops.trace(), 5_000_700, 5_003_600), (steps(4, 4, 4), 0, 2900)):
        times = (first - margin - 1, first - margin, first, last + margin, last + margin + 1)
        rows = [(zero + time, 0, name, 1.0) for time in times for name in ("pm_sm_active_percent", "power_w")]
        window = Window(4, True, f"c{last}", opened_ns=zero, counter_interval_ns=50_000)
        import_window(plan, window, Recorded(trace, zero), rows, {}, {})
        kept = load_bundle(plan.folder / window.name)
        names = [kept.strings[number] for number in kept.samples.counter.tolist()]
        found = list(zip(kept.samples.time.tolist(), names, strict=True))
        assert [time for time, name in found if name == "power_w"] == list(times)
        assert [time for time, name in found if name != "power_w"] == list(times[1:4])
        assert kept.run.counter_interval_ns == 50_000


def counters_at(*utc_ns: int) -> list[tuple[int, int, str, float]]:
    return [(time, 0, name, 1.0) for time in utc_ns for name in ("pm_sm_active_percent", "pm_dram_read_percent")]


def test_each_window_has_the_counters_that_were_sampled_for_it(plan: Plan) -> None:
    """Two windows; steps are 0 to 2.9 us. The third window's lie beside it, and that is told."""
    zero, record = 1_700_000_000_000_000_000, Sweeps()
    found = {number: steps(c, c, c) for number, c in enumerate(plan.concurrencies, 1)}
    inside, beside = counters_at(zero + 1000, zero + 2000), counters_at(zero - 5_000_000, zero - 3_000_000)

    def sampled(window: Window) -> None:
        window.opened_ns, window.counter_interval_ns = zero, 50_000
        window.counters = beside if window.concurrency == 4 else inside

    windows = collected(plan, found, record, sampled)
    kept = [load_bundle(plan.folder / window.name) for window in windows]
    assert [trace.samples.time.tolist() for trace in kept] == [[1000, 1000, 2000, 2000]] * 2 + [[]]
    assert [trace.run.counter_interval_ns for trace in kept] == [50_000, 50_000, None]
    assert record.remarks == ["no GPU counters lie within c4: 2 samples from −5.0 to −3.0 ms of its first op"]


def test_samples_in_the_margin_alone_are_none(plan: Plan) -> None:
    zero = 1_700_000_000_000_000_000
    window = Window(4, True, "c4", opened_ns=zero, counter_interval_ns=50_000)
    import_window(plan, window, Recorded(steps(4, 4, 4), zero), counters_at(zero - 1), {}, {})
    assert window.no_counters == "no GPU counters lie within c4: 1 sample from −0.0 to −0.0 ms of its first op"
    window = Window(4, True, "c4-other", opened_ns=zero, counter_interval_ns=50_000)
    import_window(plan, window, Recorded(steps(4, 4, 4), zero), [(zero, 0, "power_w", 1.0)], {}, {})
    assert window.no_counters == "no GPU counters lie within c4-other: none were sampled of its GPUs"


def test_signals_count_and_raise_only_where_they_may() -> None:
    said: list[str] = []
    interrupts = Interrupts(said.append)
    press = SimpleNamespace(now=100.0)

    def pressed(after_s: float) -> None:
        press.now += after_s
        interrupts._take()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("profkit.capture.interrupts.time.monotonic", lambda: press.now)
        with pytest.raises(KeyboardInterrupt), interrupts.raising(1):
            pressed(0)
        pressed(0.1)
        assert interrupts.count == 1, "timeout sends it twice"
        interrupts.notice, interrupts.pause_s = "wait", 2.0
        with interrupts.raising(3):
            for after_s in (3.0, 0.7, 0.7, 1.9):
                pressed(after_s)
            assert interrupts.count == 2, "a series of them is one"
            with pytest.raises(KeyboardInterrupt):
                pressed(2.0)
        pressed(5.0)
    with interrupts:
        pass
    assert said == ["wait"] * 5
