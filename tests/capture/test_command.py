"""The command as a user meets it: what it says to slips, and the table at its end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from profkit.capture import load_settings, make_plan
from profkit.cli import main
from profkit.cli.capture import _command_line, _summary
from profkit.traces import Sweep, SweepRun
from profkit.traces.sweep import SCHEMA
from tests.capture import places

SLIPS = (
    ("--set", "server=5"),
    ("--set", "windows=5", "--steps", "5"),
    ("--set", "server.port=abc"),
    ("--set", "server.port=70000"),
    ("--set", "server.tp_size=two"),
    ("--set", "server.cuda_graph_bs_decode=5"),
    ("--set", "windows.warm_up_s=inf"),
    ("--set", "env.A.B=1"),
    ("--conc", "1,,2"),
    ("--conc", "0"),
    ("--backend", "nsys,perf"),
    ("--backend", ""),
    ("--backend", ","),
)


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("slip", SLIPS, ids=" ".join)
def test_slips_have_a_message_of_their_own(
    slip: tuple[str, ...],
    installed: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if installed:
        monkeypatch.syspath_prepend(str(places.write_package(tmp_path)))
    monkeypatch.setattr("profkit.capture.plan.find_sglang", lambda: tmp_path / "sglang" if installed else None)
    configuration = str(places.write_configuration(tmp_path))
    assert main(["capture", "--config", configuration, "--dry-run", *slip]) == 2
    said = capsys.readouterr().err
    assert "unexpected" not in said
    assert slip[1].partition("=")[0].removesuffix(".B") in said or slip[0] in said
    assert said.count("\n") == 1


def test_a_dry_run_says_which_recorders_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the plan, and with the status of a capture that does not start."""
    monkeypatch.setenv("NSYS", "/nowhere/nsys")
    monkeypatch.setattr("profkit.capture.backends.cupti.cupti_version", lambda: "")
    monkeypatch.setattr("profkit.capture.backends.torch.TorchBackend.check", lambda self: None)
    monkeypatch.setattr("profkit.capture.plan.find_sglang", lambda: None)
    options = ["capture", "--config", "tp1", "-o", str(tmp_path / "out"), "--dry-run"]
    assert main([*options, "--backend", "nsys,torch,cupti"]) == 2
    shown, said = capsys.readouterr()
    assert shown.count("-m sglang.launch_server") == 3
    nsys = "$NSYS is /nowhere/nsys, and there is no such file; set it to an nsys, or unset it"
    cupti = "--backend cupti: the package cupti is missing; pip install 'profkit[capture]'"
    more = "SGLang is not installed either: `profkit doctor` names all that a capture lacks here"
    assert said == f"profkit: {nsys}; {cupti}; {more}\n"
    assert main([*options, "--backend", "torch"]) == 0
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("missing", ["httpx", "psutil"])
def test_without_the_extra(missing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "profkit.capture" or name.startswith("profkit.capture.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("profkit.capture", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["capture", "--list"]) == 2
    assert f"capture needs {missing}, which is missing: pip install 'profkit[capture]'" in capsys.readouterr().err


def test_keeping_raw_reports_is_said_to_keep_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--backend TEXT Recorder: nsys, cupti or torch" in said
    assert "--keep-raw Keep reports that cannot be imported" in said
    assert "whole environment" in said


@pytest.mark.parametrize("word", ["--set=env.HF_TOKEN=x", "--set=server.api-key=x", "--set=a=planted-value"])
def test_the_command_is_recorded_without_secrets(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["profkit", "capture", word, "--conc", "1"])
    line = _command_line({"MY_PASSWORD": "planted-value"})
    assert line.startswith("profkit capture ") and line.endswith(" --conc 1")
    assert "[removed]" in line
    assert not line.partition(" --conc")[0].endswith("=x")


def test_the_table_names_every_window_of_the_plan(tmp_path: Path) -> None:
    plan = make_plan(load_settings("tp1"), [1, 32, 128], tmp_path / "out", graphs="both")
    runs = [
        SweepRun(concurrency=1, graphs=True, recorder="nsys", trace="c1", tokens_per_s=100.0, accept_len=3.5),
        SweepRun(concurrency=32, graphs=True, recorder="nsys", tokens_per_s=1000.0, failure="fewer steps than wanted"),
        SweepRun(concurrency=128, graphs=True, recorder="nsys", failure="not tried: the server had ended"),
    ]
    table = _summary(Path("out"), Sweep(schema=SCHEMA, config="tp1", runs=runs, note="stopped before its end"), plan)
    lines = [" ".join(line.split()) for line in table.splitlines()]
    assert lines[0].endswith("; stopped before its end")
    assert lines[1:4] == [
        "c1 graphs 100 tok/s, accept length 3.50",
        "c32 graphs 1,000 tok/s; fewer steps than wanted",
        "c128 graphs not measured; not tried: the server had ended",
    ]
    assert lines[4:7] == [f"c{concurrency} eager not tried" for concurrency in (1, 32, 128)]
    assert lines[7:] == ["1 of 6 windows recorded", "next: profkit report out"]
    nothing = _summary(Path("out"), Sweep(schema=SCHEMA, config="tp1", runs=[]), plan)
    assert nothing.endswith("0 of 6 windows recorded")
