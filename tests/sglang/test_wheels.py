"""The probe table against the SGLang that was released: every row is there, and is what its hook takes it for."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from profkit.sglang.probes import NEWEST, PROBES, Probe, groups_of, names_release, probes_of, release_of
from tests.sglang import fake_server
from tests.sglang.wheels import wheel_of

RELEASES = ("0.5.12", "0.5.13", "0.5.14", "0.5.15", "0.5.16", "0.5.17", "0.5.20", "0.5.23")
BATCHES = {"batch", "model_worker_batch"}
GROUPS = {"plain", "dflash", "eagle", "layers", "mtp", "ngram"}


def parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]


def rows(release: str) -> list[Probe]:
    return [probe for probe in PROBES if probe.covers(release_of(release))]


@pytest.mark.parametrize("release", RELEASES)
def test_every_probe_is_in_its_releases(release: str) -> None:
    wheel = wheel_of(release)
    assert [probe.target for probe in rows(release) if wheel.find(probe.target) is None] == []
    assert {probe.group for probe in rows(release)} == GROUPS | ({"dspark"} if release >= "0.5.16" else set())


@pytest.mark.parametrize("release", RELEASES)
def test_no_release_has_a_probe_that_the_table_keeps_from_it(release: str) -> None:
    wheel = wheel_of(release)
    others = [probe.target for probe in PROBES if not probe.covers(release_of(release))]
    assert [target for target in others if wheel.find(target) is not None] == []


@pytest.mark.parametrize("release", RELEASES)
def test_wrapped_functions_are_plain_and_take_what_the_hooks_read(release: str) -> None:
    wheel = wheel_of(release)
    for probe in rows(release):
        found = wheel.find(probe.target)
        if isinstance(found, ast.ImportFrom):
            continue
        assert isinstance(found, ast.FunctionDef), probe.target
        assert not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(found)), probe.target
        if probe.kind == "step":
            assert parameters(found)[1] in BATCHES, probe.target
        if probe.kind == "graph":
            assert parameters(found)[1] in {"bs", "shape_key", "num_seqs"}, probe.target


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_hooks_read_of_batches_and_runners(release: str) -> None:
    wheel = wheel_of(release)
    batches = "sglang.srt.managers.schedule_batch.ScheduleBatch"
    for field in ("reqs", "forward_mode", "is_extend_in_batch"):
        assert wheel.find(f"{batches}.{field}") is not None
    request = wheel.find("sglang.srt.managers.schedule_batch.Req")
    assert request is not None
    for field in ("origin_input_ids", "output_ids"):
        assert re.search(rf"self\.{field}\b(: [^=]+)? = ", ast.unparse(request)), field
    forward = "sglang.srt.model_executor.forward_batch_info"
    for name in ("ForwardMode.is_extend", "ForwardMode.is_target_verify", "ForwardBatch.batch_size"):
        assert wheel.find(f"{forward}.{name}") is not None
    runner = wheel.text("sglang/srt/model_executor/model_runner.py")
    assert "self.is_draft_worker = " in runner
    assert "self.gpu_id = " in runner


@pytest.mark.parametrize("release", RELEASES)
def test_the_registry_takes_what_the_plugin_gives(release: str) -> None:
    wheel = wheel_of(release)
    registry = "sglang.srt.plugins.hook_registry.HookRegistry"
    register = wheel.find(f"{registry}.register")
    assert isinstance(register, ast.FunctionDef)
    assert parameters(register)[:4] == ["cls", "target", "hook", "hook_type"]
    assert wheel.find(f"{registry}.apply_hooks") is not None
    assert 'AROUND = "around"' in wheel.text("sglang/srt/plugins/hook_registry.py")
    assert '"sglang.srt.plugins"' in wheel.text("sglang/srt/plugins/__init__.py")
    assert "load_plugins()" in wheel.text("sglang/srt/managers/scheduler.py")


@pytest.mark.parametrize("release", ["0.5.12", "0.5.17", "0.5.23"])
def test_under_the_real_registry(release: str, tmp_path: Path) -> None:
    """SGLang's own loader and registry, in a tree whose other modules are stand-ins."""
    wheel = wheel_of(release)
    root = fake_server.build(tmp_path)
    for name in ("__init__", "hook_registry"):
        file = f"sglang/srt/plugins/{name}.py"
        (root / file).write_text(wheel.text(file))
    script = "worker = dflash(graphs=False)\nprint(worker.forward_batch_generation(batch('DECODE', 3)))"
    done = fake_server.run(root, script)
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
    assert done.stderr == ""
    (record,) = (root / "out").glob("plugin-*.json")
    assert '"missing": []' in record.read_text()
    shutil.rmtree(root / "out")


class EAGLEWorkerV2:
    """Named as SGLang's."""

    __module__ = "sglang.srt.speculative.eagle_worker_v2"


def test_a_derived_worker_has_the_rows_of_its_base() -> None:
    standalone = type("StandaloneWorkerV2", (EAGLEWorkerV2,), {})
    assert groups_of(standalone, (0, 5, 17)) == ("eagle",)
    assert groups_of(int, (0, 5, 17)) == ()


def test_a_later_release_has_the_rows_of_the_newest() -> None:
    assert list(probes_of((0, 6, 0), "dflash")) == list(probes_of((0, 5, 23), "dflash"))
    assert release_of("0.5.15.post1") == (0, 5, 15)


@pytest.mark.parametrize("version", ["main", "0.0.0", "0.0.0.dev1+g12ab", "unknown"])
def test_a_build_from_source_has_the_rows_of_the_newest(version: str) -> None:
    assert not names_release(version)
    assert release_of(version) == NEWEST == release_of(RELEASES[-1])
