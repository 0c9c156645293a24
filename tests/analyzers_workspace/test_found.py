"""Analyzers of a workspace are found by the commands that run in it, and a broken one costs one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import profkit.analyzer as interface
from tests.analyzers_workspace.workspaces import COUNTING, ROOT, TABLE, VERDICT, workspace
from tests.cli.answers import Command

IMPORT = "from profkit.analyzer import Answer, Lines, Series, Table, Column, Recordings, analyzer\n"
HEAD = IMPORT + "@analyzer('Broken?')\ndef broken(recordings):\n"


def test_analyze_and_report_ask(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace(tmp_path, counting=COUNTING))
    answer = command("analyze", "traces/plain", "traces/drafting")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.rstrip().endswith("There are 2 recordings.")
    for said in ("How many recordings?", "analyzers/counting.py", "ops, k", "12.3", "· ·", "unknown"):
        assert said in answer.out
    (found,) = json.loads(command("analyze", "traces/plain", "--json").out)["answers"]
    assert (found["file"], found["title"], found["of"]) == ("analyzers/counting.py", "How many recordings?", None)
    assert found["answer"]["tables"][0]["rows"] == [["plain", 12.345]]
    assert found["answer"]["figures"][0]["series"][0]["values"] == [None]
    assert command("report", "traces/plain", "-o", "page.html").status == 0
    assert "There are 1 recordings." in Path("page.html").read_text("utf-8")


@pytest.mark.parametrize(
    "line",
    [
        "import profkit.analyzer as p",
        "from profkit import analyzer as p",
        "import profkit.analyzer\np = profkit.analyzer",
    ],
)
def test_ways_to_import_the_interface(
    line: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{line}\n@p.analyzer('Which way?')\ndef way(recordings):\n    return p.Answer(['This one.'])\n"
    monkeypatch.chdir(workspace(tmp_path, way=text))
    assert command("analyze", "traces/plain").out.rstrip().endswith("This one.")


def test_other_directories_and_other_files_run_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that does not import the interface is another program's; a link may not lead out of the folder."""
    home = workspace(tmp_path, counting=COUNTING, other="raise SystemExit('ran')\n", _helper=HEAD)
    (home / "elsewhere.py").write_text(IMPORT + "raise SystemExit('ran')\n", "utf-8")
    (home / "analyzers" / "linked.py").symlink_to(home / "elsewhere.py")
    (home / "analyzers" / "deeper").mkdir()
    (home / "analyzers" / "deeper" / "own.py").write_text(IMPORT + "raise SystemExit('ran')\n", "utf-8")
    monkeypatch.chdir(home)
    assert command("analyze", "traces/plain").err == ""
    monkeypatch.chdir(home / "traces")
    answer = command("analyze", "plain")
    assert answer.err == "" and "How many recordings?" not in answer.out


