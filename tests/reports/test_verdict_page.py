"""The verdict in a real browser: nothing overlaps or sticks out, in wide and narrow windows, light and dark."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from profkit import Recording, analyze
from profkit.analyzers.result import TraceFigures
from profkit.reports.html import render_report
from profkit.reports.inline import asset, template
from profkit.reports.verdict import verdict_views
from profkit.traces import open_recordings
from tests.analyzers.sweeps_by_hand import MS, Cells, analysis_of, by_hand, even, step
from tests.reports.chromium import Tab
from tests.reports.pages import HOSTILE

TRACES = Path(__file__).parents[2] / "traces"
SECTION = "#speculation"

OVERLAPS = """
[...document.querySelectorAll('#speculation figure > svg')].filter(s => s.getClientRects().length).flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  const out = texts.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1
    || b.bottom > frame.bottom + 1).map(([text]) => `${text} sticks out`);
  texts.forEach(([one, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (width > 1 && height > 4) out.push(`${one} over ${other}`);
  }));
  return out;
})
"""


@cache
def reference() -> str:
    """The page of both reference pairs on graphs."""
    opened = [one for name in ("tp1", "tp1-dflash", "ep2", "ep2-dflash") for one in open_recordings(TRACES / name)]
    kept = [one for one in opened if "eager" not in one.name]
    analysis, attributions = analyze([Recording(one.name, str(one.path), one.trace) for one in kept])
    return render_report(list(zip(analysis.traces, attributions, strict=True)), analysis)


def many() -> list[TraceFigures]:
    """Eight concurrencies with parts of every kind."""
    traces = []
    for batch in (1, 2, 4, 8, 16, 32, 64, 128):
        plain, cycle = 5 * MS + batch * 50_000, 9 * MS + batch * 300_000
        cells: Cells = {("draft", "compute"): cycle // 4, ("verify", "compute"): cycle // 4}
        cells |= {
            ("verify", "collective"): cycle // 4,
            ("verify", "copy"): cycle // 8,
            ("accept", "gap_sync"): cycle // 8,
        }
        rates = batch / plain * 1e9, 3.4 * batch / cycle * 1e9
        traces.append(step("plain", batch, even(plain), {("decode", "compute"): plain}, rate=rates[0]))
        traces.append(step("speculative", batch, even(cycle), cells, 3.4, rates[1]))
    return traces


def section(traces: list[TraceFigures]) -> str:
    """The section by itself, on a page with the report's styles."""
    text = template("verdict_section.html.j2").render(verdicts=verdict_views(analysis_of(traces)))
    style = asset("page.css") + asset("verdict.css")
    page = f"<!doctype html><html data-ready='true'><meta charset='utf-8'><link rel='icon' href='data:,'><style>{style}"
    return f"{page}</style><body><main>{text}</main></body></html>"


def show(tab: Tab, folder: Path, page: str) -> None:
    report = folder / "report.html"
    report.write_text(page, "utf-8")
    tab.open(report)


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("pair", [1, 2])
def test_reference_figures_are_readable(tab: Tab, tmp_path: Path, width: int, pair: int) -> None:
    tab.size(width, 1200)
    show(tab, tmp_path, reference())
    tab.click_on(f"[data-switch=verdict] button:nth-child({pair})")
    assert tab.js(f"document.querySelectorAll('{SECTION} figure > svg').length") == 8
    assert tab.js(OVERLAPS) == []
    assert tab.js("document.documentElement.scrollWidth") <= width
    sizes = f"Math.min(...[...document.querySelectorAll('{SECTION} [data-panel]:not([hidden]) figure > svg')].map(s => "
    scale = tab.js(f"{sizes}s.getBoundingClientRect().width / s.viewBox.baseVal.width))")
    font = tab.js(f"parseFloat(getComputedStyle(document.querySelector('{SECTION} svg text')).fontSize)")
    assert scale * font > 10


@pytest.mark.parametrize("width", [1280, 420])
def test_eight_concurrencies_fit(tab: Tab, tmp_path: Path, width: int) -> None:
    tab.size(width, 1200)
    show(tab, tmp_path, section(many()))
    assert tab.js(OVERLAPS) == []


WIDER = "document.head.append(Object.assign(document.createElement('style'), {textContent: '"


@pytest.mark.parametrize("width", [1280, 420])
def test_ticks_fit_in_a_wider_font(tab: Tab, tmp_path: Path, width: int) -> None:
    """A sixth of a letter more for each character than the widest of the usual fonts."""
    tab.size(width, 1200)
    show(tab, tmp_path, reference())
    tab.js(f"{WIDER}.verdict svg text {{ letter-spacing: .1em }}'}}))")
    assert [said for said in tab.js(OVERLAPS) if said.endswith("sticks out")] == []


def test_it_is_the_first_thing_on_the_page(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, reference())
    assert tab.js("document.querySelector('main section').id") == "speculation"
    assert tab.js("document.querySelector('#contents a').textContent") == "Does speculation pay?"
    assert tab.js(f"document.querySelectorAll('{SECTION} .answers dd').length") == 6


def test_colours_follow_the_theme(tab: Tab, tmp_path: Path) -> None:
    colours = []
    for dark in (False, True):
        tab.size(1280, 900, dark=dark)
        show(tab, tmp_path, reference())
        colours.append(tab.js(f"getComputedStyle(document.querySelector('{SECTION} .line.plain')).stroke"))
    assert colours[0] != colours[1]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_only_text(tab: Tab, tmp_path: Path, name: str) -> None:
    from msgspec import structs

    traces = [
        structs.replace(trace, provenance=structs.replace(trace.provenance, config=f"{name} {trace.cycle.kind}"))
        for trace in by_hand()
    ]
    show(tab, tmp_path, section(traces))
    assert tab.js(f"document.querySelectorAll('{SECTION} script, {SECTION} img, {SECTION} b b').length") == 0
    assert name.split("\u2028")[0] in tab.js(f"document.querySelector('{SECTION} .legend').textContent")
