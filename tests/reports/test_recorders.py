"""Several recorders of one run: told briefly on a terminal, and tabs that fit on the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit import Recording, analyze
from profkit.analyzers.inflation_recorders import figure
from profkit.reports.html import render_report, tabs
from profkit.reports.terminal import render_terminal
from profkit.traces import RecordingCost, open_recordings
from tests.reports.chromium import Tab

SWEEP = Path(__file__).parents[2] / "traces" / "tp1-dflash-recorders-2"


def recordings() -> list[Recording]:
    return [Recording(one.name, str(one.path), one.trace) for one in open_recordings(SWEEP)]


def test_only_the_first_recorder_has_all_tables() -> None:
    said = render_terminal(analyze(recordings())[0], 110)
    blocks = {block.split(" ")[0]: block for block in said.split("side by side")[0].split("\ntp1-dflash-recorders-2/")}
    for title in ("GPU time by phase", "CUDA graphs of the decode steps", "What stays outside", "GPU time by module"):
        assert {name for name, block in blocks.items() if title in block} == {"tp1-dflash-recorders-2/c1", "c32"}
    for name in ("c1-cupti", "c32-torch"):
        first = name.partition("-")[0]
        assert f"Phases, graphs and modules as in {SWEEP.name}/{first}; its own: profkit analyze" in blocks[name]
        assert str(SWEEP / name) in blocks[name]
        assert "Where a step goes, mean in ms" in blocks[name] and "What holds the step back" in blocks[name]
    assert said.count(f"c1, c1-cupti, c1-torch of {SWEEP.name}: recorded by") == 1
    assert f"{SWEEP.name}/c1-cupti: Verify" not in said and f"{SWEEP.name}/c1: Verify" in said


@pytest.mark.parametrize("width", [80, 96, 140])
def test_whatever_differs_is_marked_in_a_table_that_fits(width: int) -> None:
    """Also parts that take little of a step; a narrow terminal has two tables of figures for each run.

    As if windows without a recorder had told that each recorder costs 1 %.
    """
    told = RecordingCost(1.01, 0.002, 34, 9)
    costly = [
        replace(one, trace=one.trace.with_run(replace(one.trace.run, recording_cost=told))) for one in recordings()
    ]
    analysis, _ = analyze(costly)
    said = render_terminal(analysis, width)
    assert max(map(len, said.splitlines())) <= width
    for check in analysis.recorder_checks:
        head = f"Batch {check.batch_size} by nsys, cupti and torch"
        tables = [part.partition("\n\n")[0] for part in said.split(f"\n{head}")[1:]]
        assert len(tables) in {80: (2,), 96: (1, 2), 140: (1,)}[width] and "…" not in "".join(tables)
        small = [
            row for row in check.rows if row.differs and max(row.recorded_ns) < 0.01 * check.rows[0].recorded_ns[0]
        ]
        assert check.batch_size > 1 or small
        marked = [line for line in tables[-1].splitlines() if line.rstrip().endswith(" !")]
        differing = [row for row in check.rows if row.differs]
        for line, row in zip(marked, differing, strict=True):
            assert line.startswith(f"{figure(row)} ") and row.unrecorded_ns
            assert " ".join(f"{ns / 1e6:.3f}" for ns in row.unrecorded_ns) in " ".join(line.split())
            assert any(line.startswith(f"{figure(row)} ") for line in tables[0].splitlines())
        assert "! differs by more than 3 % of the figure" in tables[-1]


def test_one_of_them_by_itself_has_all_tables() -> None:
    (alone,) = [one for one in recordings() if one.name.endswith("c1-torch")]
    assert "CUDA graphs of the decode steps" in render_terminal(analyze([alone])[0], 110)


@pytest.mark.parametrize("width", [80, 100, 110])
def test_no_figure_is_cut_off_side_by_side(width: int) -> None:
    rows = render_terminal(analyze(recordings())[0], width).split("side by side")[1].splitlines()[1:8]
    assert "median step" in rows[0] or width < 96
    assert not any("…" in row for row in rows) and all(len(row) <= width for row in rows)


def test_tabs_name_each_sweep_once() -> None:
    names = ["tp1/c1", "tp1/c32", "ep2/c1", "alone", "tp1/c128"]
    assert tabs(names) == [("tp1", "c1"), ("", "c32"), ("ep2", "c1"), ("", "alone"), ("tp1", "c128")]


@pytest.mark.parametrize("width", [1400, 1000, 420])
def test_no_tab_is_cut_off(tab: Tab, tmp_path: Path, width: int) -> None:
    analysis, attributions = analyze(recordings())
    page = tmp_path / "page.html"
    page.write_text(render_report(list(zip(analysis.traces, attributions, strict=True)), analysis), "utf-8")
    tab.size(width, 900)
    tab.open(page)
    assert tab.js("document.querySelectorAll('#traces [role=tab]').length") == 6
    cut = "[...document.querySelectorAll('#traces [role=tab]')].filter(t => t.scrollWidth > t.clientWidth"
    assert (
        tab.js(f"{cut} || t.getBoundingClientRect().right > t.parentElement.getBoundingClientRect().right + 1).length")
        == 0
    )
    tab.click_on("#traces [role=tab]:nth-child(6)")
    assert tab.js("document.querySelector('#verdict h2 .of').textContent") == f"{SWEEP.name}/c32-torch"
    seen = "(t => [t.top, t.bottom])(document.querySelector('#traces [aria-selected=true]').getBoundingClientRect())"
    top, bottom = tab.js(seen)
    assert top >= 0 and bottom <= tab.js("document.querySelector('.bar').getBoundingClientRect().bottom") + 1


def test_nothing_taken_out_needs_one_table() -> None:
    """In these windows no cost of recording can be told."""
    said = render_terminal(analyze(recordings())[0], 80)
    assert said.count("Batch 1 by nsys, cupti and torch") == 1 and "without what recording costs" not in said
