"""The plugin in a server process: when it is on, what it says of itself, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.capture.plugin import read_report
from profkit.sglang.record import ProcessRecord
from profkit.sglang.step_clock import HEADER, HEADER_BYTES, ROW
from profkit.traces import open_trace
from profkit.traces.module_calls import read_captured_graphs
from tests.sglang import fake_server

CYCLE = "worker = dflash(); print(worker.forward_batch_generation(batch('DECODE', 3)))"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return fake_server.build(tmp_path)


def finished(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(root: Path) -> dict[str, Any]:
    (path,) = (root / "out").glob("plugin-*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_importing_it_needs_neither_torch_nor_sglang_nor_nvtx() -> None:
    code = "import profkit.sglang.plugin, sys; print(sorted({'torch', 'sglang', 'nvtx'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=fake_server.CHECKOUT
    )
    assert finished(done) == "[]\n"


@pytest.mark.parametrize("value", ["", "0"])
def test_it_is_off_unless_capture_turns_it_on(root: Path, value: str) -> None:
    script = "from sglang.srt.plugins.hook_registry import HookRegistry as r; dflash(); print(r._hooks)"
    assert finished(fake_server.run(root, script, PROFKIT_SGLANG=value)) == "{}\n"
    assert list((root / "out").iterdir()) == []


def test_the_record_of_a_process(root: Path) -> None:
    assert finished(fake_server.run(root, CYCLE)) == "4\n"
    found = record(root)
    assert found["missing"] == found["faults"] == []
    assert {probe["range"] for probe in found["probes"]} >= {
        "step",
        "target",
        "draft_sample",
        "accept_sim",
        "kv_append",
    }
    ranks = [{"role": role, "gpu_id": 3, "tp_rank": 3} for role in ("target", "draft")]
    assert found["runners"] == ranks
    assert "environ" not in json.dumps(found)


def test_without_a_folder_only_ranges_are_pushed(root: Path) -> None:
    assert finished(fake_server.run(root, CYCLE, PROFKIT_OUT="")) == "4\n"


def test_a_missing_probe_is_reported_and_the_rest_works(tmp_path: Path) -> None:
    name = "_append_target_hidden_to_draft_kv_by_loc"
    root = fake_server.build(tmp_path, dflash_worker_v2=fake_server.DFLASH.replace(name, "_append_elsewhere"))
    done = fake_server.run(root, CYCLE)
    assert finished(done) == "4\n"
    assert f"no probe sglang.srt.speculative.dflash_worker_v2.DFlashWorkerV2.{name} in SGLang 0.5.17" in done.stderr
    (missing,) = record(root)["missing"]
    assert missing["range"] == "kv_append"
    assert len(record(root)["probes"]) == 9


def test_a_module_that_cannot_be_imported_is_a_missing_probe(tmp_path: Path) -> None:
    root = fake_server.build(tmp_path, full_cuda_graph_backend="raise RuntimeError('no driver')")
    script = fake_server.SERVER.replace("from sglang.srt.model_executor.runner_backend", "#")
    done = subprocess.run(
        [sys.executable, "-c", script + CYCLE],
        env=fake_server.environment(root),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished(done) == "4\n"
    (missing,) = record(root)["missing"]
    assert missing["reason"] == "RuntimeError: no driver"


def test_a_worker_that_the_table_does_not_list_gets_steps(root: Path) -> None:
    script = """
