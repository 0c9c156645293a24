"""``profkit diff``: exit statuses, the JSON contract, baselines, and what the terminal shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profkit.analyzers import Rules, attribute
from profkit.analyzers.attribution import Attribution
from profkit.cli import main
from profkit.traces import Sweep, SweepRun, Trace, load_sweep, save_bundle, save_sweep

from .pairs import Served, at_concurrency, trace_of

ROOT = Path(__file__).parents[2]
PLAIN, DFLASH, EAGER = (str(ROOT / "traces" / name) for name in ("ep2/c1", "ep2-dflash/c1", "ep2-dflash/c1-eager"))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a fast recording, a like one, and a slow one."""
    for name, plan in (
        ("fast", Served(seed=1, layers=3)),
        ("alike", Served(seed=2, layers=3)),
        ("slow", Served(seed=3, layers=3, gemm=40_000)),
    ):
        save_bundle(trace_of(plan), tmp_path / "traces" / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def sweep(folder: Path, traces: dict[int, Trace], **known: Any) -> Path:
    for concurrency, trace in traces.items():
        save_bundle(trace, folder / f"c{concurrency}")
    runs = [SweepRun(concurrency=n, trace=f"c{n}", accept_len=3.0) for n in traces]
    save_sweep(Sweep(schema="profkit.sweep/1", config=folder.name, runs=runs, **known), folder)
    return folder


def output(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", EAGER, DFLASH, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["a"], found["b"]) == ("profkit.diff/1", "ep2-dflash/c1-eager", "ep2-dflash/c1")
    assert found["per"] == "step" and found["comparable"]["status"] == "warn"
    change = {"a_ns", "b_ns", "delta_ns", "ci95_ns", "significant"}
    assert change <= set(found["total"])
    assert {"phase", "part", "class", *change} == set(found["parts"][0])
    assert sum(part["delta_ns"] for part in found["parts"]) == found["total"]["delta_ns"]
    assert all(isinstance(part[name], int) for part in found["parts"] for name in ("a_ns", "b_ns", "delta_ns"))
    assert all(len(part["ci95_ns"]) == 2 and part["ci95_ns"][0] <= part["ci95_ns"][1] for part in found["parts"])
    assert {part["class"] for part in found["parts"] if part["part"].startswith("gap_")} == {None}
    assert len(found["pairs"]) == 1 and found["pairs"][0]["total"] == found["total"]


def test_per_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", PLAIN, DFLASH, "--json", "--per", "token"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["per"] == "token" and found["total"]["b_ns"] == 2_779_936


def test_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", EAGER, DFLASH]) == 0
    text = capsys.readouterr().out
    assert "! graph mode: eager launches in A, CUDA graphs in B." in text
    rows = text.split("The largest changes")[1].split("total")[0].splitlines()
    assert len([row for row in rows if row.startswith(("verify", "draft", "accept", "kv_", "step_", "outside"))]) == 10
    assert " ".join(text.split()).endswith("as steps yield 3.51 tokens, not 3.46.")
    assert "disable_decode_cuda_graph: True in A, not set in B" in text or "graph mode" in text


@pytest.mark.parametrize(
    ("b", "limits", "status"),
    [
        ("slow", ["verify>5%"], 1),
        ("slow", ["draft>5%", "gap_host>10us", "verify:gemm>5us"], 1),
        ("slow", ["verify>90%", "total>10ms"], 0),
        ("alike", ["verify>5%", "gap_host>10us", "total>1%"], 0),
        ("alike", ["total>0ns", "verify>0ns", "draft>0ns", "gemm>0ns"], 0),
        ("slow", [], 0),
    ],
)
def test_fail_on(workspace: Path, b: str, limits: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    options = [option for limit in limits for option in ("--fail-on", limit)]
    assert main(["diff", "traces/fast", f"traces/{b}", *options]) == status
    text = capsys.readouterr().out
    assert all(limit in text for limit in limits)
    assert ("✗ exceeded" in text) == (status == 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["traces/fast"], "give A and B"),
        (["traces/fast", "traces/slow", "traces/alike"], "not 3; give A and B"),
        (["traces/fast", "traces/slow", "--fail-on", "verify"], "no limit"),
        (["traces/fast", "traces/slow", "--fail-on", "verifi>5%"], "unknown name 'verifi'"),
        (["traces/fast", "traces/none"], "no such file"),
        (
            ["--baseline", "main", "traces/fast"],
            "no baseline of this name (none is kept yet); keep one with --keep main",
        ),
        (["--baseline", "../x", "traces/fast"], "cannot name a baseline"),
        (["--keep", ".hidden", "traces/fast"], "cannot name a baseline"),
        (["--baseline", "main", "traces/fast", "traces/slow"], "no baseline"),
    ],
)
def test_wrong_use(workspace: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_inconclusive(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tokens unknown: nothing is compared, the reason is said, and the JSON holds it too."""
    assert main(["diff", "traces/fast", "traces/slow", "--per", "token"]) == 3
    assert "✗ how many tokens a step of A yields is unknown" in output(capsys)
    assert main(["diff", "traces/fast", "traces/slow", "--per", "token", "--json", "--fail-on", "verify>5%"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["comparable"]["status"] == "no" and found["total"] is None and found["parts"] == []
    assert main(["diff", "traces/fast", "traces/slow", "--per", "token", "--accept-len", "2"]) == 0


def test_a_limit_on_what_neither_has(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that nothing in the two recordings has is no pass; one that does not exist is a wrong use."""
    assert main(["diff", "traces/fast", "traces/alike", "--json", "--fail-on", "prefill>5%"]) == 3
    (limit,) = json.loads(capsys.readouterr().out)["limits"]
    assert limit["status"] == "unknown" and limit["note"] == "neither A nor B has any time of 'prefill'"
    assert main(["diff", "traces/fast", "traces/fast", "--fail-on", "prefill>5%"]) == 0
    assert main(["diff", "traces/fast", "traces/slow", "--fail-on", "verify>5%", "--fail-on", "moe>5%"]) == 1


def test_help_names_all_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--help"]) == 0
    assert "%, ns, us, ms or s" in output(capsys)
    assert main(["diff", PLAIN, DFLASH, "--fail-on", "verify"]) == 2
    assert "%, ns, us, ms or s" in capsys.readouterr().err


@pytest.mark.parametrize("written", ["traces/ep2-dflash/c1-eager", "traces/ep2-dflash/../ep2-dflash/c1-eager/", "."])
def test_one_recording_of_a_sweep_has_its_record(
    written: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings, versions and the recorder's cost are known of both sides, however the recordings are named."""
    monkeypatch.chdir(EAGER if written == "." else ROOT)
    assert main(["diff", written, PLAIN, "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["comparable"]["reasons"]
    assert "the recorder slowed A by 25 %" in reasons
    assert "speculative_algorithm: DFLASH in A, not set in B" in reasons
    assert not [reason for reason in reasons if "not recorded" in reason]


def test_a_side_without_a_record(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prompt length and backend are not known of a bundle beside no sweep, and that is said once."""
    assert main(["diff", DFLASH, "traces/fast", "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["comparable"]["reasons"]
    assert [reason for reason in reasons if "not recorded" in reason] == [
        "not recorded: GPU, driver, versions, attention backend, prompt length and accept length of B"
    ]


def test_a_record_that_names_a_few_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """Of an imported recording, a setting that is not named is not known; it is no difference."""
    assert main(["diff", str(ROOT / "traces/tp1-dflash/c1"), str(ROOT / "traces/tp1-dflash-torch"), "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["comparable"]["reasons"]
    (missing,) = [reason for reason in reasons if "not recorded" in reason]
    assert missing.endswith("versions, attention backend and prompt length of B")
    assert not [reason for reason in reasons if "not set" in reason or "engine" in reason or "torch:" in reason]


def test_a_backend_that_the_server_chose(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [
        sweep(
            workspace / "traces" / backend,
            {1: trace_of(Served(seed=seed, layers=2), 8, 1)},
            settings={"configuration": {"load": {"prompt_len": 128}}, "resolved": {"attention_backend": backend}},
        )
        for seed, backend in ((1, "fa3"), (2, "triton"))
    ]
    assert main(["diff", str(made[0]), str(made[1]), "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["comparable"]["reasons"]
    assert reasons == ["attention_backend: fa3 in A, triton in B"]


def test_a_limit_that_noise_cannot_judge(workspace: Path) -> None:
    save_bundle(trace_of(Served(seed=4, layers=3, gemm=90_000), 3), workspace / "traces" / "short")
    assert main(["diff", "traces/fast", "traces/short", "--fail-on", "verify>5%"]) == 3


def test_baseline(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--keep", "main", "traces/fast"]) == 0
    assert output(capsys) == "baselines/main: kept as a baseline"
    assert main(["diff", "--baseline", "main", "traces/fast"]) == 0
    assert "A and B are the same recording, so nothing changed." in output(capsys)
    assert main(["diff", "--baseline", "main", "traces/slow", "--fail-on", "verify>5%", "--keep", "main"]) == 1
    assert main(["diff", "--baseline", "main", "traces/alike", "--fail-on", "verify>5%", "--keep", "main"]) == 0
    capsys.readouterr()
    assert main(["diff", "--baseline", "main", "traces/alike"]) == 0
    assert "same recording" in output(capsys)
    assert main(["diff", "--baseline", "other", "traces/alike"]) == 2
    assert "there are main" in capsys.readouterr().err
    assert [path.name for path in (workspace / "baselines").iterdir()] == ["main"]


@pytest.mark.parametrize(
    ("b", "options", "status", "why"),
    [
        ("slow", ["--fail-on", "verify>5%"], 1, "a limit is exceeded"),
        ("alike", ["--fail-on", "prefill>5%"], 3, "a limit is not known to hold"),
        ("alike", ["--per", "token"], 3, "A and B cannot be compared"),
    ],
)
def test_a_baseline_that_is_not_moved_on(
    workspace: Path, b: str, options: list[str], status: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", "--keep", "main", "traces/fast"]) == 0
    capsys.readouterr()
    assert main(["diff", "--baseline", "main", f"traces/{b}", *options, "--keep", "main"]) == status
    assert capsys.readouterr().err == (
        f"baseline 'main' is left as it was: {why}; to keep B all the same, run profkit diff --keep main B alone\n"
    )
    assert main(["diff", "--baseline", "main", "traces/fast"]) == 0
    assert "same recording" in output(capsys)


def test_one_recording_of_a_sweep_is_kept_with_its_record(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that later comparisons know its backend, prompt length and accept length."""
    known = {"settings": {"attention_backend": "triton", "prompt_len": 128}}
    made = sweep(workspace / "traces" / "s", {n: trace_of(Served(seed=n, layers=2), 8, 1) for n in (1, 32)}, **known)
    later = sweep(workspace / "traces" / "t", {1: trace_of(Served(seed=3, layers=2), 8, 1)}, **known)
    assert main(["diff", "--keep", "one", str(made / "c32")]) == 0
    kept = load_sweep(workspace / "baselines" / "one")
    assert [run.trace for run in kept.runs] == ["c32"] and kept.settings == known["settings"]
    capsys.readouterr()
    assert main(["diff", "--baseline", "one", str(made / "c32")]) == 0
    assert "same recording" in output(capsys)
    assert main(["diff", "--baseline", "one", str(later / "c1"), "--per", "token", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparable"]["reasons"] == []


def test_sweep_as_baseline(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table of all concurrencies; a sweep is kept with its record."""
    made = {n: trace_of(Served(seed=n, layers=2, batch=n), 8, 1) for n in (1, 32, 128)}
    later = {n: trace_of(Served(seed=n + 1, layers=2, batch=n, gemm=45_000), 8, 1) for n in (1, 32)}
    a = sweep(workspace / "traces" / "before", made, settings={"attention_backend": "triton"})
    b = sweep(workspace / "traces" / "after", later, settings={"attention_backend": "fa3"})
    assert main(["diff", "--keep", "nightly", str(a)]) == 0
    capsys.readouterr()
    arguments = ["diff", "--baseline", "nightly", str(b), "--per", "token"]
    assert main(arguments) == 0
    text = output(capsys)
    assert "all pairs" in text and "! nightly/c128 has no partner of the same concurrency." in text
    assert "attention_backend: triton in A, fa3 in B" in text
    assert main([*arguments, "--json", "--fail-on", "verify>5%"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [pair["sides"][0]["concurrency"] for pair in found["pairs"]] == [1, 32]
    assert [pair["limits"][0]["status"] for pair in found["pairs"]] == ["exceeded", "exceeded"]
    assert found["unpaired"] == ["nightly/c128"]


def test_recordings_without_a_partner_are_not_attributed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {n: trace_of(Served(seed=n, layers=1), 6, 1) for n in (1, 32, 128)}
    a, b = sweep(workspace / "a", made), sweep(workspace / "b", {32: trace_of(Served(seed=2, layers=1), 6, 1)})
    attributed: list[Trace] = []

    def counted(trace: Trace, rules: Rules) -> Attribution:
        attributed.append(trace)
        return attribute(trace, rules)

    monkeypatch.setattr("profkit.cli.diff.attribute", counted)
    assert main(["diff", str(a), str(b), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(attributed) == 2 and found["unpaired"] == ["a/c1", "a/c128"] and len(found["pairs"]) == 1


def test_hostile_names_are_shown_as_they_are(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = at_concurrency(trace_of(Served(seed=5, layers=2, attention="[bold]</script>[/]"), 8), 1)
    save_bundle(trace, workspace / "traces" / "[red]odd")
    assert main(["diff", "traces/fast", "traces/[red]odd"]) == 0
    text = capsys.readouterr().out
    assert "[red]odd" in text and "[bold]" in text


def test_settings_of_captured_sweeps_are_compared_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    """The record of a capture holds nested settings, and times and places that always differ."""
    assert main(["diff", str(ROOT / "traces/tp1"), str(ROOT / "traces/tp1-dflash"), "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["pairs"][0]["comparable"]["reasons"]
    assert any("speculative_algorithm" in reason for reason in reasons)
    assert max(map(len, reasons)) < 160
    assert not any(word in reason for reason in reasons for word in ("startup_time", "command", "configuration", "{"))
