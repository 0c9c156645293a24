"""The report in a real browser: everything that can be clicked, typed or hovered, and a silent console."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.traces import Trace
from tests.reports.chromium import Tab
from tests.reports.pages import HOSTILE, inferred, large, page, speculative, whole_graphs

FRAME = '#flame-graph [aria-label^="{}"]'
CANVAS = "#timeline-canvas"


def show(tab: Tab, folder: Path, *traces: tuple[str, Trace]) -> None:
    """Open the report of ``traces``."""
    report = folder / "report.html"
    report.write_text(page(*traces), "utf-8")
    tab.open(report)


def frames(tab: Tab) -> dict[str, float]:
    """Widths of the flame graph's frames in pixels, by label."""
    found: dict[str, float] = tab.js(
        "Object.fromEntries([...document.querySelectorAll('#flame-graph .frame')].map("
        "f => [f.getAttribute('aria-label').split(',')[0], f.getBoundingClientRect().width]))"
    )
    return found


def picture(tab: Tab) -> str:
    """What is drawn on the timeline."""
    return str(tab.js(f"document.querySelector('{CANVAS}').toDataURL()"))


def test_flame_frames_zoom_and_reset(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("run", speculative().trace()))
    whole = frames(tab)
    assert whole["verify"] < whole["step:decode"]
    tab.click_on(FRAME.format("verify"))
    zoomed = frames(tab)
    assert zoomed["verify"] == pytest.approx(whole["all"], abs=1)
    assert "draft" not in zoomed
    assert tab.js("document.querySelector('#flame-trail').textContent") == "allstep:decodeverify"
    tab.click_on("#flame-reset")
    assert frames(tab) == whole


def test_frames_do_not_overlap(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("large", large(3_000).trace()))
    overlap = tab.js(
        "(() => { const rows = {}; for (const f of document.querySelectorAll('#flame-graph .frame')) {"
        "const b = f.getBoundingClientRect(); (rows[b.top] ??= []).push([b.left, b.right]); }"
        "return Math.max(...Object.values(rows).flatMap(row => { row.sort((a, b) => a[0] - b[0]);"
        "return row.slice(1).map((b, i) => row[i][1] - b[0]); })); })()"
    )
    assert overlap < 0.1


def test_flame_frames_are_walked_by_keys(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("run", speculative().trace()))
    whole = frames(tab)
    tab.js("document.querySelector('#flame-graph [tabindex=\"0\"]').focus()")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        tab.key(key)
    assert len(frames(tab)) < len(whole)
    assert tab.js("document.activeElement.classList.contains('frame')")
    tab.key("Escape")
    assert frames(tab) == whole


def test_search_highlights_and_tells_the_share(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("run", speculative().trace()))
    tab.click_on("#flame-search")
    tab.call("Input.insertText", text="ALLREDUCE")
    matched = tab.js("document.querySelectorAll('#flame-graph .match').length")
    assert matched == 2
    words = tab.js("document.querySelector('#flame-found').textContent")
    assert words.startswith("2 frames match: ") and words.endswith("of the time")
    tab.js("document.querySelector('#flame-search').value = ''")
    tab.js("document.querySelector('#flame-search').dispatchEvent(new Event('input'))")
    assert tab.js("document.querySelectorAll('#flame-graph .match, #flame-graph .dim').length") == 0


def test_flame_shows_host_time_and_other_ranks(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("run", speculative().trace()))
    tab.click_on("#flame-kind [value=host]")
    assert "cudaGraphLaunch (2 nodes)" in frames(tab)
    first = tab.js("document.querySelector('#flame-graph').textContent")
    tab.click_on("#flame-device button:nth-child(2)")
    assert tab.js("document.querySelector('#flame-device [aria-pressed=true]').textContent") == "rank 1"
    assert tab.js("document.querySelector('#flame-graph').textContent") == first


def test_frames_have_a_tooltip(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("run", speculative().trace()))
    tab.mouse("mouseMoved", *tab.centre(FRAME.format("verify")))
    words = tab.js("document.querySelector('#tip').innerText")
    assert "verify" in words and "per step" in words and "share" in words
    tab.mouse("mouseMoved", 5, 5)
    assert tab.js("document.querySelector('#tip').hidden")


def test_timeline_zooms_and_tells_what_is_under_the_pointer(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("run", speculative().trace()))
    x, y = tab.centre(CANVAS)
    whole = picture(tab)
    tab.js("new Promise(done => setTimeout(done, 350))")
    tab.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
    zoomed = picture(tab)
    assert zoomed != whole
    tab.click_on("#timeline-reset")
    assert picture(tab) == whole
    x, y = tab.centre(CANVAS)
    tab.mouse("mousePressed", x - 100, y, button="left", clickCount=1)
    tab.mouse("mouseMoved", x + 100, y, button="left", buttons=1)
    tab.mouse("mouseReleased", x + 100, y, button="left", clickCount=1)
    assert picture(tab) != whole
    tab.key("0")
    box = tab.js(f"(b => [b.x, b.y, b.height, b.width])(document.querySelector('{CANVAS}').getBoundingClientRect())")
    seen = set()
    for place in range(0, int(box[2]), 6):
        for across in (0.4, 0.6):
            tab.mouse("mouseMoved", box[0] + 124 + (box[3] - 132) * across, box[1] + place)
            if not tab.js("document.querySelector('#tip').hidden"):
                seen.add(tab.js("document.querySelector('#tip strong').textContent"))
    assert {"step:decode bs=2", "target", "cudaStreamSynchronize", "gap: host code"} <= seen