worker = SpeculativeAlgorithm.OTHER.create_worker(None)(TpModelWorker(ModelRunner()))
print(worker.forward_batch_generation(batch('DECODE', 1)))
print(hasattr(type(worker).forward_batch_generation, "__wrapped__"))
"""
    done = fake_server.run(root, script)
    assert finished(done) == "4\nTrue\n"
    assert "a worker that the table does not list" in done.stderr


@pytest.mark.parametrize("version", ["0.5.11", "0.4.10.post2"])
def test_a_release_from_before_the_table(root: Path, version: str) -> None:
    (root / "sglang" / "__init__.py").write_text(f'__version__ = "{version}"')
    done = fake_server.run(root, CYCLE)
    assert finished(done) == "4\n"
    assert f"SGLang {version} is older than its first known release" in done.stderr


@pytest.mark.parametrize("version", ["main", "0.0.0.dev1"])
def test_a_build_from_source_is_taken_for_the_newest_release(root: Path, version: str) -> None:
    (root / "sglang" / "__init__.py").write_text(f'__version__ = "{version}"')
    done = fake_server.run(root, CYCLE)
    assert finished(done) == "4\n"
    assert f"SGLang's version {version} names no release; its probes are those of 0.5.23" in done.stderr
    assert record(root)["probes"]
    amiss = read_report(root / "out").amiss
    assert f"SGLang's version {version} names no release: the plugin takes it for 0.5.23" in amiss


def test_a_sglang_without_a_version(root: Path) -> None:
    (root / "sglang" / "__init__.py").write_text("")
    assert finished(fake_server.run(root, CYCLE)) == "4\n"
    assert record(root)["taken_for"] == "0.5.23"


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def test_the_record_never_raises_into_the_server(tmp_path: Path) -> None:
    kept = ProcessRecord(tmp_path, "0.5.17", attached=True)
    kept.runner("target", np.int64(3), np.int32(2))
    kept.runner("draft", None, "no number")
    kept.fault("here", UnspeakableError())
    assert kept.path is not None
    found = json.loads(kept.path.read_text())
    assert found["runners"][0] == {"role": "target", "gpu_id": 3, "tp_rank": 2}
    assert found["runners"][1] == {"role": "draft", "gpu_id": None, "tp_rank": None}
    assert found["faults"] == [{"where": "here", "error": "UnspeakableError, whose text raises ZeroDivisionError"}]
    assert read_report(tmp_path).ranks == {kept.content["pid"]: 3}
    kept.content["runners"].append({"gpu_id": object()})
    kept.fault("there", ValueError("x"))
    assert kept.path is None, "a record that cannot be written costs a line in the log"
    kept.fault("everywhere", ValueError("x"))


def test_without_nvtx_the_server_runs(root: Path) -> None:
    (root / "nvtx.py").write_text("raise ImportError('no nvtx')")
    done = fake_server.run(root, CYCLE)
    assert finished(done) == "4\n"
    assert "profkit: no ranges (no nvtx); install profkit with its extra `capture`" in done.stderr


CAPTURE = """
from sglang.srt.speculative.dflash_worker_v2 import _DflashDraftSampler
worker = dflash()
def forward(runner, sampler=lambda hidden: None):
    return lambda: sampler(runner.model.forward())
backend = FullCudaGraphBackend()
for size in (8, 4):
    backend.capture_one(size, forward(worker.target_worker.model_runner))
backend.capture_one(8, forward(worker.draft_model_runner, _DflashDraftSampler()))
"""


def test_modules_of_captured_graphs(root: Path) -> None:
    finished(fake_server.run(root, CAPTURE))
    (path,) = (root / "out").glob("modules-*.jsonl.gz")
    graphs = read_captured_graphs(path)
    known = [name for graph in graphs for name in graph.names]
    assert [(graph.batch_size, graph.role) for graph in graphs] == [(8, "target"), (4, "target"), (8, "draft")]
    layers = [f"model.{layer}{part}" for layer in ("first", "second") for part in (".self_attn", ".mlp", "")]
    names = [[known[place] for place in graph.name] for graph in graphs]
    assert names == [[*layers, "model"]] * 2 + [[*layers, "model", "draft_sample"]]
    for graph in graphs:
        assert graph.depth == [2, 2, 1, 2, 2, 1, 0, 0][: len(graph.name)]
        assert graph.clocks["monotonic_ns"] <= graph.start_ns[-1] <= graph.end_ns[-1]
        assert sorted(graph.end_ns) == graph.end_ns


def test_a_capture_that_fails_leaves_no_module_hook(root: Path) -> None:
    script = """
import torch.nn.modules.module as module
def crash():
    ModelRunner().model.forward()
    raise ZeroDivisionError
try:
    FullCudaGraphBackend().capture_one(4, crash)
except ZeroDivisionError:
    print(module._pre, module._post)
"""
    assert finished(fake_server.run(root, script)) == "{} {}\n"


def test_a_server_that_compiles_is_left_alone(tmp_path: Path) -> None:
    compiling = fake_server.MODEL_RUNNER.replace("enable_torch_compile=False", "enable_torch_compile=True")
    root = fake_server.build(tmp_path, model_runner=compiling)
    finished(fake_server.run(root, CAPTURE))
    assert list((root / "out").glob("modules-*")) == []
    assert record(root)["modules_off"] == "the server compiles its forwards"


# -- Recorders inside the process ----------------------------------------------------------------------------------

PROFILER = """
class SchedulerProfilerManager:
    torch_profiler_output_dir = None
    def _start_profile(self, folder):
        self.torch_profiler_output_dir = folder
        return "started"
    def _stop_profile(self): return "stopped"
