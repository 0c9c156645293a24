"""The recorders: what each needs and is told, one start of the server for each, and whole captures of the stand-in."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.capture import cupti, cupti_library, load_settings, make_plan
from profkit.capture.backends import BACKENDS, EmptyReportError, backend_of
from profkit.capture.backends.torch import TorchBackend
from profkit.capture.doctor import examine
from profkit.capture.importing import Window
from profkit.capture.plan import Plan
from profkit.capture.record import Record
from profkit.capture.run import dry_run
from profkit.capture.secrets import Scrubber
from profkit.capture.server import ServerError
from profkit.cli import main
from profkit.cli.capture import _summary
from profkit.traces import StepTimes, UsageError, load_sweep, open_recordings
from tests.capture import places
from tests.traces import kineto_files as kineto


def capture(place: Path, *options: str, mode: str = "", ranks: int = 1, **more: str) -> tuple[int, str, str]:
    """Status, table and progress of a capture."""
    (place / "torch").mkdir(exist_ok=True)
    (place / "torch" / "__init__.py").touch()
    process = places.start_capture(place, places.write_configuration(place, mode, ranks), *options, **more)
    table, said = process.communicate(timeout=240)
    return process.returncode, table, said


def steps_of(folder: Path) -> dict[str, list[str]]:
    traces = {opened.name.rpartition("/")[2]: opened.trace for opened in open_recordings(folder)}
    texts = {name: [trace.strings[number] for number in trace.ranges.text] for name, trace in traces.items()}
    return {name: [text for text in every if text.startswith("step:")] for name, every in texts.items()}


def check_times(times: StepTimes | None, at_least: int) -> None:
    """The stand-in's steps take 4 ms and a little."""
    assert times is not None and times.steps >= at_least
    assert 4_000_000 <= times.low_ns <= times.median_ns <= times.high_ns < 40_000_000


def test_two_recorders_of_one_server(place: Path) -> None:
    """Of two ranks each: the same steps, and what each recorder cost."""
    status, table, said = capture(place, "--conc", "2", "--backend", "nsys,torch", "--set", "windows.steps=8", ranks=2)
    assert status == 0, said
    lines = [" ".join(line.split()) for line in table.splitlines()]
    assert re.match(r"c2 graphs nsys [\d,]+ tok/s, accept length 3.\d\d$", lines[1])
    assert re.match(r"c2 graphs torch [\d,]+ tok/s, accept length 3.\d\d$", lines[2])
    assert lines[3] == "2 of 2 windows recorded"
    sweep = load_sweep(place / "out")
    assert [(run.trace, run.recorder, run.failure) for run in sweep.runs] == [
        ("c2", "nsys", None),
        ("c2-torch", "torch", None),
    ]
    assert sweep.versions["nsys"] and sweep.versions["torch"] == "unknown release"
    assert sweep.settings["plugin"] == [[], []]
    for run in sweep.runs:
        check_times(run.step_times, 50)
        check_times(run.step_times_recorded, 4)
        assert run.recording_cost is not None and run.recording_cost.steps >= 12
        assert 0.3 < run.recording_cost.ratio < 3 and run.recording_cost.error > 0
    assert steps_of(place / "out") == {name: ["step:decode bs=2"] * 16 for name in ("c2", "c2-torch")}
    for opened in open_recordings(place / "out"):
        trace = opened.trace
        trace.check()
        assert sorted(process.rank for process in trace.processes) == [0, 1]  # type: ignore[type-var]
        assert trace.run.recorder == ("torch" if opened.name.endswith("torch") else "nsys")
        assert trace.run.step_times and trace.run.step_times_recorded and trace.run.recording_cost
    kept = {file.name for folder in (place / "out").glob("plugin*") for file in folder.iterdir()}
    assert len(kept) == 4 and all(re.fullmatch(r"plugin-\d+\.json", name) for name in kept), "rings are of no use later"


def test_torch_alone_needs_no_nsys(place: Path) -> None:
    """And a server that dies with graphs is recorded without."""
    options = ("--conc", "1,4", "--backend", "torch", "--graphs", "both")
    status, table, said = capture(place, *options, mode="graph_crash", NSYS="/nowhere")
    assert status == 0, said
    assert "2 of 4 windows recorded" in table and " torch " not in table, "one recorder needs no column"
    sweep = load_sweep(place / "out")
    recorded = {run.trace for run in sweep.runs if run.trace}
    assert recorded == {"c1-eager", "c4-eager"}
    assert steps_of(place / "out")["c4-eager"] == ["step:decode bs=4"] * 4
    (failure,) = sweep.failures
    assert failure.phase in ("warm up c1", "measure c1"), "a busy machine decodes later"
    assert sweep.note == f"the server ended early ({failure.phase}), not tried: c4"


