"""Does DFlash pay? The eight-GPU table by hand, and recordings whose cycle is a known number of steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profkit.traces import InputError, save_sweep
from profkit.traces.sweep import Sweep, SweepRun
from profkit.traces.throughput import is_throughput_table, read_throughput
from tests.analyzers_workspace.workspaces import ROOT, TABLE, VERDICT, workspace
from tests.cli.answers import Command

RUN = 'schema = "profkit.throughput/1"\ntitle = "t"\nsource = "s"\n[[run]]\nname = "plain"\n'


def answers_to(command: Command, *arguments: object) -> list[dict[str, Any]]:
    answer = command("analyze", *arguments, "--json")
    assert (answer.status, answer.err) == (0, "")
    return json.loads(answer.out)["answers"]  # type: ignore[no-any-return]


@pytest.fixture
def eight(command: Command, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The answer to the eight-GPU table, from the repository's own workspace."""
    monkeypatch.chdir(ROOT)
    (found,) = answers_to(command, TABLE)
    return found["answer"]  # type: ignore[no-any-return]


def test_cycles_of_the_eight_gpus(eight: dict[str, Any]) -> None:
    """3.5 x plain rate / speculative rate, each by hand; at 128 TP8 without graphs was not measured."""
    cost = eight["tables"][0]
    assert [column["name"] for column in cost["columns"]] == [
        "against", "at 1", "at 32", "at 64", "at 128", "at peak", "differs also in",
    ]  # fmt: skip
    rows = {row[0]: row[1:6] for row in cost["rows"]}
    assert rows["EP8"] == pytest.approx(
        [3.5 * 65 / 86, 3.5 * 624 / 644, 3.5 * 936 / 924, 3.5 * 1417 / 1111, 3.5 * 1493 / 1146]
    )
    assert rows["EP8"][0] == pytest.approx(2.65, abs=0.005) and rows["EP8"][3] == pytest.approx(4.46, abs=0.005)
    assert rows["EP4"] == pytest.approx([2.808140, 3.581522, 3.693182, 4.564806, 4.675829], abs=1e-6)
    assert rows["TP8 with graphs"] == pytest.approx([3.988372, 3.717391, 3.602273, 4.067057, 3.942845], abs=1e-6)
    assert rows["TP8 without graphs"][3] is None
    assert [rows["TP8 without graphs"][place] for place in (0, 1, 2, 4)] == pytest.approx(
        [1.058140, 3.141304, 2.625, 2.467714], abs=1e-6
    )


def test_headroom_of_the_eight_gpus(eight: dict[str, Any]) -> None:
    cost, headroom = ({row[0]: row[1:6] for row in table["rows"]} for table in eight["tables"])
    for name, row in cost.items():
        for spent, left in zip(row, headroom[name], strict=True):
            assert (left is None) == (spent is None) and (left is None or left == pytest.approx(3.5 - spent))


def test_the_figure_leaves_out_peak_and_breaks_where_nothing_is_known(eight: dict[str, Any]) -> None:
    (figure,) = eight["figures"]
    assert (figure["kind"], figure["x"], figure["log2"]) == ("lines", ["1", "32", "64", "128"], True)
    series = {one["name"]: one for one in figure["series"]}
    assert series["TP8 without graphs"]["values"][3] is None
    assert series["accept length 3.5"] == {"name": "accept length 3.5", "values": [3.5] * 4, "reference": True}


def test_which_baseline_is_fair(eight: dict[str, Any]) -> None:
    said = " ".join(eight["sentences"])
    assert "against EP8, the plain run most like it: drafting wins at 1 (1.32×) and 32 (1.03×), is even at 64 (0.99×) "
    assert "is even at 64 (0.99×) and loses at 128 (0.78×); against the best" in said
    assert "TP8 with graphs and EP8 + DFlash without graphs differ in CUDA graphs: what tells them apart is not" in said
    assert "Whether EP8 ran with CUDA graphs is unknown" in said
    assert "At these rates a cycle costs, in plain steps, 2.65 at 1, 3.39 at 32, 3.55 at 64 and 4.46 at 128" in said
    assert "Under “at peak” stand the best rates" in said and "between 3.5 and 4.1" in said
    unlike = {row[0]: row[6] for row in eight["tables"][0]["rows"]}
    assert unlike == {
        "TP8 without graphs": "parallelism",
        "TP8 with graphs": "parallelism, graphs",
        "EP8": "graphs unknown",
        "EP4": "parallelism, graphs unknown",
    }


def test_the_main_sentence_names_the_best_plain_run_at_each_concurrency(eight: dict[str, Any]) -> None:
    """86 / 98, 644 / 684, 924 / 975 and 1111 / 1449: it loses everywhere, which EP8 alone does not tell."""
    assert eight["sentences"][0].endswith(
        "; against the best plain run at each concurrency (TP8 with graphs at 1 and 32, EP4 at 64 and 128) it wins "
        "nowhere: it loses at 1 (0.88×), 32 (0.94×), 64 (0.95×) and 128 (0.77×)."
    )


