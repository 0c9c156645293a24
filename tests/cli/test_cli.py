"""The commands: answers on stdout, nothing on stderr, and the exit status that goes with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import profkit
from profkit import load_bundle, save_bundle
from profkit.cli import COMMANDS
from tests.analyzers_workspace.workspaces import workspace
from tests.builders import TraceBuilder
from tests.cli.answers import Command, tables_of
from tests.nsys_files import NsysFile, small_step
from tests.traces import kineto_files

REPOSITORY = Path(profkit.__file__).parents[1]


# -- Answers -------------------------------------------------------------------------------------------------------


def test_analyze_in_words(command: Command, step: Path) -> None:
    answer = command("analyze", step)
    assert (answer.status, answer.err) == (0, "")
    assert "step" in answer.out and answer.out.rstrip().endswith(".")


def test_analyze_as_json(command: Command, step: Path) -> None:
    answer = command("analyze", step, "--json")
    assert (answer.status, answer.err) == (0, "")
    assert tables_of(answer)["devices"]["0"]["partition_ns"]["compute"] == 150
    assert tables_of(answer)["name"] == "step"


def test_accept_length(command: Command, tmp_path: Path) -> None:
    """Two steps 100 us apart with 2.5 tokens accepted at batch 4: 100 / 2.5 / 4 = 10 us a token."""
    builder = TraceBuilder()
    for start in (0, 100_000):
        builder.range(start, start + 90_000, "step:decode bs=4").range(start + 1, start + 9, "draft")
        builder.launch(start + 2, start + 3, "gemm", start + 1_000, start + 60_000)
    save_bundle(builder.trace(), tmp_path / "bundle")
    cycle = tables_of(command("analyze", tmp_path / "bundle", "--json", "--accept-len", "2.5"))["cycle"]
    assert (cycle["us_per_token"], cycle["accept_len"]) == (10.0, 2.5)
    assert cycle["accept_len_source"] == "given on the command line"
    assert tables_of(command("analyze", tmp_path / "bundle", "--json"))["cycle"]["us_per_token"] is None


def test_rules_of_a_user(command: Command, tmp_path: Path) -> None:
    """Ranges of another engine get their phase from a pattern, and kernels of another library their class."""
    file = NsysFile().domain(1, "other").range(0, 50, "my decode bs=2").call(5, 6).kernel(60, 80, 1, "zork_kernel")
    rules = tmp_path / "rules.toml"
    rules.write_text(
        "[[phase]]\nmatch = 'my decode'\nphase = 'decode'\n[[class]]\nmatch = 'zork'\nclass = 'attention'\n", "utf-8"
    )
    export = file.write(tmp_path / "export.sqlite")
    device = tables_of(command("analyze", export, "--json", "--rules", rules))["devices"]["0"]
    assert device["phases"]["decode"]["ops"] == 1 and device["classes"]["attention"]["ops"] == 1
    assert command("analyze", export, "--json").status == 3


def test_several_recordings_stand_side_by_side(command: Command, step: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    same_name = small_step().write(tmp_path / "other" / "step.sqlite")
    names = [trace["name"] for trace in json.loads(command("analyze", step, same_name, "--json").out)["traces"]]
    assert names == [str(step), str(same_name)]


def test_import(command: Command, step: Path, tmp_path: Path) -> None:
    before = step.read_bytes()
    answer = command("import", step, "-o", tmp_path / "bundle")
    assert (answer.status, answer.err) == (0, "") and "2 GPU activities" in answer.out
    load_bundle(tmp_path / "bundle").check()
    assert step.read_bytes() == before
    found, expected = (command("analyze", path, "--json") for path in (tmp_path / "bundle", step))
    for answer in (found, expected):
        assert answer.status == 0
    assert tables_of(found)["devices"] == tables_of(expected)["devices"]


def test_import_goes_to_the_workspace(command: Command, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(step.parent)
    assert command("import", step.name).status == 0
    assert len(load_bundle(step.parent / "traces" / "step").ops) == 2


def test_import_of_ranks(command: Command, tmp_path: Path) -> None:
    files = []
    for rank in (0, 1):
        info = {"rank": rank, "world_size": 2}
        events = (kineto_files.launch(1, 2), kineto_files.kernel(5, 3))
        files.append(kineto_files.write(tmp_path / f"r{rank}.json", *events, distributedInfo=info))
    assert command("import", *files, "-o", tmp_path / "bundle").status == 0
    assert load_bundle(tmp_path / "bundle").ops.device.tolist() == [0, 1]


def test_report(command: Command, step: Path, tmp_path: Path) -> None:
    answer = command("report", step, "-o", tmp_path / "page.html")
    assert (answer.status, answer.out.strip(), answer.err) == (0, str(tmp_path / "page.html"), "")
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")


def test_init(command: Command, tmp_path: Path) -> None:
    assert command("init", tmp_path / "work").status == 0
    (tmp_path / "work" / "traces" / "README.md").write_text("mine", "utf-8")
    assert command("init", tmp_path / "work").status == 0
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"traces", "analyzers", "reports"}
    assert (tmp_path / "work" / "traces" / "README.md").read_text("utf-8") == "mine"


def test_demo(command: Command, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(step.parent)
    command("import", step.name)
    answer = command("demo")
    assert (answer.status, answer.err) == (0, "")
    assert (step.parent / "reports" / "all.html").exists() and "reports/step.html" in answer.out
    assert answer.out.startswith("step: ") and "Where a step goes" not in answer.out


def test_demo_answers(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First what comparing the recordings says, then where the pages are; the tables are for `analyze`."""
    monkeypatch.chdir(workspace(tmp_path))
    answer = command("demo")
    assert (answer.status, answer.err) == (0, "")
    said, pages = answer.out.split("\n\nPages (open them in a browser):\n")
    assert said.startswith("plain → drafting: at batch 1 a cycle takes 2.50 plain steps") and said.count("\n") < 3
    assert pages.split() == ["reports/all.html", "reports/drafting.html", "reports/plain.html"]