def test_a_server_stopped_while_the_profiler_records(place: Path) -> None:
    """A window that takes too long is closed, and what it holds is kept."""
    options = ("--conc", "1", "--backend", "torch", "--set", "windows.record_s=1", "--steps", "300")
    status, _, said = capture(place, *options, "--set", "load.output_len=4000")
    assert status == 0, said
    (run,) = load_sweep(place / "out").runs
    assert run.trace == "c1"
    assert run.failure == "fewer steps than wanted ran in time; raise windows.record_s"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.syspath_prepend(str(places.write_package(tmp_path)))
    settings = load_settings(str(places.write_configuration(tmp_path)))
    return make_plan(settings, [1, 4], tmp_path / "out", graphs="both", backends=["nsys", "torch", "nsys"])


def test_a_start_of_the_server_for_each(plan: Plan) -> None:
    assert [(one.recorder, one.graphs, one.suffix) for one in plan.passes] == [
        ("nsys", True, ""),
        ("nsys", False, "-eager"),
        ("torch", True, "-torch"),
        ("torch", False, "-eager-torch"),
    ]
    assert plan.passes[3].window(4) == "c4-eager-torch"
    text = dry_run(plan)
    assert text.count("-m sglang.launch_server") == 4
    assert text.count("nsys profile") == 2
    assert text.count("  with PROFKIT_RECORDER=torch SGLANG_PROFILE_V2=0\n") == 2
    assert "-> c4-eager-torch/" in text
    single = make_plan(plan.settings, [1], plan.folder, backends=["torch"])
    assert [one.suffix for one in single.passes] == [""]
    assert "  with " not in dry_run(single)


@pytest.mark.parametrize("given", ["perf", "nsys "])
def test_an_unknown_recorder(plan: Plan, given: str) -> None:
    with pytest.raises(UsageError, match=f"--backend {given}: no such recorder; give nsys, cupti, torch, or several"):
        make_plan(plan.settings, [1], plan.folder, backends=["nsys", given])


@pytest.mark.parametrize("given", [[], [""], ["", ""], ["nsys", ""]])
def test_no_recorder(plan: Plan, given: list[str]) -> None:
    said = f"--backend '{','.join(given)}': the name of a recorder is missing; give nsys, cupti, torch, or several"
    with pytest.raises(UsageError, match=said):
        make_plan(plan.settings, [1], plan.folder, backends=given)


def test_a_failure_belongs_to_its_own_pass(plan: Plan) -> None:
    """The table has a line for each window of each recorder."""
    plan.folder.mkdir()
    record = Record(plan, "profkit capture", {"nsys": "2025.1", "torch": "2.11"}, Scrubber({}))
    record.measured(Window(1, True, "c1", "nsys", rate_before=10.0, trace="c1"))
    record.measured(Window(1, True, "c1-torch", "torch", rate_before=20.0))
    record.server_failed(ServerError("record c1-torch", "it died", 1, []), plan.passes[2])
    lines = [" ".join(line.split()) for line in _summary(plan.folder, record.sweep, plan).splitlines()]
    assert lines[1:9] == [
        "c1 graphs nsys 10 tok/s",
        "c4 graphs nsys not tried",
        "c1 eager nsys not tried",
        "c4 eager nsys not tried",
        "c1 graphs torch 20 tok/s; record c1-torch: it died",
        "c4 graphs torch not measured; not tried: the server had ended",
        "c1 eager torch not tried",
        "c4 eager torch not tried",
    ]
    assert lines[9:11] == ["server failed: torch, record c1-torch: it died", "1 of 8 windows recorded"]
    record.server_failed(ServerError("start", "it never came up", 1, []), plan.passes[1])
    record.finish()
    assert [(one.recorder, one.graphs) for one in record.sweep.failures] == [("torch", True), ("nsys", False)]
    table = _summary(plan.folder, load_sweep(plan.folder), plan)
    assert "\n  server failed: torch, graphs, record c1-torch: it died\n" in table
    assert "\n  server failed: nsys, eager, start: it never came up\n" in table
    assert record.sweep.note == (
        "the server ended early (torch, record c1-torch), not tried: c4-torch; "
        "the server ended early (nsys, start), not tried: c1-eager, c4-eager"
    )
    assert (record.sweep.versions["nsys"], record.sweep.versions["torch"]) == ("2025.1", "2.11")


