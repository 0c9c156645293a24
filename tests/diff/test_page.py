"""The page of a comparison: its data decoded in Python, and everything that can be used in a real browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as with_fields

from profkit.analyzers.diff import diff, pair_up, parse_limit
from profkit.analyzers.diff.devices import one_rank
from profkit.analyzers.diff.flame import diff_flame
from profkit.analyzers.flame import gpu_flame
from profkit.cli import main
from profkit.reports.diff_figures import longest, waterfall
from profkit.reports.diff_html import render_diff_page
from profkit.traces import Trace
from tests.builders import TraceBuilder
from tests.reports.chromium import Tab, require
from tests.reports.pages import HOSTILE
from tests.reports.test_bar import covered

from .pairs import Served, at_concurrency, compared, side_of, trace_of

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
        own = gpu_flame(side.attribution, one_rank(a, b)[1])
        assert times[0] == pytest.approx(own.total_ns[0] / 8 / each)
        assert counts[0] == pytest.approx(own.count[0] / 8 / each)
    rope = [flame.strings[n] for n in flame.label.tolist()].index("rope_kernel")
    assert flame.a_ns[rope] == 0 and flame.b_ns[rope] == pytest.approx(4_500, rel=0.1)
    assert np.all(flame.parent[1:] < np.arange(1, len(flame.parent)))


def test_the_target_is_one_phase_where_one_side_drafts() -> None:
    a, b = side_of(trace_of(Served(seed=1, layers=2, drafts=False), 8)), side_of(trace_of(Served(seed=2, layers=2), 8))
    flame = diff_flame(a, b, (1.0, 1.0))
    labels = [flame.strings[n] for n in flame.label.tolist()]
    assert "decode" not in labels and "verify" not in labels
    assert flame.a_ns[labels.index("target")] > 0 and flame.b_ns[labels.index("target")] > 0


def test_one_sided_frames_say_whose_they_are(slower: str) -> None:
    flame = data_of(slower)["pairs"][0]["flame"]
    only = {flame["strings"][label]: side for label, side in zip(flame["label"], flame["only"], strict=True)}
    assert only["rope_kernel"] == "b" and only["verify"] == ""


def test_waterfall_ends_at_b() -> None:
    pair = compared(trace_of(FAST, 8), trace_of(SLOW, 8))
    assert pair.total is not None
    first, *changes, last = waterfall(pair)
    assert (first.begin_ns, first.end_ns) == (0, pair.total.a_ns)
    for bar, following in pairwise([first, *changes]):
        assert following.begin_ns == bar.end_ns
    assert (last.begin_ns, last.end_ns) == (0, pair.total.b_ns) and changes[-1].end_ns == pair.total.b_ns
    assert longest((first, *changes, last)) >= max(pair.total.a_ns, pair.total.b_ns)
    assert any(bar.pale for bar in changes) and not changes[0].pale


def test_ranks_show_what_each_computes_and_waits_for() -> None:
    """Also what of a collective's time is waiting, and whose kernels are shown."""
    text = page([trace_of(FAST, 8)], [trace_of(replace(FAST, seed=2), 8, slow_rank=1.3)])
    table = text.split('<section id="ranks">')[1].split("</section>")[0]
    shown = re.findall(r'<td class="word">(?!rank )(?!<)([a-z ]+)</td>', table)
    assert shown == 2 * [
        "wall time", "compute", "host gaps", "waiting in collectives", "transfer in collectives",
    ]  # fmt: skip
    kernels = text.split('<section id="kernels">')[1].split("</section>")[0]
    assert len(re.findall(r'<span class="wait">waiting [\d.]+\xa0[nmµ]?s</span>', kernels)) == 2


def test_the_rest_of_a_step_has_a_title() -> None:
    sides = [side_of(trace_of(replace(FAST, seed=n), 8)) for n in (1, 2)]
    sides[1] = replace(sides[1], cycle=with_fields(sides[1].cycle, phases_inferred=True))
    text = render_diff_page(diff(sides[:1], sides[1:]), [(sides[0], sides[1])])
    assert re.search(r'<td data-value="rest"><span class="word">.*?</span>rest</span>', text)


def test_waterfall_of_plain_and_speculative() -> None:
    pair = compared(trace_of(Served(seed=1, layers=2, drafts=False), 8), trace_of(Served(seed=2, layers=2), 8))
    labels = [bar.label for bar in waterfall(pair)]
    assert any(label.startswith("target · ") for label in labels)
    assert not any(label.startswith(("decode", "verify")) for label in labels)


