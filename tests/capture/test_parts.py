"""The parts of a capture that need no server."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from profkit.capture import dry_run, load_settings, make_plan, preset_names
from profkit.capture.arguments import command_line, resolve
from profkit.capture.backends.nsys import NsysBackend
from profkit.capture.checks import check_plan
from profkit.capture.gpu_names import _same_bus
from profkit.capture.importing import Window
from profkit.capture.machine import as_samples
from profkit.capture.models import drafter_config, target_config
from profkit.capture.plan import Plan, write_models
from profkit.capture.plugin import TARGET, plugin_environment, read_report
from profkit.capture.processes import MARKER, ProcessTree
from profkit.capture.prompts import prompts, read_prompts
from profkit.capture.secrets import Scrubber, is_secret, without_secrets
from profkit.capture.settings import LoadSettings
from profkit.capture.sglang_source import read_arguments
from profkit.traces import InputError, OutputError, UsageError
from tests.capture import places
from tests.sglang.wheels import wheel_of


def plan_of(tmp_path: Path, *overrides: str, conc: tuple[int, ...] = (1,)) -> Plan:
    settings = load_settings(str(places.write_configuration(tmp_path)), overrides)
    return make_plan(settings, conc, tmp_path / "out")


@pytest.fixture
def posing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(places.write_package(tmp_path)))
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "GITHUB_PAT", "api_key", "SSH_AUTH_SOCK",
        "PGPASSWORD", "MYPASSWORD", "CLIENTSECRET", "MYTOKEN", "GITHUBTOKEN", "authToken", "npm_config__authToken",
        "SSHPASS", "DB_PASS", "AZURE_STORAGE_CONNECTION_STRING", "SLACK_WEBHOOK_URL", "api-key", "apiKey", "MYSQL_PWD",
        "AUTHORIZATION", "CI_JOB_TOKEN_PROD", "GOOGLE_APPLICATION_CREDENTIALS", "SENTRY_DSN", "CONNSTR",
    ],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    assert is_secret(name, "x")


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "PWD", "NCCL_P2P_DISABLE", "TOKENIZERS_PARALLELISM", "HOME", "tokenizer_path", "XAUTHORITY", "BYPASS",
        "GIT_AUTHOR_NAME", "SSL_CERT_FILE", "speculative_token_map", "forward_hooks", "MONKEYPATCH", "SGLANG_PATH",
        "enable_forward_pass_metrics", "SGLANG_SIMULATE_ACC_TOKEN_MODE", "SGLANG_BATCH_TOKENIZER_OUTPUTS",
    ],
)  # fmt: skip
def test_harmless_names(name: str) -> None:
    assert not is_secret(name, "/x")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_total_tokens", "4096"), ("SGLANG_MAX_THINK_TOKENS", "-1"), ("SGLANG_LOG_DECODE_GRAPH_KEY", "true"),
        ("SGLANG_NEW_TOKEN_RATIO", "0.7"), ("prompt_tokens_buckets", "[1, 2.5]"), ("HF_TOKEN", ""),
    ],
)  # fmt: skip
def test_numbers_and_switches_are_no_secrets(name: str, value: str) -> None:
    assert not is_secret(name, value)
    assert is_secret("PGPASSWORD", "4096")
    assert is_secret("API_KEY", "123456789012")


@pytest.mark.parametrize(
    "value",
    [
        "https://u:p@h/m", "https://h/m?api_key=abc", "https://hooks.slack.com/services/T0/B0/x", "Bearer abcdefgh12",
        "hf_" + "a" * 24, "ghp_" + "b" * 24, "AKIA" + "C" * 16,
    ],
)  # fmt: skip
def test_secrets_by_what_they_look_like(value: str) -> None:
    assert is_secret("ANYTHING", value)
    assert value not in Scrubber({})(f"before {value} after")


@pytest.mark.parametrize("release", ["0.5.12", "0.5.17", "0.5.23"])
def test_no_argument_or_variable_of_sglang_is_taken_for_a_secret(release: str, tmp_path: Path) -> None:
    """With the values that each has in the release: most are numbers and switches."""
    known = read_arguments(extracted(release, tmp_path))
    named = [name for name, argument in known.fields.items() if argument.kind is str and is_secret(name, "word")]
    assert set(named) == {"api_key", "admin_api_key", "ssl_keyfile_password"}
    variables = re.findall(r"^    (\w+) = Env", wheel_of(release).text("sglang/srt/environ.py"), re.MULTILINE)
    assert len(variables) > 100
    assert [name for name in variables if is_secret(name, "1")] == []


def test_secrets_are_removed_from_text_and_environment() -> None:
    environment = {"MY_API_KEY": "sk-planted-1", "http_proxy": "http://me:word@proxy", "PATH": "/bin"}
    assert without_secrets(environment) == {"PATH": "/bin"}
    scrub = Scrubber(environment)
    assert scrub("a sk-planted-1 b https://u:p@h/") == "a [removed] b https://[removed]@h/"
    assert scrub("GET /m?api_key=abc&n=3, HF_TOKEN=abc MAX_TOKENS=5") == (
        "GET /m?api_key=[removed]&n=3, HF_TOKEN=[removed] MAX_TOKENS=5"
    )
    assert scrub("KeyError: 'x' in tokenizer_path=/m") == "KeyError: 'x' in tokenizer_path=/m"
    tree = {"server": {"token": "abc", "n": 3, "list": ["sk-planted-1"]}, "text": "sk-planted-1"}
    assert scrub.over(tree) == {
        "server": {"token": "[removed]", "n": 3, "list": ["[removed]"]},
        "text": "[removed]",
    }


def test_a_password_of_a_url_is_removed_where_it_stands_alone() -> None:
    assert Scrubber({"https_proxy": "http://me:word-planted@proxy"})("auth word-planted") == "auth [removed]"


def test_drafter_fits_its_target() -> None:
    for shape in ("qwen3-8b", "qwen3-30b-a3b"):
        target, drafter = target_config(shape), drafter_config(shape, 8)
        ids = drafter["dflash_config"]["target_layer_ids"]
        assert drafter["architectures"] == ["DFlashDraftModel"]
        assert (drafter["hidden_size"], drafter["vocab_size"]) == (target["hidden_size"], target["vocab_size"])
        assert len(ids) == drafter["num_hidden_layers"] == len(drafter["layer_types"]) == len(set(ids))
        assert 0 <= min(ids) <= max(ids) < target["num_hidden_layers"] == drafter["num_target_layers"]
        assert not any("expert" in key for key in drafter)
    assert drafter_config("qwen3-8b", 8)["dflash_config"]["target_layer_ids"] == [1, 9, 17, 25, 33]


def test_plan_writes_models_and_raises_the_batch_limit(posing: Path) -> None:
    plan = plan_of(posing, conc=(1, 128))
    assert plan.passes[0].server["max_running_requests"] == 128
    assert "at most 48 requests" in plan.remarks[0]
    write_models(plan)
    written = json.loads((posing / "out" / "models" / "drafter" / "config.json").read_text())
    assert written["block_size"] == 8


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("installed", [True, False])
def test_dry_run_of_every_preset(name: str, installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, without SGLang and without nsys, and nothing is written."""
    monkeypatch.setenv("NSYS", str(tmp_path / "absent"))
    package = read_arguments(extracted("0.5.17", tmp_path)) if installed else None
    monkeypatch.setattr("profkit.capture.plan.find_sglang", lambda: tmp_path if package else None)
    monkeypatch.setattr("profkit.capture.plan.read_arguments", lambda _: package)
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    overrides = ["server.revision=hf_planted"]
    plan = make_plan(load_settings(name, overrides), [1, 32, 128], tmp_path / "out", graphs="both")
    text = dry_run(plan)
    assert text.count("-m sglang.launch_server --host 127.0.0.1") == 2
    assert text.count("--cuda-graph-trace=node") == 2
    assert "--disable-decode-cuda-graph" in text
    assert ("not installed here" in text) != installed
    assert "hf_planted" not in text
    windows = plan.settings.windows
    least, most = f"at least {windows.measure_s:g} s", f"at most {windows.measure_most_s:g} s"
    assert f"measure through a whole output of every request ({least}, {most}), record" in text
    assert text.count("--output=$SCRATCH/report") == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("release", ["0.5.12", "0.5.14", "0.5.17", "0.5.20", "0.5.23"])