def test_files_import_each_other(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An analyzer that is only imported is asked once, where it is defined; the order is that of the names."""
    second = "from profkit.analyzer import Answer, analyzer\nfrom ._words import WORD\nfrom .counting import count\n"
    second += "@analyzer('Second')\ndef second(recordings):\n    return Answer([WORD])\n"
    home = workspace(tmp_path, counting=COUNTING, second=second, _words="WORD = 'from a helper'\n")
    monkeypatch.chdir(home)
    answers = json.loads(command("analyze", "traces/plain", "--json").out)["answers"]
    assert [one["title"] for one in answers] == ["How many recordings?", "Second"]
    assert answers[1]["answer"]["sentences"] == ["from a helper"]
    (home / "analyzers" / "_words.py").write_text("WORD = 'from the same helper, edited'\n", "utf-8")
    assert "edited" in command("analyze", "traces/plain").out


BROKEN = {
    "syntax": (IMPORT + "def (\n", "SyntaxError: invalid syntax (broken.py, line 2)"),
    "missing": (IMPORT + "import nowhere_to_be_found\n", "ModuleNotFoundError in line 2: No module named"),
    "exits": (IMPORT + "raise SystemExit(3)\n", "SystemExit in line 2: 3"),
    "raises": (HEAD + "    return 1 / 0\n", "ZeroDivisionError in line 4: division by zero"),
    "wrong answer": (HEAD + "    return 'yes'\n", "TypeError: 'Broken?' gave str where Answer or None is needed"),
    "no message": (HEAD + "    raise ValueError\n", "ValueError in line 4: no message"),
    "many lines": (HEAD + "    raise ValueError('a\\nb\\x1b[31m')\n", "ValueError in line 4: a b\\x1b[31m"),
    "short row": (
        HEAD + "    return Answer(tables=[Table('T', [Column('a'), Column('b')], [(1, 2), (1,)])])\n",
        "ValueError in line 4: row 2 of 'T' has 1 cells for 2 columns",
    ),
    "not a number": (
        HEAD + "    return Answer(tables=[Table('T', [Column('a')], [(float('nan'),)])])\n",
        "ValueError in line 4: nan is no figure; None says that it is unknown",
    ),
    "a flag": (
        HEAD + "    return Answer(tables=[Table('T', [Column('a')], [(True,)])])\n",
        "TypeError in line 4: True is bool where a number or None is needed",
    ),
    "places": (
        HEAD + "    return Answer(figures=[Lines('L', [1, 2], [Series('s', [1])], 'x', 'y')])\n",
        "ValueError in line 4: series 's' has 1 values for 2 places",
    ),
    "no point": (
        HEAD + "    return Answer(figures=[Lines('L', [], [], 'x', 'y')])\n",
        "ValueError in line 4: figure 'L' has no point",
    ),
    "no numbers": (
        HEAD + "    return Answer(figures=[Lines('L', [1, 'peak'], [Series('s', [1, 2])], 'x', 'y', log2=True)])\n",
        "ValueError in line 4: figure 'L' has a place 'peak' on an axis of numbers above 0",
    ),
    "no order": (
        HEAD + "    return Answer(figures=[Lines('L', [2, 1], [Series('s', [1, 2])], 'x', 'y', log2=True)])\n",
        "ValueError in line 4: figure 'L' has places that do not ascend",
    ),
    "one string": (HEAD + "    return Answer('yes')\n", "TypeError in line 4: sentences is one string where a list"),
    "strange rows": (
        HEAD + "    return Answer(tables=['t'])\n",
        "TypeError in line 4: 't' is str where Table is needed",
    ),
    "strange words": (HEAD + "    return Answer([7])\n", "TypeError in line 4: 7 is int where text is needed"),
    "strange input": (
        IMPORT + "analyzer('x', takes=int)\n",
        "TypeError in line 2: an analyzer takes Recordings or Thr",
    ),
    "nothing in it": (IMPORT, "holds no analyzer; mark a function with @analyzer, or let the file's name begin with _"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_analyzer_costs_one_line(
    name: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, fault = BROKEN[name]
    monkeypatch.chdir(workspace(tmp_path, broken=text, counting=COUNTING))
    answer = command("analyze", "traces/plain")
    assert answer.status == 0
    assert answer.line.startswith("profkit: analyzers/broken.py: ") and fault in answer.line
    assert "There are 1 recordings." in answer.out
    if name != "nothing in it":
        assert answer.line.rstrip().endswith("; mend it, or move it out of analyzers/")


def test_what_an_analyzer_prints_stays_out_of_the_answer(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace(tmp_path, loud=HEAD + "    print('loud')\n    return Answer(['said'])\n"))
    answer = command("analyze", "traces/plain", "--json")
    assert json.loads(answer.out)["answers"][0]["answer"]["sentences"] == ["said"]
    assert answer.err == "loud\n"


def test_a_table_without_an_analyzer_for_it(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace(tmp_path, counting=COUNTING))
    answer = command("analyze", TABLE)
    assert answer.status == 2 and "no analyzer of this directory takes the throughput table" in answer.line


HEADER = 'schema = "profkit.throughput/1"\ntitle = "T"\nsource = "S"\n'
PLAIN_RUN = '[[run]]\nname = "EP8"\ntokens_per_s = { 1 = 65 }\n'
DRAFTING_RUN = '[[run]]\nname = "EP8 + DFlash"\naccept_len = 3.5\ntokens_per_s = { 1 = 86 }\n'
ONE_KIND = {
    "plain": (PLAIN_RUN, "none of its runs is a speculative one, with `accept_len`, to set against the plain ones"),
    "drafting": (DRAFTING_RUN, "all of its runs have `accept_len`, and none is a plain one to set them against"),
}


@pytest.mark.parametrize("kind", ONE_KIND)
@pytest.mark.parametrize("arguments", [["analyze"], ["analyze", "--json"], ["report"], ["report", "-o", "page.html"]])
def test_a_table_of_one_kind_of_run_is_inconclusive(
    kind: str, arguments: list[str], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what is missing, and no page is written."""
    run, lacks = ONE_KIND[kind]
    monkeypatch.chdir(workspace(tmp_path, dflash_verdict=VERDICT.read_text("utf-8")))
    Path("only.toml").write_text(HEADER + run, "utf-8")
    answer = command(*arguments, "only.toml")
    assert (answer.status, answer.out) == (3, "")
    assert answer.line.strip() == f"profkit: only.toml: no analyzer has an answer to it; {lacks}"
    assert not list(Path().rglob("*.html"))


def test_a_table_without_an_answer_beside_others_costs_one_line(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace(tmp_path, dflash_verdict=VERDICT.read_text("utf-8")))
    Path("only.toml").write_text(HEADER + PLAIN_RUN, "utf-8")
    Path("both.toml").write_text(HEADER + PLAIN_RUN + DRAFTING_RUN, "utf-8")
    for beside, said in (("both.toml", "drafting wins at 1"), ("traces/plain", "plain decoding")):
        answer = command("analyze", "only.toml", beside)
        assert answer.status == 0 and said in answer.out
        assert answer.line.startswith("profkit: only.toml: no analyzer has an answer to it; none of its runs")
    answer = command("report", "only.toml", "both.toml", "-o", "page.html")
    assert answer.status == 0 and Path("page.html").exists() and "only.toml" in answer.line
    Path("more.toml").write_text(HEADER + DRAFTING_RUN, "utf-8")
    answer = command("analyze", "only.toml", "more.toml")
    assert answer.status == 3 and "plain ones. more.toml: no analyzer has an answer to it; all of its" in answer.line


def test_an_analyzer_that_wants_something_else_of_a_table(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = "from profkit.analyzer import ThroughputTable, analyzer\n@analyzer('Q?', takes=ThroughputTable)\n"
    monkeypatch.chdir(workspace(tmp_path, silent=silent + "def silent(rates):\n    return None\n"))
    answer = command("analyze", TABLE)
    assert answer.status == 3 and answer.line.rstrip().endswith("it; see in analyzers/ what they need of a table")


def test_init_makes_a_workspace_that_answers(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("init", "work").status == 0
    home = tmp_path / "work"
    assert (home / "analyzers" / VERDICT.name).read_text("utf-8") == VERDICT.read_text("utf-8")
    (home / "analyzers" / VERDICT.name).write_text("# mine\n", "utf-8")
    assert command("init", "work").status == 0
    assert (home / "analyzers" / VERDICT.name).read_text("utf-8") == "# mine\n"
    (home / "analyzers" / VERDICT.name).unlink()
    command("init", "work")
    monkeypatch.chdir(home)
    answer = command("analyze", "analyzers/data/kimi-k26-8gpu.toml")
    assert (answer.status, answer.err) == (0, "") and "drafting wins at 1 (1.32×)" in " ".join(answer.out.split())


def test_public_surface() -> None:
    """What the documentation may rely on; each name is explained where it is made."""
    assert sorted(interface.__all__) == [
        "Analysis", "Analyzer", "Answer", "Attribution", "Bars", "Cell", "Column", "Comparison", "Economics",
        "EconomicsRow", "Figure", "Lines", "PEAK", "Recordings", "Series", "Table", "ThroughputRun", "ThroughputTable",
        "analyzer", "duration", "listed", "outcome", "outcomes_in_words",
    ]  # fmt: skip
    assert all(hasattr(interface, name) for name in interface.__all__)


def blocks() -> list[str]:
    """The Python of the documentation."""
    text = (ROOT / "docs" / "analyzers.md").read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_documented_example_runs(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace(tmp_path, step_periods=blocks()[0]))
    answer = command("analyze", "traces/plain", "traces/drafting")
    assert answer.err == "" and re.search(r"drafting +0\.250", answer.out) and re.search(r"plain +0\.100", answer.out)


def test_the_documentation_quotes_the_example_as_it_is() -> None:
    quoted = blocks()[1:]
    assert len(quoted) == 2
    for block in quoted:
        assert block in VERDICT.read_text("utf-8")
