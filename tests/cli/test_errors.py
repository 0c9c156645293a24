"""Recordings that cannot answer, and failures: an honest unknown or one line on stderr, never half a file."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from profkit import save_bundle
from tests.builders import TraceBuilder
from tests.cli.answers import Command, tables_of
from tests.nsys_files import NsysFile, small_step
from tests.resources import limited_file_size, little_disk, user_without_rights

# -- Inconclusive: exit status 3 ---------------------------------------------------------------------------------------


def inconclusive(command: Command, path: Path) -> dict[str, Any]:
    """The tables of a recording that cannot answer: they are printed all the same, with the reason."""
    words = command("analyze", path)
    assert (words.status, words.err) == (3, "") and words.out
    answer = command("analyze", path, "--json")
    assert (answer.status, answer.err) == (3, "")
    found = tables_of(answer)
    assert found["health"]["status"] == "abstain" and found["verdict"] == []
    assert found["summary"].startswith("No verdict: ")
    return found


def test_no_decode_steps(command: Command, tmp_path: Path) -> None:
    found = inconclusive(command, NsysFile().call(1, 2).kernel(5, 9).write(tmp_path / "x"))
    assert "no decode step found" in found["summary"]
    assert found["devices"]["0"]["window"] is None and found["devices"]["0"]["idle_ns"] is None


def test_graph_mode(command: Command, tmp_path: Path) -> None:
    file = small_step().call(50, 60, 3, "cudaGraphLaunch_v10000").whole_graph(310, 800, 3)
    found = inconclusive(command, file.write(tmp_path / "x"))
    assert "--cuda-graph-trace=node" in found["summary"]
    assert found["devices"]["0"]["idle_ns"] is None and found["devices"]["0"]["busy_union_ns"] is None
    assert set(found["devices"]["0"]["partition_ns"].values()) == {None}


def test_no_gpu_activity(command: Command, tmp_path: Path) -> None:
    found = inconclusive(command, NsysFile().call(1, 2).call(3, 4).write(tmp_path / "x"))
    assert "no GPU activity" in found["summary"]


def test_a_page_of_an_inconclusive_recording(command: Command, tmp_path: Path) -> None:
    export = NsysFile().call(1, 2).kernel(5, 9).write(tmp_path / "x")
    assert command("report", export, "-o", tmp_path / "page.html").status in (0, 3)
    assert "no decode step found" in (tmp_path / "page.html").read_text("utf-8")


# -- An honest unknown: exit status 0 ----------------------------------------------------------------------------------


def two_ranks(first: int, second: int) -> TraceBuilder:
    """Two ranks of three steps, with so many all-reduces in each."""
    builder = TraceBuilder()
    for rank, count in ((0, first), (1, second)):
        builder.rank(rank)
        for start in (0, 1_000, 2_000):
            builder.range(start, start + 900, "step:decode bs=1")
            for number in range(count):
                at = start + 100 * number
                builder.launch(at, at + 1, "all_reduce", at + 10 + rank, at + 50)
    return builder


def test_mismatched_collectives(command: Command, tmp_path: Path) -> None:
    save_bundle(two_ranks(2, 3).trace(), tmp_path / "bundle")
    found = tables_of(command("analyze", tmp_path / "bundle", "--json"))
    collectives = found["devices"]["0"]["collectives"]
    assert (collectives["skew_ns"], collectives["transfer_ns"]) == (None, None)
    check = next(check for check in found["health"]["checks"] if check["id"] == "collectives")
    assert check["status"] == "warn" and "2 on device 0, 3 on device 1" in check["detail"]
    assert "collectives.skew_ns" in check["spoils"]


def test_missing_rank(command: Command, tmp_path: Path) -> None:
    builder = TraceBuilder().note("world_size", "2")
    for start in (0, 1_000, 2_000):
        builder.range(start, start + 900, "step:decode bs=1").launch(
            start, start + 1, "all_reduce", start + 9, start + 50
        )
    save_bundle(builder.trace(), tmp_path / "bundle")
    answer = command("analyze", tmp_path / "bundle", "--json")
    found = tables_of(answer)
    assert answer.status == 0 and found["devices"]["0"]["collectives"]["skew_ns"] is None
    assert "1 of 2 ranks" in next(check["detail"] for check in found["health"]["checks"] if check["id"] == "ranks")


# -- Failures: exit status 2 and one line ------------------------------------------------------------------------------


def damaged(folder: Path) -> dict[str, tuple[Path, str]]:
    """Files that cannot be read, and what the line must say of each."""
    whole = small_step().write(folder / "whole").read_bytes()
    contents = {
        "wrong.mp4": (b"\0\0\0\x20ftypisom", "not a recording that profkit knows"),
        "empty.sqlite": (b"", "the file is empty"),
        "cut.sqlite": (whole[:5_000], "damaged SQLite file"),
        "cut.sqlite.gz": (gzip.compress(whole)[:500], "cut off or damaged"),
        "half.json": (b'{"traceEvents": [', ""),
    }
    for name, (content, _) in contents.items():
        (folder / name).write_bytes(content)
    found = {name: (folder / name, says) for name, (_, says) in contents.items()}
    found["aborted"] = (NsysFile().gpu(0).write(folder / "aborted"), "holds no CUDA and no NVTX events")
    found["nothing"] = (folder / "nothing", "no such file or folder")
    (folder / "hollow").mkdir()
    found["hollow"] = (folder / "hollow", "the folder holds no recording")
    return found


@pytest.mark.parametrize(
    "name", ["wrong.mp4", "empty.sqlite", "cut.sqlite", "cut.sqlite.gz", "aborted", "nothing", "hollow"]
)
@pytest.mark.parametrize("verb", ["analyze", "report", "import", "export"])
def test_input_that_cannot_be_read(verb: str, name: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path, says = damaged(tmp_path / "in")[name]
    output = () if verb == "analyze" else ("-o", tmp_path / "out")
    formats = ("perfetto",) if verb == "export" else ()
    answer = command(verb, *formats, path, *output)
    assert (answer.status, answer.out) == (2, "")
    assert answer.line.startswith(f"profkit: {path}: ") and says in answer.line and "; " in answer.line
    assert not (tmp_path / "out").exists()


def test_unreadable_folder(command: Command) -> None:
    with user_without_rights() as folder:
        (folder / "closed").mkdir()
        (folder / "closed").chmod(0)
        for path in (folder / "closed", folder / "closed" / "trace.json"):
            answer = command("analyze", path)
            assert answer.status == 2 and "(Permission denied); check its permissions" in answer.line


@pytest.mark.parametrize("small", [little_disk, limited_file_size])
def test_full_disk(small: Any, command: Command, step: Path, tmp_path: Path) -> None:
    """The page and the bundle are whole or not there, an older page stays, and nothing lies beside it."""
    with small(tmp_path) as folder:
        (folder / "page.html").write_text("older", "utf-8")
        answer = command("report", step, "-o", folder / "page.html")
        assert answer.status == 2
        assert f"{folder}/page.html: cannot write it (" in answer.line
        assert "No space left on device" in answer.line or "File too large" in answer.line
        assert (folder / "page.html").read_text("utf-8") == "older"
        assert [path.name for path in folder.iterdir()] == ["page.html"]


def test_no_right_to_write(command: Command) -> None:
    with user_without_rights() as folder:
        step = small_step().write(folder / "step.sqlite")
        (folder / "closed").mkdir(mode=0o500)
        for verb, target in (("report", "page.html"), ("import", "bundle"), ("init", "workspace")):
            arguments = (folder / "closed" / target,) if verb == "init" else (step, "-o", folder / "closed" / target)
            answer = command(verb, *arguments)
            assert answer.status == 2 and "Permission denied" in answer.line
        assert not list((folder / "closed").iterdir())


def test_output_where_something_else_is(command: Command, step: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine", "utf-8")
    answer = command("import", step, "-o", tmp_path / "mine")
    assert answer.status == 2 and "there is something else there" in answer.line
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    answer = command("report", step, "-o", tmp_path / "mine")
    assert answer.status == 2 and f"{tmp_path}/mine: " in answer.line
    answer = command("report", step, "-o", tmp_path / "mine" / "notes.txt" / "page.html")
    assert answer.status == 2 and "notes.txt/page.html: cannot write there" in answer.line


@pytest.mark.parametrize("verb", ["report", "export"])
def test_output_that_is_no_regular_file(verb: str, command: Command, step: Path, tmp_path: Path) -> None:
    """It would be replaced by a file: a device, a pipe or a folder is not what was meant."""
    os.mkfifo(tmp_path / "pipe")
    formats = ("folded",) if verb == "export" else ()
    for target, says in (("/dev/full", "a device or a pipe"), (tmp_path / "pipe", "a pipe"), (tmp_path, "is a folder")):
        answer = command(verb, *formats, step, "-o", target)
        assert (answer.status, answer.out) == (2, "")
        assert says in answer.line and "-o" in answer.line and "free some space" not in answer.line
    assert Path("/dev/full").is_char_device() and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("form", [None, "csv", "parquet"])
def test_output_through_a_link(form: str | None, command: Command, step: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept" / "page")
    verb = ("export", form) if form else ("report",)
    assert command(*verb, step, "-o", tmp_path / "link").status == 0
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["page"]


@pytest.mark.parametrize("arguments", [["analyze", "STEP"], ["analyze", "STEP", "--json"], ["--help"]])
def test_full_output(arguments: list[str], step: Path) -> None:
    words = [str(step) if word == "STEP" else word for word in arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with Path("/dev/full").open("w") as full:
        run = [sys.executable, "-m", "profkit", *words]
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr == "profkit: cannot write the answer (No space left on device); free some space\n"


@pytest.mark.parametrize("verb", ["analyze", "report", "import", "export"])
def test_a_pipe_as_input(verb: str, command: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    answer = command(verb, *(("csv",) if verb == "export" else ()), tmp_path / "pipe")
    assert answer.status == 2 and "pipe: a pipe cannot be read twice; save it to a file first" in answer.line


def test_one_of_several_paths_is_no_recording(command: Command, step: Path, tmp_path: Path) -> None:
    """As a shell writes them for ``traces/*``."""
    (tmp_path / "README.md").write_text("# traces", "utf-8")
    answer = command("analyze", tmp_path / "README.md", step)
    assert answer.status == 2
    assert "README.md: not a recording that profkit knows; leave it out, or name the recordings" in answer.line


@pytest.mark.parametrize("form", ["folded", "speedscope"])
def test_no_flame_graph_without_work(form: str, command: Command, tmp_path: Path) -> None:
    idle = NsysFile().call(1, 2).write(tmp_path / "idle")
    stepless = NsysFile().call(1, 2).kernel(5, 9).write(tmp_path / "stepless")
    for path, says in ((idle, "no GPU activity was recorded"), (stepless, "no decode step was found")):
        answer = command("export", form, path, "-o", tmp_path / "out")
        assert (answer.status, answer.out) == (2, "") and says in answer.line
        assert not (tmp_path / "out").exists()


def test_escape_sequences_do_not_reach_the_terminal(command: Command, tmp_path: Path) -> None:
    strange = tmp_path / "red\x1b[31m\x9b\u202e"
    assert r"red\x1b[31m\x9b\u202e: no such file" in command("analyze", strange).line
    small_step().write(strange)
    for arguments in (("analyze", strange), ("report", strange, "-o", f"{strange}.html"), ("diff", strange, strange)):
        answer = command(*arguments)
        assert answer.out and not set(answer.out + answer.err) & {"\x1b", "\x9b", "\u202e"}
    kernels = small_step().call(60, 61, 3).kernel(310, 400, 3, "evil\x1b]0;title\x07").write(tmp_path / "kernels")
    assert "\x1b" not in command("analyze", kernels).out


RULES = {
    "no file": (None, "cannot read the rules"),
    "no TOML": ("[[phase", "not valid TOML"),
    "no text": (b"\xff\xfe\x00", "not UTF-8 text"),
    "unknown table": ("[[phases]]\nmatch = 'x'\n", "unknown table 'phases'; use [[collective]]"),
    "no list": ("phase = 3\n", "'phase' is no list of tables; write it as [[phase]]"),
    "no list of tables": ("phase = ['x']\n", "phase"),
    "a table, not a list": ("[phase]\nmatch = 'x'\n", "'phase' is no list of tables; write it as [[phase]]"),
    "no pattern": ("[[phase]]\nphase = 'draft'\n", "a [[phase]] entry has no 'match'; add it"),
    "unknown phase": ("[[phase]]\nmatch = 'x'\nphase = 'drafting'\n", "unknown phase 'drafting'; use one of prefill"),
    "unknown class": ("[[class]]\nmatch = 'x'\nclass = 'gemms'\n", "unknown class 'gemms'; use one of gemm"),
    "unknown key": ("[[class]]\nmatch = 'x'\nclass = 'gemm'\ncolour = 1\n", "an unknown key 'colour'; use match"),
    "wrong type": ("[[class]]\nmatch = 3\nclass = 'gemm'\n", "'match' of a [[class]] entry must be a str"),
    "no expression": ("[[class]]\nmatch = '(x'\nclass = 'gemm'\n", "'(x' is no regular expression"),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_that_cannot_be_followed(name: str, command: Command, step: Path, tmp_path: Path) -> None:
    content, says = RULES[name]
    rules = tmp_path / "rules.toml"
    if content is not None:
        rules.write_bytes(content if isinstance(content, bytes) else content.encode())
    answer = command("analyze", step, "--rules", rules)
    assert (answer.status, answer.out) == (2, "")
    assert answer.line.startswith(f"profkit: {rules}: ") and says in answer.line


USAGE = {
    "no path": (["analyze"], "Missing argument"),
    "unknown option": (["analyze", "x", "--colour"], "No such option"),
    "unknown command": (["analyse", "x"], "No such command 'analyse'"),
    "no number": (["analyze", "x", "--accept-len", "many"], "'many' is not a valid float"),
    "fewer than one token": (["analyze", "x", "--accept-len", "0.5"], "0.5 is not in the range"),
    "no number at all": (["analyze", "x", "--accept-len", "nan"], "nan is no number of tokens"),
    "infinitely many": (["analyze", "x", "--accept-len", "inf"], "inf is no number of tokens"),
}


@pytest.mark.parametrize("name", USAGE)
def test_bad_usage(name: str, command: Command) -> None:
    arguments, says = USAGE[name]
    answer = command(*arguments)
    assert (answer.status, answer.out) == (2, "") and says in answer.line


def test_no_command_shows_the_help(command: Command) -> None:
    answer = command()
    assert answer.status == 2 and "Usage: profkit" in answer.out + answer.err


def test_debug_shows_the_traceback(command: Command, tmp_path: Path) -> None:
    answer = command("analyze", tmp_path / "nothing", "--debug")
    assert answer.status == 2 and "Traceback" in answer.err
    assert answer.err.splitlines()[-1].startswith("profkit: ")


def test_interrupt(command: Command, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("profkit.cli.analyze.recordings_at", interrupt)
    answer = command("analyze", step)
    # An empty line goes before: the terminal has just shown "^C".
    assert (answer.status, answer.err.lstrip("\n")) == (130, "profkit: stopped\n")


BUSY = """
import time
import profkit.cli.analyze
from profkit.cli import entry

class Held:
    def __del__(self):
        time.sleep({held_s})

def wait(*_):
    held = Held()
    print("here", flush=True)
    {then}
    time.sleep(60)

profkit.cli.analyze.recordings_at = wait
entry()
"""


def busy(step: Path, held_s: float, then: str = "pass") -> subprocess.Popen[str]:
    """An analysis that takes a minute; what it holds takes ``held_s`` to be cleared up."""
    command = [sys.executable, "-c", BUSY.format(held_s=held_s, then=then), "analyze", str(step)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_busy(process: subprocess.Popen[str]) -> None:
    assert process.stdout and process.stdout.readline() == "here\n"


def test_interrupted_in_a_burst(step: Path) -> None:
    """What comes while it says so and clears up changes neither the line nor the status."""
    with busy(step, 0.1) as process:
        wait_until_busy(process)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.0005)
        _, said = process.communicate()
    assert (process.returncode, said.lstrip("\n")) == (130, "profkit: stopped\n")


def test_an_interrupt_that_python_drops_is_not_the_last(step: Path) -> None:
    """One that comes in a finaliser is printed and forgotten: a second press has to stop the program all the same."""
    with busy(step, 60, 'del held; print("here", flush=True)') as process:
        for apart_s in (0.3, 1.2):
            wait_until_busy(process)
            time.sleep(apart_s)
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and said.splitlines()[-1] == "profkit: stopped"


def test_a_fault_of_our_own_is_one_line_too(command: Command, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("profkit.cli.analyze.recordings_at", fail)
    answer = command("analyze", step)
    assert answer.status == 2 and answer.err.count("\n") == 1
    assert "unexpected ZeroDivisionError: division by zero; run again with --debug" in answer.err


def test_names_with_line_breaks_stay_on_one_line(command: Command, tmp_path: Path) -> None:
    assert command("analyze", tmp_path / "two\nlines").status == 2
    assert "\n" not in command("analyze", tmp_path / "two\nlines").line.rstrip("\n")