def test_every_preset_fits_the_released_wheels(release: str, tmp_path: Path) -> None:
    known = read_arguments(extracted(release, tmp_path))
    assert known.version == release
    for name in preset_names():
        server = {**load_settings(name).server, "model_path": "/m", "disable_decode_cuda_graph": True}
        resolved, renamed = resolve({**server, "host": "h", "port": 1, "max_running_requests": 128}, known)
        assert command_line(resolved, known).count("--model-path") == 1
        assert all(f"SGLang {release} calls" in sentence for sentence in renamed)


def extracted(release: str, folder: Path) -> Path:
    """The part of SGLang's wheel that holds its arguments."""
    with zipfile.ZipFile(wheel_of(release).path) as archive:
        wanted = ("sglang/srt/server_args.py", "sglang/srt/arg_groups/", "sglang/version.py", "sglang/_version.py")
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(wanted)])
    return folder / "sglang"


def test_sizes_are_those_that_the_server_gets(posing: Path) -> None:
    plan = plan_of(posing, "server.cuda_graph_bs=[1,2]", "server.speculative_dflash_block_size=4")
    assert plan.passes[0].server["cuda_graph_bs_decode"] == [1, 2]
    assert plan.graph_batch_sizes == [1, 2]
    assert plan.block_size == 4
    settings = load_settings(str(places.write_configuration(posing)))
    assert make_plan(settings, [1], posing / "out", graphs="off").graph_batch_sizes == []
    assert make_plan(settings, [1], posing / "out", graphs="both").graph_batch_sizes == [1, 2, 4]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("load.output_len=64", "requests of 64 tokens can end within a window, which takes up to 96"),
        ("server.max_running_requests=2", "max_running_requests is 2: of 8 requests the others wait"),
        ("load.prompt_len=16", "CUDA graphs end at batch size 4: at concurrency 8 the server runs without them"),
    ],
)
def test_remarks(posing: Path, override: str, said: str) -> None:
    assert any(said in remark for remark in plan_of(posing, override, conc=(1, 8)).remarks)
    assert not any(said in remark for remark in plan_of(posing, conc=(1, 4)).remarks)