def test_what_the_server_is_told(tmp_path: Path) -> None:
    inside = str(tmp_path / "window-3")
    assert backend_of("torch", on_gpu=True).window(3, 20, tmp_path) == {
        "activities": ["CPU", "GPU"], "with_stack": False, "record_shapes": False, "num_steps": 20, "output_dir": inside
    }  # fmt: skip
    assert backend_of("cupti", on_gpu=True).window(3, 20, tmp_path) == {
        "activities": ["CUDA_PROFILER"], "num_steps": 20, "output_dir": inside
    }  # fmt: skip
    for name in BACKENDS[1:]:
        backend = backend_of(name, on_gpu=True)
        assert backend.wrapper(tmp_path) == []
        assert backend.environment()["SGLANG_PROFILE_V2"] == "0"
        assert (backend.importer, backend.holds_environment) == (None, False)


@pytest.mark.parametrize(("name", "file"), [("torch", "1-TP-0.trace.json.gz"), ("cupti", "77.cupti")])
def test_folders_of_windows(name: str, file: str, tmp_path: Path) -> None:
    """A folder without a finished file is none, and neither is what lies beside them."""
    for folder in ("window-1", "window-2", "window-12", "window-x"):
        (tmp_path / folder).mkdir()
    for folder in ("window-1", "window-12", "window-x"):
        (tmp_path / folder / file).touch()
    (tmp_path / "window-2" / "77.part").touch()
    (tmp_path / "window-7").touch()
    found = backend_of(name, on_gpu=True).reports(tmp_path)
    assert found == {1: tmp_path / "window-1", 12: tmp_path / "window-12"}


def test_reading_a_window_of_the_profiler(tmp_path: Path) -> None:
    """Ranks of one window, on the earliest clock of the two."""
    base = 1_775_078_550_000_000_000
    for rank in (0, 1):
        step = kineto.event("user_annotation", "profkit|step:decode bs=1", 10, 5, 70 + rank, 70 + rank)
        file = tmp_path / f"1-TP-{rank}.trace.json.gz"
        kineto.write(file, step, baseTimeNanoseconds=base + rank, distributedInfo={"rank": rank})
    recorded = TorchBackend(on_gpu=True).read(tmp_path, tmp_path)
    assert recorded.zero_utc_ns == base
    assert [(one.pid, one.rank) for one in recorded.trace.processes] == [(70, 0), (71, 1)]
    assert recorded.trace.strings[recorded.trace.ranges.domain[0]] == "profkit"