def test_demo_of_an_empty_workspace(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "traces: no such folder; record one with `profkit capture`" in command("demo").line
    command("init", ".")
    assert "traces: holds no recording; record one with `profkit capture`" in command("demo").line


def test_failed_checks_are_told_in_words(command: Command, tmp_path: Path) -> None:
    builder = TraceBuilder().note("world_size", "2")
    for start in (0, 1_000, 2_000):
        builder.range(start, start + 900, "step:decode bs=1").range(start, start + 9, "draft")
        builder.launch(start, start + 1, "all_reduce", start + 9, start + 50)
    save_bundle(builder.trace(), tmp_path / "bundle")
    said = " ".join(command("analyze", tmp_path / "bundle").out.split())
    assert "Skew and transfer are unknown." in said
    assert "The time per token and the predicted speed-up are unknown." in said
    assert "skew_ns" not in said and "us_per_token" not in said


def test_shares_are_of_the_rank_that_the_page_shows(command: Command, tmp_path: Path) -> None:
    """Rank 1 has the longer median period; rank 0 has the longer window, for one long step."""
    builder = TraceBuilder()
    for rank, starts in ((0, (0, 1_000, 2_000, 3_000)), (1, (0, 1_100, 2_200, 3_300))):
        builder.rank(rank)
        for start in starts:
            last = 9_000 if rank == 0 and start == 3_000 else start + 500
            builder.range(start, start + 900, "step:decode bs=1")
            builder.launch(start, start + 1, "gemm", start + 9, last)
    save_bundle(builder.trace(), tmp_path / "bundle")
    assert "share of rank 1" in command("analyze", tmp_path / "bundle").out
    assert tables_of(command("analyze", tmp_path / "bundle", "--json"))["cycle"]["rank"] == 1
    command("report", tmp_path / "bundle", "-o", tmp_path / "page.html")
    assert "A step's budget: rank 1," in (tmp_path / "page.html").read_text("utf-8").replace("&#39;", "'")


def test_help_of_every_command(command: Command) -> None:
    for name in COMMANDS:
        answer = command(name, "--help")
        assert answer.status == 0 and answer.out.startswith(f"Usage: profkit {name}"), name
    assert all(name in command("--help").out for name in COMMANDS)


def test_module_and_status_of_the_process(step: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    run = [sys.executable, "-m", "profkit", "analyze"]
    fine = subprocess.run([*run, step, "--json"], capture_output=True, env=environment, check=False)
    assert (fine.returncode, fine.stderr) == (0, b"")
    wrong = subprocess.run([*run, tmp_path / "none"], capture_output=True, text=True, env=environment, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == f"profkit: {tmp_path}/none: no such file or folder; check the path\n"


def test_reader_that_goes_away(step: Path) -> None:
    """``profkit analyze … | head -1`` ends without a word."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    script = f"'{sys.executable}' -m profkit analyze '{step}' '{step}' --json | head -c 1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


def test_ranks_that_a_narrow_terminal_has_no_room_for(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = TraceBuilder()
    for rank in range(8):
        builder.rank(rank)
        for start in (0, 1_000_000_000, 2_000_000_000):
            builder.range(start, start + 900, "step:decode bs=1").launch(
                start, start + 1, "gemm", start + 9, start + 99
            )
    save_bundle(builder.trace(), tmp_path / "bundle")
    monkeypatch.setenv("COLUMNS", "80")
    table = command("analyze", tmp_path / "bundle").out.split("Where a step goes")[1].split("\n\n")[0]
    assert "rank 3" in table and "rank 4" not in table and "…" not in table
    assert "… and 4 more ranks" in command("analyze", tmp_path / "bundle").out