"""

CUPTI = """
import sys
from tests.sglang.fake_cupti import Cupti, Library
sys.modules[__name__] = Cupti(Library())
"""

WINDOW = """
from types import SimpleNamespace
import torch.cuda, cupti.cupti as cupti, profkit.sglang.cupti_recorder as recorder
from sglang.srt.managers.scheduler_components.profiler_manager import SchedulerProfilerManager
from tests.sglang.fake_cupti import Names, kernel
names, recorder.library = Names(), lambda: cupti.library
torch.cuda.synchronize = lambda: None
torch.cuda.get_device_properties = lambda number: SimpleNamespace(name="none", multi_processor_count=1)
worker, profiler = dflash(), SchedulerProfilerManager()
print(profiler._start_profile("window-1"), len(cupti.enabled), len(cupti.subscribers))
worker.forward_batch_generation(batch('DECODE', 3))
cupti.queued.append(kernel(names, "gemm", 1, 2, 3))
print(profiler._stop_profile(), len(cupti.enabled))
"""


@pytest.fixture
def recording(root: Path) -> Path:
    """A server with SGLang's profiler and a CUPTI."""
    profiler = root / "sglang" / "srt" / "managers" / "scheduler_components" / "profiler_manager.py"
    package = root / "cupti" / "cupti.py"
    for file, text in ((profiler, PROFILER), (package, CUPTI)):
        file.parent.mkdir()
        file.write_text(text)
    return root


def window(root: Path, recorder: str) -> subprocess.CompletedProcess[str]:
    return fake_server.run(root, WINDOW.replace("window-1", str(root / "window-1")), PROFKIT_RECORDER=recorder)


def test_a_process_that_records_itself(recording: Path) -> None:
    assert finished(window(recording, "cupti")) == "started 8 1\nstopped 0\n"
    found = record(recording)
    assert found["missing"] == found["faults"] == found["remarks"] == []
    assert {"open", "close"} <= {probe["kind"] for probe in found["probes"]}
    trace = open_trace(recording / "window-1")
    assert (trace.source.format, len(trace.ops), trace.processes[0].pid) == ("cupti", 1, found["pid"])


@pytest.mark.parametrize("recorder", ["nsys", ""])
def test_a_process_that_is_recorded_from_outside(recorder: str, recording: Path) -> None:
    assert finished(window(recording, recorder)) == "started 0 0\nstopped 0\n"
    assert not {"open", "close"} & {probe["kind"] for probe in record(recording)["probes"]}
    assert not (recording / "window-1").exists()


def test_without_cupti_the_server_runs(recording: Path) -> None:
    (recording / "cupti" / "cupti.py").write_text("raise ImportError('no libcupti')")
    script = WINDOW.replace("cupti.cupti as cupti", "cupti").replace("len(cupti.enabled), len(cupti.subscribers)", "0")
    script = script.replace("cupti.queued.append", "str").replace("len(cupti.enabled)", "0")
    done = fake_server.run(recording, script, PROFKIT_RECORDER="cupti")
    assert finished(done) == "started 0\nstopped 0\n"
    assert record(recording)["faults"] == [{"where": "cupti", "error": "ImportError: no libcupti"}]
    assert "the hook of cupti failed (ImportError: no libcupti); the server goes on" in done.stderr


TORCH_RANGES = """
class _RecordFunctionFast:
    depth = 0
    def __init__(self, name): self.name = name
    def __enter__(self):
        print("  " * _RecordFunctionFast.depth + self.name)
        _RecordFunctionFast.depth += 1
    def __exit__(self, *raised): _RecordFunctionFast.depth -= 1
"""


def test_ranges_go_to_the_profiler_that_records(root: Path) -> None:
    for name, text in {"_C/__init__.py": "", "_C/_profiler.py": TORCH_RANGES}.items():
        (root / "torch" / name).parent.mkdir(exist_ok=True)
        (root / "torch" / name).write_text(text)
    (root / "nvtx.py").write_text("raise ImportError('not needed')")
    done = fake_server.run(root, CYCLE, PROFKIT_RECORDER="torch")
    names = ("prepare", "draft", "target", "accept", "accept_sim", "kv_append")
    lines = [line.strip() for line in finished(done).splitlines()]
    assert lines[0] == "profkit|step:decode bs=3" and lines[-1] == "4"
    assert [line for line in lines[1:-1] if line.removeprefix("profkit|") not in names] == []
    assert not record(root)["faults"] and not record(root)["tool_attached"]


def test_steps_are_timed_by_the_process_that_runs_them(root: Path) -> None:
    script = """
import time
worker = dflash()
print(time.monotonic_ns())
worker.forward_batch_generation(batch('EXTEND', 2))
for _ in range(3): worker.forward_batch_generation(batch('DECODE', 3))
print(time.monotonic_ns())
"""
    first, last = map(int, finished(fake_server.run(root, script)).split())
    (clock,) = (root / "out").glob("steps-*.bin")
    assert clock.stem == f"steps-{record(root)['pid']}"
    count = HEADER.unpack_from(clock.read_bytes())[2]
    rows = [*ROW.iter_unpack(clock.read_bytes()[HEADER_BYTES:])][:count]
    assert [row[1:] for row in rows] == [(2, 0), (3, 1), (3, 1), (3, 1)]
    began = [row[0] for row in rows]
    assert sorted(began) == began and first <= began[0] and began[-1] <= last


def test_a_process_without_steps_has_no_clock(root: Path) -> None:
    finished(fake_server.run(root, "dflash()"))
    assert list((root / "out").glob("steps-*")) == []