def test_tabs_switch_every_section(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("one", speculative().trace()), ("two", inferred().trace()))
    assert tab.js("document.querySelector('#flame h2 .of').textContent") == "one"
    tab.click_on("#traces [role=tab]:nth-child(2)")
    assert tab.js("document.querySelector('#flame h2 .of').textContent") == "two"
    assert tab.js("[...document.querySelectorAll('[data-trace]')].every(p => p.hidden === (p.dataset.trace !== '1'))")
    assert tab.js("document.querySelector('#flame-device').hidden")
    tab.key("ArrowLeft")
    assert tab.js("document.querySelector('#traces [aria-selected=true]').textContent") == "one"
    tab.click_on("#traces-overview [data-select='1']")
    assert tab.js("document.querySelector('#traces [aria-selected=true]').textContent") == "two"


def test_themes_follow_the_reader(tab: Tab, tmp_path: Path) -> None:
    tab.size(1400, 900, dark=True)
    show(tab, tmp_path, ("run", speculative().trace()))
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = tab.js(ground)
    assert tab.js("document.documentElement.dataset.theme") == "dark"
    tab.click_on("#theme")
    assert tab.js(ground) != dark
    ink = tab.js("getComputedStyle(document.querySelector('.chart .xtick text')).fill")
    assert ink == "rgb(26, 32, 41)"


def test_charts_are_drawn_and_change_scale(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("run", speculative().trace()))
    assert tab.js("document.querySelectorAll('[data-chart=parts] .bars .point').length") > 4
    axis = "document.querySelector('[data-chart=parts] .xtitle').textContent"
    assert tab.js(axis) == "ms per step"
    tab.click_on("[data-scale=parts] [value=share]")
    tab.wait(f"{axis}.startsWith('share')")
    assert tab.js("document.querySelector('[data-chart=phases] .xtitle').textContent") == "ms per step"


def test_tables_sort(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("run", speculative().trace()))
    rows = "[...document.querySelectorAll('#kernels [data-trace=\"0\"] table')][0].tBodies[0].rows"
    times = f"[...{rows}].map(r => Number(r.cells[3].dataset.value))"
    assert tab.js(times) == sorted(tab.js(times), reverse=True)
    tab.js("document.querySelectorAll('#kernels thead')[0].rows[0].cells[3].querySelector('button').click()")
    tab.js("document.querySelectorAll('#kernels thead')[0].rows[0].cells[3].querySelector('button').click()")
    assert tab.js(times) == sorted(tab.js(times))


@pytest.mark.parametrize("width", [1400, 900, 640])
def test_nothing_is_wider_than_the_window(tab: Tab, tmp_path: Path, width: int) -> None:
    tab.size(width, 900)
    show(tab, tmp_path, ("a-recording-with-a-long-name", speculative().trace()), ("two", inferred().trace()))
    assert tab.js("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1400, 1100, 900, 640])
def test_figures_of_the_budget_keep_apart(tab: Tab, tmp_path: Path, width: int) -> None:
    tab.size(width, 900)
    show(tab, tmp_path, ("run", speculative().trace()))
    edge = "li.querySelector('{}').getBoundingClientRect().{}"
    apart = f"{edge.format('.amount', 'left')} - {edge.format('.word', 'right')}"
    gaps = tab.js(f"[...document.querySelectorAll('.figures li')].map(li => {apart})")
    assert len(gaps) > 4 and min(gaps) >= 8


def test_hostile_names_do_nothing(tab: Tab, tmp_path: Path) -> None:
    trace = speculative(names=HOSTILE).trace()
    show(tab, tmp_path, (HOSTILE[0], trace), (HOSTILE[4], trace))
    tab.click_on("#traces [role=tab]:nth-child(2)")
    assert tab.js("document.querySelectorAll('img, [onerror], b + b').length") == 0
    assert tab.js("[...document.scripts].every(s => s.id || s.type === 'module' || s.textContent.includes('Plotly'))")
    assert tab.js("document.querySelector('#flame h2 .of').textContent") == HOSTILE[4]
    shown = tab.js("[...document.querySelectorAll('#kernels td.name')].map(cell => cell.title)")
    assert {name for name in HOSTILE if name.isprintable()} <= set(shown)


@pytest.mark.parametrize("name", ["whole graphs", "inferred", "no ops"])
def test_odd_recordings_are_drawn(tab: Tab, tmp_path: Path, name: str) -> None:
    from tests.builders import TraceBuilder

    makers = {"whole graphs": whole_graphs, "inferred": inferred, "no ops": TraceBuilder}
    show(tab, tmp_path, (name, makers[name]().trace()))
    assert tab.js("document.querySelector('#verdict .summary').textContent.length") > 20


def test_fifty_thousand_ops_are_drawn_quickly(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, ("large", large(150_000).trace()))
    spent = tab.js(
        "(() => { const c = document.querySelector('#timeline-canvas'); const begin = performance.now();"
        "for (let i = 0; i < 10; i++) c.dispatchEvent(new KeyboardEvent('keydown', { key: i % 2 ? '-' : '+' }));"
        "return (performance.now() - begin) / 10; })()"
    )
    assert spent < 100


def test_it_prints(tab: Tab, tmp_path: Path) -> None:
    tab.size(1400, 900, dark=True)
    show(tab, tmp_path, ("run", speculative().trace()))
    tab.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert tab.js("document.documentElement.dataset.theme") == "dark"