def test_nothing_is_pale_where_nothing_was_tested() -> None:
    assert not any(bar.pale for bar in waterfall(compared(trace_of(FAST, 3), trace_of(SLOW, 3))))


def test_shown_text_has_no_hyphen_for_a_minus(slower: str) -> None:
    shown = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", slower, flags=re.DOTALL)
    assert "−" in shown and not re.search(r"(?<![\w-])-\d", shown)


def test_timelines_share_a_scale(slower: str) -> None:
    a, b = data_of(slower)["pairs"][0]["timelines"]
    assert a["span"] == b["span"]
    for one in (a, b):
        assert min(one["start"]) >= 0
        assert max(start + length for start, length in zip(one["start"], one["length"], strict=True)) <= one["span"]
    assert any(first == second for _, first, _ in a["marks"] for _, second, _ in b["marks"])


def test_nothing_comes_from_elsewhere(slower: str) -> None:
    assert not re.search(r"https?://", slower)
    assert not re.search(r"<(link|img|script)[^>]+(src|href)=\"(?!data:|#)", slower)


def test_the_same_pair_gives_the_same_page(slower: str) -> None:
    assert page([trace_of(FAST, 8)], [trace_of(SLOW, 8)], limits=("verify>5%", "draft>9%")) == slower


def test_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2] / "traces"
    target = tmp_path / "page.html"
    assert main(["diff", str(root / "ep2/c1"), str(root / "ep2-dflash/c1"), "--json", "-o", str(target)]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["b_ns"] == 9_749_538
    assert "A speculative cycle takes 9.75\u00a0ms" in target.read_text("utf-8")


def test_pure_functions_of_the_page() -> None:
    node = require(shutil.which("node"), "Node")
    script = Path(__file__).with_name("test_diff_page.mjs")
    done = subprocess.run([node, "--test", str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# -- in a browser ------------------------------------------------------------------------------------------------------


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
    assert tab.js(f"document.querySelector('{FRAME.format('rope_kernel')}').classList.contains('one-sided')")
    assert tab.js(f"document.querySelector('{FRAME.format('rope_kernel')}').ariaLabel").endswith("only in B")
    assert tab.js("document.querySelector('#flame-only').textContent") == "only in B"
    colour = "getComputedStyle(document.querySelector('#flame-graph [aria-label^={}]')).backgroundImage"
    assert "gradient" in tab.js(colour.format("rope_kernel")) and tab.js(colour.format("verify")) == "none"
    tab.click_on("#flame-width [value=a]")
    assert tab.js("document.querySelector('#flame-only').textContent") == "only in A"
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
    assert tab.js("document.querySelectorAll('.waterfall i').length") > 6
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
    assert "only in B" in tab.js("[...document.querySelectorAll('#kernels .state')].map(c => c.textContent)")
    calls = tab.js("[...document.querySelectorAll('#kernels tbody .num small')].map(c => c.textContent)")
    assert len(calls) > 10 and all(re.fullmatch(r"[\d.]+ × [\d.]+\xa0[µm]?s", text) for text in calls)


def test_pairs_have_tabs(tab: Tab, tmp_path: Path) -> None:
    made = [[at_concurrency(trace_of(Served(seed=10 * k + n, layers=1), 6, 1), n) for n in (1, 32)] for k in (1, 2)]
    show(tab, tmp_path, page(made[0], made[1]))
    assert tab.js("document.querySelectorAll('#pairs [role=tab]').length") == 2
    tab.click_on("#pairs [role=tab]:nth-child(2)")
    assert tab.js("[...document.querySelectorAll('[data-pair]')].every(p => p.hidden === (p.dataset.pair !== '1'))")
    assert tab.js("document.querySelectorAll('#waterfall [data-pair]:not([hidden]) i').length") > 2
    tab.key("ArrowLeft")
    assert tab.js("document.querySelector('#pairs [aria-selected=true]').textContent") == "concurrency 1"
    tab.click_on("#all-pairs [data-select='1']")
    assert tab.js("document.querySelector('#pairs [aria-selected=true]').textContent") == "concurrency 32"


@pytest.mark.parametrize("width", [390, 1400])
def test_no_heading_that_a_link_leads_to_is_behind_the_bar(tab: Tab, tmp_path: Path, width: int) -> None:
    run = [[trace_of(Served(seed=k, layers=1), 6, 1)] * 4 for k in (1, 2)]
    made = [[at_concurrency(trace, n) for trace, n in zip(side, (1, 8, 32, 128), strict=True)] for side in run]
    tab.size(width, 844)
    show(tab, tmp_path, page(made[0], made[1]))
    assert covered(tab) == []


@pytest.mark.parametrize("width", [1400, 900, 700, 400])
def test_nothing_is_wider_than_the_window(tab: Tab, tmp_path: Path, slower: str, width: int) -> None:
    """Nor does anything reach beyond it but in a box that scrolls; and the waterfall's words stand apart."""
    tab.size(width, 900)
    show(tab, tmp_path, slower)
    assert tab.js("document.documentElement.scrollWidth") <= width
    beyond = (
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll table') && "
        "e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 80))"
    )
    assert tab.js(beyond) == []
    overlapping = (
        "[...document.querySelectorAll('.waterfall li')].filter(row => {"
        "const boxes = ['.label', '.lane', '.amount'].map(s => row.querySelector(s).getBoundingClientRect());"
        "return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right"
        " && a.top < b.bottom && b.top < a.bottom)); }).length"
    )
    assert tab.js("document.querySelectorAll('.waterfall li').length") > 6 and tab.js(overlapping) == 0


def test_hostile_names_do_nothing(tab: Tab, tmp_path: Path) -> None:
    traces = [
        trace_of(Served(seed=n, layers=2, attention=HOSTILE[n], inserted=(HOSTILE[n + 2], 9_000)), 8) for n in (0, 1)
    ]
    show(tab, tmp_path, page(traces[:1], traces[1:], (HOSTILE[0], HOSTILE[4])))
    assert tab.js("document.querySelectorAll('img, [onerror]').length") == 0
    assert tab.js("[...document.scripts].every(s => s.id || s.type === 'module')")
    assert tab.js("document.querySelector('h1').textContent") == f"{HOSTILE[0]} → {HOSTILE[4]}"


def without_steps(kernels: int) -> Trace:
    builder = TraceBuilder().rank(0)
    for start in range(0, 10 * kernels, 10):
        builder.launch(start, start + 1, "gemm", start + 3, start + 8)
    return builder.trace()


def shown_sections(tab: Tab) -> list[str]:
    """Sections that are seen, which must be those of the table of contents."""
    seen: list[str] = tab.js("[...document.querySelectorAll('section')].filter(s => !s.hidden).map(s => s.id)")
    assert seen == tab.js("[...document.querySelectorAll('#contents a:not([hidden])')].map(a => a.hash.slice(1))")
    return seen


def test_odd_pairs_are_drawn(tab: Tab, tmp_path: Path) -> None:
    """Not comparable; without steps; without noise."""
    show(tab, tmp_path, page([trace_of(FAST, 8)], [without_steps(10)]))
    assert tab.js("document.querySelector('#verdict .badge').textContent") == "no"
    assert shown_sections(tab) == ["verdict"]
    show(tab, tmp_path, page([without_steps(10)], [without_steps(12)]))
    assert "all" in frames(tab) and "timeline" not in shown_sections(tab)
    assert "changes in the time of the whole recording" in tab.js("document.querySelector('#waterfall').innerText")
    assert tab.js("document.querySelectorAll('main .change.noise, tr.noise').length") == 0
    assert "within noise" not in tab.js("document.querySelector('#parts').innerText")
    assert tab.js("document.querySelector('#kernels .state').textContent") == "not tested"
    show(tab, tmp_path, page([trace_of(FAST, 3)], [trace_of(SLOW, 3)]))
    assert tab.js("[...document.querySelectorAll('#parts .unknown')].every(v => v.textContent === 'not tested')")
    assert tab.js("document.querySelectorAll('#parts .unknown').length") > 3


def test_the_same_recording_twice(tab: Tab, tmp_path: Path) -> None:
    """One sentence, and limits if there are any; beside another pair, no more than that either."""
    trace = trace_of(FAST, 8)
    show(tab, tmp_path, page([trace], [trace]))
    assert shown_sections(tab) == ["verdict"] and tab.js("document.querySelectorAll('table').length") == 0
    assert "the same recording" in tab.js("document.querySelector('#verdict').innerText")
    same = at_concurrency(trace, 32)
    others = [at_concurrency(trace_of(Served(seed=n, layers=1), 6, 1), 1) for n in (1, 2)]
    show(tab, tmp_path, page([others[0], same], [others[1], same]))
    assert "the same recording" in tab.js("document.querySelector('#all-pairs').innerText")
    tab.click_on("#pairs [role=tab]:nth-child(2)")
    assert shown_sections(tab) == ["all-pairs", "verdict", "definitions"]


def test_it_prints(tab: Tab, tmp_path: Path, slower: str) -> None:
    show(tab, tmp_path, slower)
    tab.pdf(tmp_path / "diff.pdf")
    assert (tmp_path / "diff.pdf").read_bytes().startswith(b"%PDF")