def test_no_remark_on_graphs_where_there_are_none(posing: Path) -> None:
    settings = load_settings(str(places.write_configuration(posing)))
    assert make_plan(settings, [8], posing / "out", graphs="off").remarks == ()


def test_text_needs_a_tokenizer(posing: Path) -> None:
    (posing / "p.jsonl").write_text('{"input_ids": [1]}\n{"text": "hello"}\n')
    plan = plan_of(posing, f"load.prompts={posing / 'p.jsonl'}")
    check_plan(plan)
    settings = msgspec.structs.replace(plan.settings, server={**plan.settings.server, "skip_tokenizer_init": True})
    with pytest.raises(InputError, match=r"holds text, which needs a tokenizer.*give input_ids"):
        check_plan(replace(plan, settings=settings))


def test_both_passes(posing: Path) -> None:
    settings = load_settings(str(places.write_configuration(posing)))
    passes = make_plan(settings, [1], posing / "out", graphs="both").passes
    assert [(one.graphs, one.suffix) for one in passes] == [(True, ""), (False, "-eager")]
    assert "--disable-decode-cuda-graph" in passes[1].command
    assert "--disable-decode-cuda-graph" not in passes[0].command


def test_checks_say_what_to_do(posing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_plan(plan_of(posing))
    with pytest.raises(UsageError, match=r"takes 32 GPU\(s\).*see --list"):
        check_plan(plan_of(posing, "server.device=cuda", "server.tp_size=32"))
    with pytest.raises(UsageError, match=r"server.model_path: /nowhere is no folder.*download it first"):
        check_plan(plan_of(posing, "server.model_path=/nowhere"))
    monkeypatch.setattr("profkit.capture.checks.NEEDED_BYTES", 1 << 60)
    with pytest.raises(OutputError, match="GiB free, and a capture can need"):
        check_plan(plan_of(posing))


def test_output_folder_is_not_overwritten(posing: Path) -> None:
    plan = plan_of(posing)
    (posing / "out").mkdir()
    (posing / "out" / "something").touch()
    with pytest.raises(OutputError, match="holds something already; choose another place with -o"):
        check_plan(plan)


@pytest.mark.parametrize("below", ["x", "x/y/z"])
def test_an_output_below_a_file(posing: Path, below: str) -> None:
    (posing / "full").write_text("")
    plan = replace(plan_of(posing), folder=posing / "full" / below)
    with pytest.raises(OutputError, match="full: is a file, not a folder; choose another place with -o"):
        check_plan(plan)


def test_an_output_where_no_file_can_be(posing: Path) -> None:
    said = "keeps no files|no permission to write"
    with pytest.raises(OutputError, match=said):
        check_plan(replace(plan_of(posing), folder=Path("/proc/nope")))


def test_prompts(tmp_path: Path) -> None:
    source = prompts(LoadSettings(prompt_len=5, seed=3))
    first, second = next(source), next(source)
    assert len(first["input_ids"]) == 5
    assert first != second
    assert next(prompts(LoadSettings(prompt_len=5, seed=3))) == first
    assert len(next(prompts(LoadSettings(prompt_len=5, text=True)))["text"].split()) == 5
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"text": "hello"}\n\n{"input_ids": [1, 2]}\n')
    assert read_prompts(file) == [{"text": "hello"}, {"input_ids": [1, 2]}]
    file.write_text('{"text": "hello"}\n{"prompt": "x"}\n')
    with pytest.raises(InputError, match="line 2 has neither text nor input_ids"):
        read_prompts(file)


