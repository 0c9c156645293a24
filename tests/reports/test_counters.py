"""Hardware counters on the terminal and on the page, and nothing of them where none were sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from profkit.analyzers import attribute
from profkit.analyzers.counter_result import CounterSampling
from profkit.analyzers.timeline import typical_step
from profkit.reports.counters import every
from profkit.reports.terminal import render_terminal
from profkit.traces import Samples, Trace, load_bundle
from tests.reports.chromium import Tab
from tests.reports.pages import PERIOD, analysed, page, sized
from tests.reports.test_html import Elements

CANVAS = "#timeline-canvas"
COUNTERS = {
    "pm_pcie_read_bytes_per_s": 50e9, "pm_pcie_write_bytes_per_s": 20e9, "pm_sm_active_percent": 34.0,
    "pm_tensor_active_percent": 3.0, "pm_dram_read_percent": 20.0, "pm_dram_write_percent": 5.0,
}  # fmt: skip


def sampled(trace: Trace, period: int = 500) -> Trace:
    """``trace`` with constant counters on both GPUs."""
    times = np.arange(0, 5 * PERIOD, period)
    strings = (*trace.strings, *COUNTERS)
    table = [
        Samples(
            time=times,
            device=np.full(len(times), device),
            counter=np.full(len(times), len(trace.strings) + number),
            value=np.full(len(times), value),
        )
        for device in range(2)
        for number, value in enumerate(COUNTERS.values())
    ]
    return replace(trace, samples=Samples.join(table), strings=strings)


def test_the_terminal_tells_link_use_and_activity() -> None:
    text = render_terminal(analysed(("run", sampled(sized())))[1], 110)
    said = "PCIe reads 50 GB/s, 25 % of the link's 200 GB/s, measured every 500 ns; its message sizes imply"
    assert said in " ".join(text.split())
    lines = [line.split() for line in text.splitlines()]
    assert ["phase", "SM", "tensor", "pipe", "of", "the", "GPU's", "DRAM"] in lines
    assert ["draft", "34", "%", "3.0", "%", "25", "%"] in lines
    assert "Activity of rank 0 while busy, measured every 500 ns" in " ".join(text.split())


@pytest.mark.parametrize(
    ("asked", "said"), [(None, "every 500 ns"), (460, "every 500 ns"), (250, "every 500 ns (250 ns was asked for)")]
)
def test_the_sampling_interval_is_told_wherever_counters_are(asked: int | None, said: str) -> None:
    trace = sampled(sized())
    trace = trace.with_run(replace(trace.run, counter_interval_ns=asked))
    figures = analysed(("run", trace))[1]
    assert f"measured {said};" in " ".join(render_terminal(figures, 200).split())
    words = Elements(page(("run", trace))).words
    assert f"counters , {said} " in words
    assert f"while these collectives moved data, {said}. Where" in words
    assert f"by phase, measured {said}" in words


def test_what_was_not_sampled_has_no_column() -> None:
    trace = sampled(sized())
    kept = np.array([not trace.strings[name].startswith("pm_dram") for name in trace.samples.counter])
    without = replace(trace, samples=trace.samples.take(kept.nonzero()[0]))
    lines = [line.split() for line in render_terminal(analysed(("run", without))[1], 110).splitlines()]
    assert ["phase", "SM", "tensor", "pipe"] in lines
    words = Elements(page(("run", without))).words
    assert "samples SM tensor pipe" in words and "of the GPU's DRAM" not in words
    assert "samples SM tensor pipe of the GPU's DRAM" in Elements(page(("run", trace))).words


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (CounterSampling(50_015, 50_000, covered_share=0.951), "every 50.0 µs"),
        (CounterSampling(50_000, 50_000, covered_share=0.915), "every 50.0 µs over 92 % of the recording"),
        (CounterSampling(50_000, None, clock_error_ns=49_000), "every 50.0 µs"),
        (CounterSampling(50_000, None, clock_error_ns=1_100_000), "every 50.0 µs by a clock known to ± 1.10 ms"),
        (CounterSampling(50_000, None, moved_ns=700_000, clock_error_ns=1_100_000), "every 50.0 µs"),
        (
            CounterSampling(200_000, 50_000, covered_share=0.5),
            "every 200 µs (50.0 µs was asked for) over 50 % of the recording",
        ),
    ],
)
def test_samples_of_a_part_or_of_an_uncertain_clock_are_told_so(sampling: CounterSampling, said: str) -> None:
    assert every(sampling) == said


def test_a_part_is_told_on_terminal_and_page() -> None:
    trace = sampled(sized())
    trace = replace(trace, samples=trace.samples.take(trace.samples.time < 2 * PERIOD))
    figures = analysed(("run", trace))[1]
    assert "% of the recording" in " ".join(render_terminal(figures, 200).split())
    assert "% of the recording" in Elements(page(("run", trace))).words


def test_nothing_is_told_without_samples() -> None:
    text = render_terminal(analysed(("run", sized()))[1], 110)
    assert "measured" not in text.replace("measured speed-up", "")
    words = Elements(page(("run", sized()))).words
    assert "Link use during transfers" not in words and "Activity while the GPU is busy" not in words
    assert "tensor pipe active" not in words


def test_the_page_has_tables_of_link_use_and_activity() -> None:
    words = Elements(page(("run", sampled(sized())))).words
    assert "Link use during transfers, measured" in words and "PCIe reads" in words and "PCIe writes" in words
    assert "50 GB/s" in words
    assert "Activity while the GPU is busy, by phase, measured" in words


def height(tab: Tab) -> float:
    return float(tab.js(f"document.querySelector('{CANVAS}').getBoundingClientRect().height"))


@pytest.mark.parametrize("dark", [False, True])
def test_tracks_lie_above_the_lanes_and_tell_their_values(tab: Tab, tmp_path: Path, dark: bool) -> None:
    tab.size(1400, 900, dark=dark)
    report = tmp_path / "report.html"
    report.write_text(page(("run", sized())), "utf-8")
    tab.open(report)
    bare = height(tab)
    report.write_text(page(("run", sampled(sized()))), "utf-8")
    tab.open(report)
    assert height(tab) == bare + 2 * 3 * 42
    assert "tensor pipe active" in tab.js("document.querySelector('#timeline').innerText")
    tab.centre(CANVAS)
    x, y, wide = tab.js(f"(b => [b.x, b.y, b.width])(document.querySelector('{CANVAS}').getBoundingClientRect())")
    told = []
    for row in (65, 107, 149):
        tab.mouse("mouseMoved", x + 124 + (wide - 132) * 0.5, y + row)
        told.append(tab.js("document.querySelector('#tip').innerText").replace("\u00a0", " ").split("\n"))
    assert [lines[0] for lines in told] == ["PCIe, measured", "DRAM, measured", "activity, measured"]
    assert {"50 GB/s", "20 GB/s", "200 GB/s"} <= set(told[0])
    assert {"34 %", "3 %"} <= set(told[2])


def test_tracks_zoom_with_the_timeline(tab: Tab, tmp_path: Path) -> None:
    """Sampled is the middle of the step only: a fifth from the left there is nothing, until it is zoomed into."""
    trace = sampled(sized())
    timeline = typical_step(attribute(trace))
    assert timeline is not None
    span = timeline.end_ns - timeline.start_ns
    middle = np.abs(trace.samples.time - timeline.start_ns - span // 2) < span // 4
    report = tmp_path / "report.html"
    report.write_text(page(("run", replace(trace, samples=trace.samples.take(middle)))), "utf-8")
    tab.open(report)
    shown = []
    for press in (None, "#timeline-in", "#timeline-reset"):
        if press:
            tab.click_on(press)
        tab.centre(CANVAS)
        x, y, wide = tab.js(f"(b => [b.x, b.y, b.width])(document.querySelector('{CANVAS}').getBoundingClientRect())")
        tab.mouse("mouseMoved", x + 124 + (wide - 132) * 0.2, y + 65)
        shown.append(not tab.js("document.querySelector('#tip').hidden"))
    assert shown == [False, True, False]


def test_the_page_tells_how_far_samples_were_moved() -> None:
    """At 128 over NVLink both GPUs' were, at 1 neither's."""
    recorded = Path(__file__).parents[2] / "traces" / "ep2-dflash-nvlink"
    words = {name: Elements(page((name, load_bundle(recorded / name)))).words for name in ("c1", "c128")}
    assert "samples were moved by −34.0 µs (rank 0), −62.0 µs (rank 1), to where" in words["c128"]
    assert "samples were moved" not in words["c1"]


def test_the_legend_names_what_has_a_track() -> None:
    """Of one GPU without NVLink nothing is received or sent."""
    recorded = Path(__file__).parents[2] / "traces"
    alone = Elements(page(("c1", load_bundle(recorded / "tp1-dflash-counters" / "c1")))).words
    assert "reads, SM active writes, tensor pipe active limit of the link" in alone
    linked = Elements(page(("c1", load_bundle(recorded / "ep2-dflash-nvlink" / "c1")))).words
    assert "reads, receives, SM active writes, sends, tensor pipe active limit of the link" in linked