RATES = """
tokens_per_s = { 1 = 50, 8 = 400 }
[[run]]
name = "other"
tokens_per_s = { 1 = 40, 8 = OTHER, 16 = 700 }
[[run]]
name = "drafting"
accept_len = 3
tokens_per_s = { 1 = 75, 8 = 600, 32 = 900 }
"""


@pytest.mark.parametrize(
    ("other", "ends"),
    [
        ("300", "drafting wins at 1 (1.50×) and 8 (1.50×)."),
        ("500", "(plain at 1, other at 8) it wins at 1 (1.50×) and 8 (1.20×)."),
        ("800", "(plain at 1, other at 8) it wins at 1 (1.50×) and loses at 8 (0.75×)."),
    ],
)
def test_the_best_plain_run_is_named_where_it_is_another(
    other: str, ends: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 no rate of drafting is known, of 32 none of plain decoding."""
    (tmp_path / "t.toml").write_text(RUN + RATES.replace("OTHER", other), "utf-8")
    monkeypatch.chdir(ROOT)
    (found,) = answers_to(command, tmp_path / "t.toml")
    assert found["answer"]["sentences"][0].endswith(ends) and found["note"] is None


def test_notes_of_table_and_runs_are_shown(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (
        RUN.replace("[[run]]", "note = 'Six  layers'\n[[run]]") + "note = 'ran twice'" + RATES.replace("OTHER", "300")
    )
    (tmp_path / "t.toml").write_text(text, "utf-8")
    (found,) = answers_to(command, tmp_path / "t.toml")
    assert found["note"] == "Six layers. plain: ran twice."
    shown = command("analyze", tmp_path / "t.toml").out
    assert "Note: Six layers. plain: ran twice." in shown
    command("report", TABLE, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert (
        "Note: The DFlash drafter has 6 layers and drafts blocks of 8 tokens. CUDA graphs crashed with DFlash" in page
    )


def home_with(folder: Path, rates: tuple[float, float] | None, accept_len: float | None = 3.5) -> Path:
    """A workspace of two sweeps: cycles of 250 us over steps of 100 us, in blocks of 4 tokens."""
    home = workspace(folder, dflash_verdict=VERDICT.read_text("utf-8"))
    for place, config in enumerate(("plain", "drafting")):
        (home / config).mkdir()
        (home / "traces" / config).rename(home / config / "c1")
        rate = rates[place] if rates else None
        run = SweepRun(concurrency=1, trace="c1", tokens_per_s=rate, accept_len=accept_len)
        block = 4 if config == "drafting" else None
        save_sweep(Sweep(schema="profkit.sweep/1", config=config, block_size=block, runs=[run]), home / config)
    return home


NAME = "drafting against plain, without CUDA graphs"


def test_recordings(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break-even at 2.5: with 3.5 tokens a cycle it wins, with 2 it loses, with 2.5 it is even."""
    monkeypatch.chdir(home_with(tmp_path, None))
    (found,) = answers_to(command, "plain", "drafting")
    assert found["answer"]["tables"][0]["rows"] == [[NAME, 1, 3.5, None, 2.5, 4, "wins"]]
    assert found["answer"]["sentences"] == [
        f"{NAME} needs an accept length of 2.50 at 1, predicted from steps; it has 3.50."
    ]
    assert found["answer"]["figures"] == []
    for accept_len, word in (("2", "loses"), ("2.5", "even")):
        (found,) = answers_to(command, "plain", "drafting", "--accept-len", accept_len)
        assert found["answer"]["tables"][0]["rows"][0][6] == word
    assert answers_to(command, "plain") == []


def test_recordings_without_an_accept_length(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home_with(tmp_path, None, None))
    (found,) = answers_to(command, "plain", "drafting")
    assert found["answer"]["tables"][0]["rows"] == [[NAME, 1, None, None, 2.5, 4, None]]
    assert found["answer"]["sentences"][0].endswith("predicted from steps; its accept length is unknown.")


def test_measured_rates_decide(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cycles say 1.4, the rates without a recorder 0.7: 5 tokens would be needed, and blocks have 4."""
    monkeypatch.chdir(home_with(tmp_path, (100.0, 70.0)))
    (found,) = answers_to(command, "plain", "drafting")
    (row,) = found["answer"]["tables"][0]["rows"]
    assert row == [NAME, 1, 3.5, pytest.approx(5.0), 2.5, 4, "loses (> block)"]
    assert found["answer"]["sentences"] == [
        f"{NAME} needs an accept length of 5.00 at 1, by measured throughput; it has 3.50. "
        "At 1 that is more than blocks of 4 tokens can yield, whatever the drafter."
    ]


def test_reference_sweeps(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are those of the verdict; several pairs stand in one figure."""
    monkeypatch.chdir(ROOT)
    answer = command("analyze", *(f"traces/{name}" for name in ("tp1", "tp1-dflash", "ep2", "ep2-dflash")), "--json")
    found = json.loads(answer.out)
    (mine,) = found["answers"]
    rows = mine["answer"]["tables"][0]["rows"]
    assert [row[1] for row in rows] == [1, 32, 128, 1, 32, 128]
    verdicts = [row["outcome"] for pair in found["economics"] for row in pair["rows"]]
    assert [row[6].split()[0] for row in rows] == verdicts == ["wins", "even", "loses", "wins", "wins", "wins"]
    assert mine["answer"]["figures"][0]["x"] == ["1", "32", "128"] and mine["answer"]["figures"][0]["log2"] is True
    assert len(mine["answer"]["figures"][0]["series"]) == 4


# -- Throughput tables -------------------------------------------------------------------------------------------------


def test_the_content_tells_a_table(tmp_path: Path) -> None:
    hidden = tmp_path / "anything.bin"
    hidden.write_bytes(TABLE.read_bytes())
    assert is_throughput_table(hidden) and not is_throughput_table(tmp_path)
    assert read_throughput(hidden).concurrencies == ("1", "32", "64", "128", "peak")
    (tmp_path / "rules.toml").write_text("[[class]]\nmatch = 'x'\n", "utf-8")
    assert not is_throughput_table(tmp_path / "rules.toml")


def test_tables_without_a_pair_are_inconclusive(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.toml").write_text(RUN + "tokens_per_s = { 1 = 5 }\n", "utf-8")
    monkeypatch.chdir(ROOT)
    answer = command("analyze", tmp_path / "t.toml", "--json")
    assert (answer.status, answer.out) == (3, "") and "none of its runs is a speculative one" in answer.line


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (RUN + "tokens_per_s = { 1 = 0 }\n", "0 tokens/s at 1 in run 'plain' is no rate"),
        (RUN + "tokens_per_s = { 1 = -4.5 }\n", "-4.5 tokens/s at 1 in run 'plain' is no rate"),
        (RUN + "tokens_per_s = { 1 = nan }\n", "nan tokens/s at 1 in run 'plain' is no rate"),
        (RUN + "tokens_per_s = { 1 = inf }\n", "inf tokens/s at 1 in run 'plain' is no rate"),
        (RUN + "tokens_per_s = { 1 = 'many' }\n", "no throughput table"),
        (RUN + "tokens_per_s = { 0 = 4 }\n", "'0' in run 'plain' is no concurrency"),
        (RUN + "tokens_per_s = { all = 4 }\n", "'all' in run 'plain' is no concurrency"),
        (RUN + "tokens_per_s = {}\naccept_len = 0.5\n", "0.5 in run 'plain' is no accept length"),
        (RUN + "tokens_per_s = {}\naccept_len_range = [3.5, inf]\n", "inf in run 'plain' is no accept length"),
        (
            RUN + "tokens_per_s = {}\naccept_len = 3.5\naccept_len_range = [4, 3]\n",
            "[4, 3] in run 'plain' begins above its",
        ),
        (
            RUN + "tokens_per_s = {}\naccept_len = 3.5\naccept_len_range = [3.6, 4.1]\n",
            "accept_len_range [3.6, 4.1] in run 'plain' does not hold its accept_len, 3.5",
        ),
        (RUN + "tokens_per_s = {}\naccept_len = 4.2\naccept_len_range = [3, 4]\n", "does not hold its accept_len, 4.2"),
        (RUN + "tokens_per_s = {}\naccept_len_range = [3, 4]\n", "has no accept_len beside it"),
        (RUN + "tokens_per_s = {}\n[[run]]\nname = 'plain'\ntokens_per_s = {}\n", "two runs are named 'plain'"),
        (RUN + "tokens_per_s = {}\naccept_length = 3\n", "unknown field `accept_length`"),
        (RUN + "tokens_per_s = {\n", "no throughput table"),
        (RUN.replace("/1", "/2") + "tokens_per_s = {}\n", "unknown schema 'profkit.throughput/2'"),
        (RUN.split("[[")[0] + "run = []\n", "the table holds no [[run]]"),
    ],
)
def test_what_is_no_table(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(text, "utf-8")
    assert is_throughput_table(tmp_path / "t.toml")
    with pytest.raises(InputError, match=r"; ") as caught:
        read_throughput(tmp_path / "t.toml")
    assert fault in str(caught.value) and str(tmp_path / "t.toml") in str(caught.value)


@pytest.mark.parametrize("ends", ["[3.5, 4.1]", "[3, 3.5]", "[3.5, 3.5]"])
def test_an_accept_length_may_stand_at_an_end_of_its_range(ends: str, tmp_path: Path) -> None:
    text = f"{RUN}tokens_per_s = {{}}\naccept_len = 3.5\naccept_len_range = {ends}\n"
    (tmp_path / "t.toml").write_text(text, "utf-8")
    assert read_throughput(tmp_path / "t.toml").runs[0].accept_len == 3.5
