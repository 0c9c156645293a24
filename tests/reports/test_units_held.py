"""No line of the page breaks between a figure and its unit, or between a figure and the sign before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit import Recording, analyze
from profkit.reports.html import render_report
from profkit.traces import open_recordings
from tests.reports.chromium import Tab

SWEEP = Path(__file__).parents[2] / "traces" / "tp1-dflash-eager"
PARTED = r"""
(() => {
  const found = [], walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT)
  for (let node; (node = walk.nextNode());) {
    for (const match of node.data.matchAll(/[<−+]?\s?\d[\d.,\u202f]*\s(?:%|ns|µs|ms|s|[kMGT]?B\/s)(?![\w])/g)) {
      const range = document.createRange()
      range.setStart(node, match.index)
      range.setEnd(node, match.index + match[0].length)
      const lines = [...range.getClientRects()].filter(one => one.width)
      if (lines.some(one => one.top > lines[0].top + 4)) found.push(match[0] + ' in ' + node.data.slice(0, 80))
    }
  }
  return found
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recordings = [Recording(one.name, str(one.path), one.trace) for one in open_recordings(SWEEP)]
    analysis, attributions = analyze(recordings)
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(render_report(list(zip(analysis.traces, attributions, strict=True)), analysis), "utf-8")
    return path


def test_figures_stay_with_their_units(page: Path, tab: Tab) -> None:
    tab.open(page)
    tab.js("document.querySelectorAll('details').forEach(one => { one.open = true })")
    for width in (1400, 1100, 900, 760, 640, 500, 460, 420, 380, 340):
        tab.size(width, 900)
        assert tab.js(PARTED) == [], width