def test_a_window_of_the_profiler_without_an_event(tmp_path: Path) -> None:
    kineto.write(tmp_path / "1-TP-0.trace.json.gz")
    with pytest.raises(EmptyReportError, match="its report holds no event"):
        TorchBackend(on_gpu=True).read(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("on_gpu", "version", "library", "said"),
    [
        (False, "13.4", Path("/l"), "it records GPUs, and the configuration takes none"),
        (True, "", Path("/l"), "the package cupti is missing; pip install 'profkit"),
        (True, "13.4", None, "libcupti.so was not found; pip install nvidia-cuda-cupti, or set"),
    ],
)
def test_cupti_says_before_the_start_what_is_missing(
    on_gpu: bool, version: str, library: Path | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from profkit.capture.backends import cupti as backends

    monkeypatch.setattr(backends, "cupti_version", lambda: version)
    monkeypatch.setattr(backends, "cupti_library", lambda: library)
    backend = backend_of("cupti", on_gpu=on_gpu)
    with pytest.raises(UsageError, match=f"--backend cupti: {said}"):
        backend.check()
    assert backend.environment()["NVTX_INJECTION64_PATH"] == str(library or "libcupti.so")


OLD_NSYS = "0.2.17, whose ranges this nsys does not see; pip install nvtx==0.2.11, or nsys 2025 or newer"
NO_NVTX = "the package nvtx is not installed; pip install 'profkit[capture]'"


@pytest.mark.parametrize(
    ("version", "nsys", "backends", "said"),
    [
        ("0.2.17", "2024.6.2", "nsys,cupti", f"--backend nsys: {OLD_NSYS}"),
        ("0.2.17", "2024.6.2", "cupti,torch", ""),
        ("0.2.17", "2025.1.1", "nsys", ""),
        ("0.2.11", "2024.6.2", "nsys", ""),
        ("", "2025.1.1", "nsys,torch,cupti", f"--backend nsys,cupti: {NO_NVTX}"),
        ("", "2025.1.1", "cupti", f"--backend cupti: {NO_NVTX}"),
        ("", "2025.1.1", "torch", ""),
    ],
)
def test_what_nvtx_lacks_is_said_by_capture_as_by_doctor(
    version: str, nsys: str, backends: str, said: str, place: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """By a dry run and by a capture, before anything starts."""
    program = place / "nsys"
    program.write_text(f"#!/bin/sh\necho NVIDIA Nsight Systems version {nsys}\n")
    program.chmod(0o755)
    monkeypatch.setenv("NSYS", str(program))
    monkeypatch.setattr("profkit.capture.plan.find_sglang", lambda: None)
    monkeypatch.setattr("profkit.capture.checks.nvtx_version", lambda: version)
    monkeypatch.setattr("profkit.capture.doctor.nvtx_version", lambda: version)
    for name in ("nsys.NsysBackend", "cupti.CuptiBackend", "torch.TorchBackend"):
        monkeypatch.setattr(f"profkit.capture.backends.{name}.check", lambda self: None)
    common = ["capture", "--config", str(places.write_configuration(place)), "--backend", backends, "-o"]
    assert main([*common, str(place / "out"), "--dry-run"]) == (2 if said else 0)
    more = "SGLang is not installed either: `profkit doctor` names all that a capture lacks here"
    assert capsys.readouterr().err == (f"profkit: {said}; {more}\n" if said else "")
    lost = {name for name in ("nsys", "cupti") if said and name in said.split(":")[0]}
    (found,) = [one for one in examine() if one.what == "NVTX"]
    assert lost <= set(found.for_.removeprefix("--backend ").split(",")) and (not said or found.found in said)
    if said:
        assert main([*common, str(place / "out")]) == 2 and said in capsys.readouterr().err
        assert not (place / "out").exists()


def test_torch_says_before_the_start_that_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.capture.backends.torch.importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="PyTorch is not installed for this Python"):
        TorchBackend(on_gpu=False).check()


def test_where_the_library_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of the wheels, then of a toolkit, then what the loader knows."""
    wheels, toolkit, other = tmp_path / "nvidia", tmp_path / "toolkit", tmp_path / "local"
    spec = SimpleNamespace(submodule_search_locations=[str(wheels)])
    monkeypatch.setattr(cupti.importlib.util, "find_spec", lambda name: spec if name == "nvidia" else None)
    monkeypatch.setattr(cupti.ctypes.util, "find_library", lambda name: f"lib{name}.so.9")
    monkeypatch.setattr(cupti, "TOOLKITS", other)
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    assert cupti_library() == Path("libcupti.so.9")
    places = [
        other / "cuda-12.9" / cupti.TOOLKIT / "libcupti.so.12",
        toolkit / cupti.TOOLKIT / "libcupti.so.12",
        wheels / "cuda_cupti" / "lib" / "libcupti.so.12",
        wheels / "cu13" / "lib" / "libcupti.so.13",
    ]
    for place in places:
        place.parent.mkdir(parents=True)
        place.touch()
        assert cupti_library() == place
    assert (cupti.cupti_version(), cupti.sampling_lacks()) == ("", "the package cupti is not installed")


def test_what_a_recorder_leaves_behind_is_told(place: Path) -> None:
    """Steps take twice as long after the window: throughput and step times are those before it."""
    options = ("--conc", "2", "--backend", "torch", "--set", "windows.measure_s=2.5", "--set", "windows.steps=12")
    status, _, said = capture(place, *options, mode="lingers", NSYS="/nowhere")
    assert status == 0, said
    sweep = load_sweep(place / "out")
    (run,), (remark,) = sweep.runs, sweep.settings["remarks"]
    assert re.match(r"c2: steps are \d\.\d\d ± \d\.\d\d times as long after the recording as before it", remark)
    assert remark in said.replace("\n", " ")
    assert run.tokens_per_s == run.tokens_per_s_before
    assert run.tokens_per_s_after is not None and run.tokens_per_s_after < (run.tokens_per_s_before or 0)
