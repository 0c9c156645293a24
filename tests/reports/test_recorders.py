"""Several recorders of one run: told briefly on a terminal, and tabs that fit on the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit import Recording, analyze
from profkit.analyzers.inflation_recorders import figure
from profkit.reports.html import render_report
from profkit.reports.tabs import TABS, chosen_by_sweep, tabs
from profkit.reports.terminal import render_terminal
from profkit.traces import RecordingCost, open_recordings
from tests.reports.chromium import Tab
from tests.reports.pages import page, speculative

SWEEP = Path(__file__).parents[2] / "traces" / "tp1-dflash-recorders-2"


def recordings(sweep: Path = SWEEP) -> list[Recording]:
    return [Recording(one.name, str(one.path), one.trace) for one in open_recordings(sweep)]


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


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (95, 2), (96, 1), (140, 1)])
def test_the_table_of_modules_cuts_nothing(width: int, lines: int) -> None:
    said = render_terminal(analyze(recordings(SWEEP / "c1"))[0], width)
    table = said.split("GPU time by module, rank 0")[1].partition("\n\n")[0].splitlines()[1:]
    head = [line.split() for line in table[:lines]]
    words = ["module", "layers", "per", "step", "per", "layer", "in", "collectives", "of", "its", "phase"]
    assert sorted(word for line in head for word in line) == sorted(words)
    assert "…" not in "".join(table) and any("verify: self_attn.qkv_proj " in line for line in table)
    assert len({len(line.rstrip()) for line in table if line.endswith("%") or "phase" in line}) == 1


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
    report = tmp_path / "page.html"
    report.write_text(render_report(list(zip(analysis.traces, attributions, strict=True)), analysis), "utf-8")
    tab.size(width, 900)
    tab.open(report)
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


@pytest.mark.parametrize("width", [1400, 420])
def test_of_many_recordings_the_tabs_are_those_of_one_sweep(tab: Tab, tmp_path: Path, width: int) -> None:
    """A list has the sweeps; keys walk on into the next one, and the table of all recordings into any."""
    trace, sweeps = speculative().trace(), [f"a-sweep-with-a-long-name-{number}" for number in range(TABS // 2)]
    names = [*(f"{sweep}/{own}" for sweep in sweeps for own in ("c1", "c32")), "alone"]
    (tmp_path / "page.html").write_text(page(*((name, trace) for name in names)), "utf-8")
    tab.size(width, 900)
    tab.open(tmp_path / "page.html")

    def seen() -> tuple[str, list[str], str]:
        shown = (
            "[...document.querySelectorAll('#traces [role=tab]')].filter(t => t.offsetParent).map(t => t.textContent)"
        )
        chosen = "document.querySelector('#verdict h2 .of').textContent"
        return tab.js("document.querySelector('#sweep').value"), tab.js(shown), tab.js(chosen)

    assert tab.js("[...document.querySelectorAll('#sweep option')].map(o => o.text)") == [*sweeps, "in no sweep"]
    assert seen() == (sweeps[0], ["c1", "c32"], names[0])
    tab.js(
        f"(s => {{ s.value = '{sweeps[3]}'; s.dispatchEvent(new Event('change')); }})(document.querySelector('#sweep'))"
    )
    assert seen() == (sweeps[3], ["c1", "c32"], names[6])
    tab.js("document.querySelector('#traces [aria-selected=true]').focus()")
    for _ in range(2):
        tab.key("ArrowRight")
    assert seen() == (sweeps[4], ["c1", "c32"], names[8])
    tab.click_on(f"[data-select='{len(names) - 1}']")
    assert seen() == ("", ["alone"], "alone")
    bar = tab.js("(b => [b.scrollWidth - b.clientWidth, b.offsetHeight])(document.querySelector('.bar'))")
    assert bar[0] <= 0 and bar[1] <= {1400: 60, 420: 140}[width] and tab.messages == []


def test_few_recordings_have_no_list_of_sweeps() -> None:
    assert not chosen_by_sweep([f"{sweep}/c{number}" for sweep in "ab" for number in range(TABS // 2)])
    assert not chosen_by_sweep([f"a/c{number}" for number in range(TABS + 1)])
    assert 'id="sweep"' not in page(("a/c1", speculative().trace()), ("b/c1", speculative().trace()))


def test_the_page_first_shows_what_the_terminal_does(tab: Tab, tmp_path: Path) -> None:
    """Whatever differs is marked, and never among the rows that are asked for, which are dim."""
    analysis, attributions = analyze(recordings(SWEEP.with_name("tp1-dflash-recorders-3")))
    (tmp_path / "page.html").write_text(
        render_report(list(zip(analysis.traces, attributions, strict=True)), analysis), "utf-8"
    )
    tab.size(1300, 1000)
    tab.open(tmp_path / "page.html")
    heads = (
        "[...document.querySelectorAll('#recorders .told')].map(b => [...b.querySelectorAll('tbody th')].filter({}))"
    )
    texts = heads + ".map(rows => rows.map(th => th.textContent.replace('\u00a0', ' ')))"
    told = render_terminal(analysis, 140)
    tables = [
        told.split(f"\nBatch {check.batch_size} by ")[1].partition("\n\n")[0].splitlines()
        for check in analysis.recorder_checks
    ]
    rows = [
        [(figure(row), row) for row in check.rows if any(line.startswith(f"{figure(row)}  ") for line in table)]
        for check, table in zip(analysis.recorder_checks, tables, strict=True)
    ]
    shown = [[f"{name} !" if row.differs else name for name, row in table] for table in rows]
    assert tab.js(texts.format("th => th.offsetParent")) == shown
    assert "outside's kernels and copies !" in shown[0] and all(any(row.differs for _, row in one) for one in rows)
    notes = "[...document.querySelectorAll('#recorders .note')].map(p => p.textContent.replaceAll('\u00a0', ' '))"
    assert tab.js(notes) == ["! differs by more than 3 % of the figure"] * 2
    for button in tab.js("[...document.querySelectorAll('#recorders [data-more]')].map(b => b.textContent)"):
        tab.click_on("#recorders [data-more]")
        assert button in {f"Show all {len(check.rows)}" for check in analysis.recorder_checks}
    seen = tab.js(heads.format("th => th.offsetParent") + ".map(rows => rows.length)")
    assert seen == [len(check.rows) for check in analysis.recorder_checks]
    muted = "getComputedStyle(document.querySelector('.lede')).color"
    dim = tab.js(texts.format(f"th => getComputedStyle(th).color === {muted}"))
    assert dim == [
        [figure(row) for row in check.rows if figure(row) not in dict(table)]
        for check, table in zip(analysis.recorder_checks, rows, strict=True)
    ]


def test_nothing_taken_out_needs_one_table() -> None:
    """In these windows no cost of recording can be told."""
    said = render_terminal(analyze(recordings())[0], 80)
    assert said.count("Batch 1 by nsys, cupti and torch") == 1 and "without what recording costs" not in said
