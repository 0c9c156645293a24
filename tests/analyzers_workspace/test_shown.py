"""Answers on the page: in sections of their own, drawn by the browser, and only ever as text."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.analyzers.custom import Answer, Answered, Bars, Column, Lines, Series, Table
from profkit.reports.custom import plotly_chart, render_answers, spark_lines
from profkit.reports.html import render_report
from profkit.reports.terminal import render_terminal
from tests.analyzers_workspace.workspaces import ROOT, TABLE
from tests.cli.answers import Command
from tests.reports.chromium import Tab
from tests.reports.pages import HOSTILE, analysed, speculative
from tests.reports.test_html import Elements, data_of


def hostile() -> Answered:
    """Every word of an answer is hostile; one holds what no file can be written with."""
    figures = [
        kind(HOSTILE[0], HOSTILE, [Series(name, [1.0, None, 3.0, -4.0, 5.0]) for name in HOSTILE], *HOSTILE[:2])
        for kind in (Lines, Bars)
    ]
    table = Table(HOSTILE[1], [Column(name, name) for name in HOSTILE], [HOSTILE, [None, 1, 2.5, -3, "\ud800"]])
    answer = Answer([*HOSTILE, "\x1b[31m"], [table], figures)
    return Answered(HOSTILE[4], HOSTILE[3], answer, HOSTILE[0], HOSTILE[2], " ".join(HOSTILE))


def with_recordings(*answers: Answered) -> str:
    return render_report(*analysed(("run", speculative().trace())), answers=answers)


def alone(*answers: Answered) -> str:
    return render_answers(answers)


@pytest.mark.parametrize("render", [with_recordings, alone])
def test_hostile_words_stay_text(render: Callable[..., str]) -> None:
    text = render(hostile())
    text.encode("utf-8")
    elements = Elements(text)
    assert sum(tag == "script" for tag, _ in elements.tags) == 3
    assert not any(tag == "img" for tag, _ in elements.tags)
    assert all(not name.startswith("on") for _, attrs in elements.tags for name in attrs)
    assert "{{ 7 * 7 }}" in elements.words
    assert "<" not in elements.scripts["profkit-data"]
    words = [
        row for chart in data_of(text)["charts"].values() for trace in chart["data"] for row in trace.get("text", [])
    ]
    assert not any("<img" in word or "<script" in word for word in words)


@pytest.mark.parametrize("render", [with_recordings, alone])
def test_the_browser_draws_it(render: Callable[..., str], tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(render(hostile()), "utf-8")
    tab.open(tmp_path / "page.html")
    drawn = "document.querySelectorAll('#answer-0 .chart .main-svg').length"
    tab.wait(f"{drawn} > 0")
    assert tab.js("document.querySelectorAll('#answer-0 .chart .scatterlayer .trace').length") == len(HOSTILE)
    assert tab.js("document.querySelectorAll('#answer-0 .chart .barlayer .trace').length") == len(HOSTILE)
    assert tab.js("document.querySelectorAll('#answer-0 img, #answer-0 b').length") == 0
    tab.click_on("#theme")
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")


def test_sections_follow_the_answers() -> None:
    answers = [Answered("analyzers/a.py", f"Question {place}?", Answer(["So."])) for place in range(2)]
    elements = Elements(with_recordings(*answers))
    ids = [attrs["id"] for tag, attrs in elements.tags if tag == "section"]
    assert [name for name in ids if name and name.startswith("answer-")] == ["answer-0", "answer-1"]
    assert ids.index("answer-1") + 1 == ids.index("flame")
    assert {"#answer-0", "#answer-1"} <= {attrs.get("href") for tag, attrs in elements.tags if tag == "a"}
    assert "answer-" not in with_recordings()


def test_report_of_a_table_alone_and_beside_recordings(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for paths in ((TABLE,), (TABLE, "traces/tp1/c1")):
        answer = command("report", *paths, "-o", tmp_path / "page.html")
        assert (answer.status, answer.err) == (0, "")
        words = Elements((tmp_path / "page.html").read_text("utf-8")).words
        for said in ("Does DFlash pay, by throughput alone?", "4.46", "−0.96", "unknown", "noted by hand"):
            assert said in words


def test_the_terminal_shows_table_figure_and_sentences() -> None:
    _, analysis = analysed(("run", speculative().trace()))
    shown = render_terminal(analysis, 100, [hostile()])
    assert "\x1b[31m" not in shown and "\u2028" not in shown and "{{ 7 * 7 }}" in shown
    assert "unknown" in shown and "−3.00" in shown


def test_numbers_stay_whole_on_a_narrow_terminal() -> None:
    _, analysis = analysed(("run", speculative().trace()))
    for count in (6, 9):
        columns = [Column("recordings of it all"), *(Column(f"quite a long heading {at}") for at in range(count))]
        table = Table("t", columns, [["a name of many words", *(-1234.5 for _ in range(count))]])
        shown = render_terminal(analysis, 80, [Answered("f", "q", Answer(["So."], [table]))])
        assert shown.count("−1,234.50") == count
        assert (max(map(len, shown.splitlines())) <= 80) == (count == 6)


def test_blocks_stand_on_one_scale_from_zero() -> None:
    figure = Lines("f", ["a", "b", "c"], [Series("s", [7, 3.5, None]), Series("none", [None] * 3)], "x", "y")
    assert list(spark_lines(figure)) == [("s", "█ ▅ ·", "3.5 … 7"), ("none", "· · ·", "unknown")]


def test_a_chart_keeps_gaps_and_dashes_references() -> None:
    series = [Series("s", [1, None, 3]), Series("r", [2, 2, 2], reference=True)]
    chart = plotly_chart(Lines("f", [1, 32, "peak"], series, "x", "y"))
    assert chart["data"][0]["y"] == [1.0, None, 3.0] and chart["data"][0]["connectgaps"] is False
    assert [trace["line"]["dash"] for trace in chart["data"]] == ["solid", "dash"]
    assert chart["layout"]["xaxis"]["ticktext"] == ["1", "32", "peak"]
    assert chart["layout"]["xaxis"]["type"] == "category" and chart["data"][0]["x"] == [0, 1, 2]


def test_a_doubling_is_as_long_as_any_other() -> None:
    """1, 32 and 128 stand at 0, 5 and 7 doublings, with some room at both ends."""
    chart = plotly_chart(Lines("f", [1, 32, 128], [Series("s", [1, 2, 3])], "x", "y", log2=True))
    axis = chart["layout"]["xaxis"]
    assert chart["data"][0]["x"] == [1, 32, 128] == axis["tickvals"] and axis["ticktext"] == ["1", "32", "128"]
    low, high = axis["range"]
    assert axis["type"] == "log" and low < 0 and 10**high > 128
    alone = plotly_chart(Lines("f", [8], [Series("s", [1])], "x", "y", log2=True))["layout"]["xaxis"]["range"]
    assert alone[0] < math.log10(8) < alone[1]


def test_words_stand_on_the_left() -> None:
    """In the terminal and on the page; numbers, and columns of which nothing is known, on the right."""
    rows = [["first", "wins", 1.0, None], ["second", None, 22.0, None]]
    table = Table("t", [Column(name) for name in ("which", "word", "number", "nothing")], rows)
    shown = Answered("f", "q", Answer(["So."], [table]))
    _, analysis = analysed(("run", speculative().trace()))
    line = next(line for line in render_terminal(analysis, 100, [shown]).splitlines() if line.startswith("first"))
    assert line.rstrip() == "first   wins       1.00  unknown"
    page = render_answers([shown])
    assert "<td>wins</td>" in page and '<th scope="col">word</th>' in page
    assert '<td class="num">1.00</td>' in page and '<th scope="col" class="num">nothing</th>' in page