def test_samples_come_onto_the_trace_clock() -> None:
    rows = [(1_000_000_500, 1, "power_w", 300.0), (1_000_000_900, 0, "sm_clock_mhz", 1980.0)]
    samples, strings = as_samples(rows, ("kernel",), 1_000_000_400)
    assert samples.time.tolist() == [100, 500]
    assert [strings[i] for i in samples.counter] == ["power_w", "sm_clock_mhz"]
    assert strings[0] == "kernel"
    assert np.allclose(samples.value, [300.0, 1980.0])


def test_bus_ids_of_nvml_and_nsys() -> None:
    assert _same_bus("00000000:1B:00.0", "0000:1b:00.0")
    assert not _same_bus("00000000:1B:00.0", "0000:1c:00.0")
    assert not _same_bus("", "")


def test_recorded_throughput_follows_from_the_step_period() -> None:
    window = Window(32, True, "c32", accept_length=3.5, period_ns=7e6)
    assert window.tokens_per_s_recorded == pytest.approx(16_000)
    assert Window(1, True, "c1").tokens_per_s_recorded is None


def test_entry_point_for_a_profkit_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.capture.plugin.is_installed", lambda: False)
    added = plugin_environment({"SGLANG_PLUGINS": "other", "PYTHONPATH": "/kept"}, tmp_path, tmp_path / "plugin")
    assert added["SGLANG_PLUGINS"] == "other,profkit"
    assert added["PYTHONPATH"].endswith("/kept")
    ask = "import importlib.metadata as m; print([p.value for p in m.entry_points(group='sglang.srt.plugins')])"
    written = tmp_path / "plugin-path"  # alone on the path: profkit may well be installed where the tests run
    said = subprocess.run(
        [sys.executable, "-S", "-c", ask],
        env={**os.environ, "PYTHONPATH": str(written)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert added["PYTHONPATH"].startswith(str(written))
    assert said.strip() == "['profkit.sglang.plugin:activate']"
    assert callable(pkgutil.resolve_name(TARGET))


def test_what_the_plugin_says(tmp_path: Path) -> None:
    assert "was not loaded" in read_report(tmp_path).amiss[0]
    record = {
        "schema": "profkit.plugin/1", "pid": 7, "probes": [{"target": "a", "kind": "k", "range": None}],
        "missing": [{"target": "b.c", "range": "draft", "reason": "AttributeError: c"}],
        "faults": [{"where": "a", "error": "ValueError: 1"}],
        "runners": [{"role": "target", "gpu_id": 1, "tp_rank": 1}, {"role": "draft", "gpu_id": 1, "tp_rank": 1}],
    }  # fmt: skip
    (tmp_path / "plugin-7.json").write_text(json.dumps(record))
    (tmp_path / "plugin-8.json").write_text('{"pid": 8, "pro')
    report = read_report(tmp_path)
    assert report.ranks == {7: 1}
    assert report.amiss == ("a hook failed at a: ValueError: 1", "the plugin's probe b.c is missing")


def test_reports_by_window(tmp_path: Path) -> None:
    backend = NsysBackend(on_gpu=True)
    assert backend.reports(tmp_path) == {}
    stream = tmp_path / "nsys-report-12ab.qdstrm"
    stream.write_text("x")
    assert backend.reports(tmp_path) == {1: stream}
    for name in ("report.1.qdstrm", "report.1.nsys-rep", "report.2.qdstrm", "report.10.nsys-rep"):
        (tmp_path / name).write_text("x")
    found = {number: file.name for number, file in backend.reports(tmp_path).items()}
    assert found == {1: "report.1.nsys-rep", 2: "report.2.qdstrm", 10: "report.10.nsys-rep"}


def test_nsys_records_graph_nodes_and_no_samples_of_the_cpu(tmp_path: Path) -> None:
    words = NsysBackend(on_gpu=True).wrapper(tmp_path)
    wanted = ("--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node", "--capture-range-end=repeat")
    assert set(wanted) < set(words)
    assert NsysBackend(on_gpu=True).window(1, 20, tmp_path)["activities"] == ["CUDA_PROFILER"]


def test_missing_or_old_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match=r"\$NSYS is .*/absent, and there is no such file"):
        NsysBackend(on_gpu=True).check()
    old = tmp_path / "nsys"
    old.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2019.5.2\n")
    old.chmod(0o755)
    monkeypatch.setenv("NSYS", str(old))
    with pytest.raises(UsageError, match=r"release 2019\.5\.2 is too old; install nsys 2022\.2 or newer"):
        NsysBackend(on_gpu=True).check()


ORPHAN = """
import subprocess, sys, time
code = "import time; time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{code}' & exit 0"], start_new_session=True).wait()
print("ready", flush=True)
time.sleep(600)
"""


def test_a_tree_ends_with_its_orphans() -> None:
    tree = ProcessTree()
    environment = {**os.environ, MARKER: tree.marker}
    with subprocess.Popen([sys.executable, "-c", ORPHAN], env=environment, stdout=subprocess.PIPE, text=True) as root:
        assert root.stdout is not None
        root.stdout.readline()
        tree.add(root.pid)
        began = time.monotonic()
        members = tree.refresh()
        assert len(members) == 3
        assert tree.end(1.0) == []
        assert time.monotonic() - began < 10
    assert tree.refresh() == []
