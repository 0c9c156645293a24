"""The page of a comparison: its data decoded in Python, and everything that can be used in a real browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.analyzers.diff import diff, pair_up, parse_limit
from profkit.analyzers.diff.flame import diff_flame
from profkit.analyzers.flame import gpu_flame
from profkit.cli import main
from profkit.reports.diff_html import render_diff_page
from profkit.traces import Trace
from tests.reports.chromium import Tab, browser, require
from tests.reports.pages import HOSTILE

from .pairs import Served, at_concurrency, side_of, trace_of

FRAME = '#flame-graph [aria-label^="{}"]'
FAST, SLOW = Served(seed=1, layers=3), Served(seed=2, layers=3, gemm=45_000, inserted=("rope_kernel", 9_000))


def page(
    a: list[Trace], b: list[Trace], names: tuple[str, str] = ("before", "after"), limits: tuple[str, ...] = ()
) -> str:
    sides = [[side_of(trace, name) for trace in traces] for name, traces in zip(names, (a, b), strict=True)]
    found = diff(sides[0], sides[1], limits=[parse_limit(text) for text in limits])
    return render_diff_page(found, pair_up(sides[0], sides[1])[0])


def data_of(text: str) -> dict[str, Any]:
    (found,) = re.findall(
        r'<script type="application/json" id="profkit-data" data-encoding="(.*?)">(.*?)</script>', text
    )
    raw = gzip.decompress(base64.b64decode(found[1])).decode() if found[0] == "gzip+base64" else found[1]
    decoded: dict[str, Any] = json.loads(raw)
    return decoded


@pytest.fixture(scope="module")
def slower() -> str:
    return page([trace_of(FAST, 8)], [trace_of(SLOW, 8)], limits=("verify>5%", "draft>9%"))


# -- the data ----------------------------------------------------------------------------------------------------------


def test_flames_keep_each_sides_times() -> None:
    a, b = side_of(trace_of(FAST, 8)), side_of(trace_of(SLOW, 8))
    flame = diff_flame(a, b, (1.0, 2.0))
    flame.check()
    for side, times, counts, each in ((a, flame.a_ns, flame.a_count, 1), (b, flame.b_ns, flame.b_count, 2)):
        own = gpu_flame(side.attribution, b.slowest())
        assert times[0] == pytest.approx(own.total_ns[0] / 8 / each)
        assert counts[0] == pytest.approx(own.count[0] / 8 / each)
    rope = [flame.strings[n] for n in flame.label.tolist()].index("rope_kernel")
    assert flame.a_ns[rope] == 0 and flame.b_ns[rope] == pytest.approx(4_500, rel=0.1)
    assert np.all(flame.parent[1:] < np.arange(1, len(flame.parent)))


def test_the_target_is_one_phase_where_one_side_drafts() -> None:
    a, b = side_of(trace_of(Served(seed=1, layers=2, drafts=False), 8)), side_of(trace_of(Served(seed=2, layers=2), 8))
    flame = diff_flame(a, b, (1.0, 1.0))
    labels = [flame.strings[n] for n in flame.label.tolist()]
    assert "decode" not in labels
    assert flame.a_ns[labels.index("verify")] > 0 and flame.b_ns[labels.index("verify")] > 0


def test_waterfall_ends_at_b(slower: str) -> None:
    (bars,) = data_of(slower)["charts"]["waterfall-0"]["data"]
    changes = list(zip(bars["base"], bars["x"], strict=True))
    assert changes[0][0] == 0 and changes[-1][0] == 0
    for (base, length), (following, _) in pairwise(changes[:-1]):
        assert following == pytest.approx(base + length)
    assert changes[-2][0] + changes[-2][1] == pytest.approx(changes[-1][1])


def test_timelines_share_a_scale(slower: str) -> None:
    a, b = data_of(slower)["pairs"][0]["timelines"]
    assert a["span"] == b["span"]
    for one in (a, b):
        assert min(one["start"]) >= 0
        assert max(start + length for start, length in zip(one["start"], one["length"], strict=True)) <= one["span"]
    assert any(first == second for _, first, _ in a["marks"] for _, second, _ in b["marks"])


def test_nothing_comes_from_elsewhere(slower: str) -> None:
    without_plotly = re.sub(r'<script type="text/plain" id="plotly">.*?</script>', "", slower, flags=re.DOTALL)
    assert not re.search(r"https?://(?!www\.w3\.org)", without_plotly)
    assert not re.search(r"<(link|img|script)[^>]+(src|href)=\"(?!data:|#)", without_plotly)


def test_the_same_pair_gives_the_same_page(slower: str) -> None:
    assert page([trace_of(FAST, 8)], [trace_of(SLOW, 8)], limits=("verify>5%", "draft>9%")) == slower


def test_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2] / "traces"
    target = tmp_path / "page.html"
    assert main(["diff", str(root / "ep2/c1"), str(root / "ep2-dflash/c1"), "--json", "-o", str(target)]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["b_ns"] == 9_749_538
    assert "A speculative cycle takes 9.75 ms" in target.read_text("utf-8")


def test_pure_functions_of_the_page() -> None:
    node = require(shutil.which("node"), "Node")
    script = Path(__file__).with_name("test_diff_page.mjs")
    done = subprocess.run([node, "--test", str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def tab(chromium: Tab) -> Iterator[Tab]:
    """The browser, which must have stayed silent and offline by the end of the test."""
    chromium.messages.clear()
    chromium.requests.clear()
    chromium.size(1400, 900)
    yield chromium
    chromium.js("0")
    assert chromium.messages == []
    assert [url for url in chromium.requests if not url.startswith(("file:", "data:", "about:"))] == []


def show(tab: Tab, folder: Path, text: str) -> None:
    (folder / "diff.html").write_text(text, "utf-8")
    tab.open(folder / "diff.html")


def frames(tab: Tab) -> dict[str, float]:
    """Widths of the frames in pixels, by label."""
    found: dict[str, float] = tab.js(
        "Object.fromEntries([...document.querySelectorAll('#flame-graph .frame')].map("
        "f => [f.getAttribute('aria-label').split(',')[0], f.getBoundingClientRect().width]))"
    )
    return found


def picture(tab: Tab, side: str) -> str:
    return str(tab.js(f"document.querySelector('#timeline-{side}').toDataURL()"))


def test_flame_graph(tab: Tab, tmp_path: Path, slower: str) -> None:
    """The width as A or as B, colours, zoom by pointer and keys, search, tooltip."""
    show(tab, tmp_path, slower)
    wide = frames(tab)
    assert "rope_kernel" in wide
    colour = "getComputedStyle(document.querySelector('#flame-graph [aria-label^=rope_kernel]')).backgroundColor"
    assert tab.js(colour) == "rgb(197, 53, 43)"
    tab.click_on("#flame-width [value=a]")
    assert "rope_kernel" not in frames(tab) and frames(tab)["verify"] < wide["verify"]
    tab.click_on(FRAME.format("verify"))
    assert "draft" not in frames(tab)
    tab.click_on("#flame-reset")
    assert "draft" in frames(tab)
    tab.js("document.querySelector('#flame-graph [tabindex=\"0\"]').focus()")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        tab.key(key)
    assert "draft" not in frames(tab)
    tab.key("Escape")
    tab.click_on("#flame-search")
    tab.call("Input.insertText", text="nvjet")
    assert tab.js("document.querySelectorAll('#flame-graph .match').length") == 2
    tab.mouse("mouseMoved", *tab.centre(FRAME.format("verify")))
    words = tab.js("document.querySelector('#tip').innerText")
    assert "in A" in words and "in B" in words and "change" in words and "+" in words


def test_timelines_move_together(tab: Tab, tmp_path: Path, slower: str) -> None:
    show(tab, tmp_path, slower)
    whole = picture(tab, "a"), picture(tab, "b")
    assert whole[0] != whole[1]
    tab.click_on("#timeline-in")
    zoomed = picture(tab, "a"), picture(tab, "b")
    assert zoomed[0] != whole[0] and zoomed[1] != whole[1]
    tab.js("document.querySelector('#timeline-b').focus()")
    tab.key("ArrowRight")
    assert picture(tab, "a") != zoomed[0] and picture(tab, "b") != zoomed[1]
    tab.click_on("#timeline-reset")
    assert (picture(tab, "a"), picture(tab, "b")) == whole
    tab.click_on("#timeline-by [value=class]")
    assert picture(tab, "a") != whole[0] and picture(tab, "b") != whole[1]
    assert tab.js("[...document.querySelectorAll('[data-colours]')].map(l => l.hidden)") == [True, False]


def test_waterfall_tables_and_theme(tab: Tab, tmp_path: Path, slower: str) -> None:
    tab.size(1400, 900, dark=True)
    show(tab, tmp_path, slower)
    assert tab.js("document.querySelectorAll('[data-chart=waterfall-0] .bars .point').length") > 6
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = tab.js(ground)
    tab.click_on("#theme")
    assert tab.js(ground) != dark
    changes = "[...document.querySelector('#parts table').tBodies[0].rows].map(r => Number(r.cells[5].dataset.value))"
    for _ in range(2):
        tab.js("document.querySelector('#parts thead').rows[0].cells[5].querySelector('button').click()")
    assert tab.js(changes) == sorted(tab.js(changes))
    assert tab.js("[...document.querySelectorAll('#verdict .badge')].map(b => b.textContent)") == [
        "yes",
        "exceeded",
        "held",
    ]
    assert "new" in tab.js("[...document.querySelectorAll('#kernels .state')].map(c => c.textContent)")


def test_pairs_have_tabs(tab: Tab, tmp_path: Path) -> None:
    made = [[at_concurrency(trace_of(Served(seed=10 * k + n, layers=1), 6, 1), n) for n in (1, 32)] for k in (1, 2)]
    show(tab, tmp_path, page(made[0], made[1]))
    assert tab.js("document.querySelectorAll('#pairs [role=tab]').length") == 2
    tab.click_on("#pairs [role=tab]:nth-child(2)")
    assert tab.js("[...document.querySelectorAll('[data-pair]')].every(p => p.hidden === (p.dataset.pair !== '1'))")
    assert tab.js("document.querySelectorAll('[data-chart=waterfall-1] .bars .point').length") > 2
    tab.key("ArrowLeft")
    assert tab.js("document.querySelector('#pairs [aria-selected=true]').textContent") == "concurrency 1"
    tab.click_on("#all-pairs [data-select='1']")
    assert tab.js("document.querySelector('#pairs [aria-selected=true]').textContent") == "concurrency 32"


@pytest.mark.parametrize("width", [1400, 900, 640])
def test_nothing_is_wider_than_the_window(tab: Tab, tmp_path: Path, slower: str, width: int) -> None:
    tab.size(width, 900)
    show(tab, tmp_path, slower)
    assert tab.js("document.documentElement.scrollWidth") <= width


def test_hostile_names_do_nothing(tab: Tab, tmp_path: Path) -> None:
    traces = [
        trace_of(Served(seed=n, layers=2, attention=HOSTILE[n], inserted=(HOSTILE[n + 2], 9_000)), 8) for n in (0, 1)
    ]
    show(tab, tmp_path, page(traces[:1], traces[1:], (HOSTILE[0], HOSTILE[4])))
    assert tab.js("document.querySelectorAll('img, [onerror]').length") == 0
    assert tab.js("[...document.scripts].every(s => s.id || s.type === 'module' || s.textContent.includes('Plotly'))")
    assert tab.js("document.querySelector('h1').textContent") == f"{HOSTILE[0]} → {HOSTILE[4]}"


def test_odd_pairs_are_drawn(tab: Tab, tmp_path: Path) -> None:
    """Not comparable; without steps; without noise."""
    from .test_comparable import no_steps

    show(tab, tmp_path, page([trace_of(FAST, 8)], [no_steps()]))
    assert tab.js("document.querySelector('#verdict .badge').textContent") == "no"
    assert tab.js("document.querySelector('#flame').hidden && document.querySelector('#timeline').hidden")
    show(tab, tmp_path, page([no_steps()], [no_steps()]))
    assert "all" in frames(tab) and tab.js("document.querySelector('#timeline').hidden")
    show(tab, tmp_path, page([trace_of(FAST, 3)], [trace_of(SLOW, 3)]))
    assert tab.js("document.querySelectorAll('#parts .unknown').length") > 3


def test_it_prints(tab: Tab, tmp_path: Path, slower: str) -> None:
    show(tab, tmp_path, slower)
    tab.pdf(tmp_path / "diff.pdf")
    assert (tmp_path / "diff.pdf").read_bytes().startswith(b"%PDF")
