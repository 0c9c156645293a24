"""The bar at the top of a page: what a link jumps to stays clear of it, and its tabs leave the page where it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.reports.chromium import Tab
from tests.reports.pages import page, speculative

NAMES = [f"a-recording-with-a-long-name-{number}" for number in range(12)]
BOTTOM = "document.querySelector('.bar').getBoundingClientRect().bottom"


def show(tab: Tab, folder: Path, names: list[str], width: int) -> None:
    """Open the report of recordings alike, in a window as wide as ``width``."""
    trace = speculative().trace()
    (folder / "page.html").write_text(page(*((name, trace) for name in names)), "utf-8")
    tab.size(width, 844)
    tab.open(folder / "page.html")


def covered(tab: Tab) -> list[str]:
    """The links, those of the contents among them, that lead to a heading behind the bar or out of the window."""
    places = tab.js("[...new Set([...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href')))]")
    assert len(places) > 6
    return [place for place in places if not _is_clear(tab, place)]


def _is_clear(tab: Tab, place: str) -> bool:
    link = json.dumps(f'a[href="{place}"]')
    tab.js("scrollTo({ top: 0, behavior: 'instant' })")
    tab.js(f"document.querySelector({link}).click()")
    tab.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    top: float = tab.js(f"document.querySelector('{place} h2, {place} h1').getBoundingClientRect().top")
    return bool(tab.js(BOTTOM) <= top < 844)


@pytest.mark.parametrize("width", [390, 700, 1400])
@pytest.mark.parametrize("count", [1, 2, 12])
def test_no_heading_that_a_link_leads_to_is_behind_the_bar(tab: Tab, tmp_path: Path, count: int, width: int) -> None:
    show(tab, tmp_path, NAMES[:count], width)
    assert covered(tab) == []


def test_the_bar_is_measured_anew_when_the_window_gets_narrower(tab: Tab, tmp_path: Path) -> None:
    show(tab, tmp_path, NAMES[:6], 1400)
    wide = tab.js(BOTTOM)
    tab.size(390, 844)
    assert covered(tab) == [] and tab.js(BOTTOM) > wide + 40


def test_choosing_a_recording_leaves_the_page_where_it_is(tab: Tab, tmp_path: Path) -> None:
    """The tab itself is brought into view among the others."""
    show(tab, tmp_path, NAMES, 390)
    chosen = "(t => [t.top, t.bottom])(document.querySelector('#traces [aria-selected=true]').getBoundingClientRect())"
    box = "(t => [t.top, t.bottom])(document.querySelector('#traces').getBoundingClientRect())"
    tab.js("scrollTo({ top: 1500, behavior: 'instant' })")
    for key in ("ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowRight"):
        tab.js("document.querySelector('#traces [aria-selected=true]').focus({ preventScroll: true })")
        tab.key(key)
        assert tab.js("scrollY") == 1500
        (top, bottom), (above, below) = tab.js(chosen), tab.js(box)
        assert above - 1 <= top and bottom <= below + 1
    assert tab.js("(b => b.scrollHeight - b.clientHeight)(document.querySelector('#traces'))") > 40


@pytest.mark.parametrize("width", [390, 1400])
def test_the_entry_of_the_section_below_the_bar_is_current(tab: Tab, tmp_path: Path, width: int) -> None:
    """The section before it ends 8 px above the lower edge of the bar, which has several rows here."""
    show(tab, tmp_path, NAMES[:1], 1400)
    assert tab.js(BOTTOM) < 80
    show(tab, tmp_path, NAMES, width)
    assert tab.js(BOTTOM) > 100
    current = "[...document.querySelectorAll('#contents a.current')].map(a => a.hash).join()"
    for place in ("#health", "#verdict", "#flame"):
        tab.js(f"document.querySelector('#contents a[href=\"{place}\"]').click()")
        tab.wait(f"{current} === '{place}'")
