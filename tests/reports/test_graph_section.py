"""The graphs of a recording on the page and on a terminal."""

from __future__ import annotations

import re

import msgspec
import pytest

from profkit import Recording, analyze
from profkit.reports.terminal import render_terminal
from profkit.traces import Run, Trace
from tests.builders import TraceBuilder
from tests.reports.pages import HOSTILE, page, speculative, whole_graphs
from tests.reports.test_html import Elements


def falling_back() -> Trace:
    """Six steps of batch 5 in a graph for 8, but the third of batch 40 without one; a blocking call in each."""
    builder = TraceBuilder().run(Run(graph_batch_sizes=(1, 2, 4, 8, 16, 32)))
    for step in range(6):
        at, batch = step * 200_000, 40 if step == 2 else 5
        builder.range(at, at + 150_000, f"step:decode bs={batch}").range(at + 1_000, at + 30_000, "draft")
        builder.launch(at + 1_500, at + 2_500, "gemm", at + 4_000, at + 6_000)
        builder.range(at + 31_000, at + 90_000, "target")
        nodes = [(f"kernel_{k}", at + 42_000 + k * 1_000, at + 42_900 + k * 1_000) for k in range(14)]
        if batch == 40:
            for number, node in enumerate(nodes):
                builder.launch(at + 32_000 + number * 600, at + 32_500 + number * 600, *node)
        else:
            builder.graph(at + 32_000, at + 40_000, *nodes)
        builder.call(at + 41_000, at + 120_000, "cudaStreamSynchronize")
    return builder.trace()


def section_of(text: str) -> str:
    """The visible words of the section."""
    found = re.search(r'<section id="graphs">.*?</section>', text, re.DOTALL)
    assert found is not None
    return Elements(found[0]).words.replace("\u00a0", " ")


def terminal(trace: Trace, width: int = 120) -> str:
    return render_terminal(analyze([Recording("run", "", trace)])[0], width)


def test_the_section_says_what_stands_out() -> None:
    words = section_of(page(("run", falling_back())))
    for said in (
        "Draft never runs in a graph, though verify does.",
        "Verify runs without its graph in 1 of 6 steps (step 2 from 0, at batch 40), and takes no longer for it.",
        "Verify is padded in 5 of 6 steps (batch 5 in a graph for 8): that costs the GPU at most",
        "Padding is an upper bound",
        "3.3 ops per step, of 15 kinds: the ten dearest.",
        "cudaStreamSynchronize",
        "next draft",
    ):
        assert said in words
    assert "5 more" in words


def test_the_terminal_says_it_too() -> None:
    text = terminal(falling_back())
    assert "In graphs and outside, per step" in text and "What stays outside of graphs, per step" in text
    assert "… and 10 more kinds: see --json or the page" in text
    assert "verify → next draft" in text and "Blocking calls of the host, per step" in text
    assert "Draft never runs in a graph, though verify does." in text


def test_the_terminal_has_the_launch_call_of_each_phase() -> None:
    """Of the graphs of verify, 8,000 ns; draft has none."""
    lines = terminal(falling_back(), 80).split("In graphs and outside")[1].splitlines()
    assert [line.split()[:1] for line in lines[1:4]] == [["phase"], ["draft"], ["verify"]]
    assert "launch call" in lines[1] and "8.00 µs" not in lines[2] and "8.00 µs" in lines[3]


def test_blocking_calls_that_cost_nothing_stay_away_from_the_terminal() -> None:
    """The GPU works on during the call: nothing idles for it, so it is on the page only."""
    builder = TraceBuilder()
    for at in range(0, 400_000, 100_000):
        builder.range(at, at + 90_000, "step:decode bs=1").range(at + 1_000, at + 50_000, "target")
        builder.graph(at + 2_000, at + 4_000, ("gemm", at + 5_000, at + 101_000))
        builder.call(at + 60_000, at + 70_000, "cudaStreamSynchronize")
    assert "Blocking calls" not in terminal(builder.trace())
    assert "cudaStreamSynchronize" in section_of(page(("run", builder.trace())))


def test_headers_of_graph_tables_are_whole() -> None:
    """Nothing is cut off with "…" at 80 columns or where the wide tables begin."""
    for width in (80, 96):
        text = terminal(falling_back(), width)
        cut = text[text.index("In graphs and outside") : text.index("Draft never runs")]
        assert all(line.startswith("… and") for line in cut.splitlines() if "…" in line and "from … to" not in line)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, terminal(falling_back(), width).splitlines())) <= width


def test_what_is_unknown_is_said() -> None:
    text = page(("run", whole_graphs().trace()))
    words = section_of(text)
    assert "The recording does not hold the kernels of graphs" in words
    assert "unknown" in words and "unknown" in terminal(whole_graphs().trace())
    assert "None" not in words


def test_without_steps_or_graphs_there_is_still_a_section() -> None:
    lone = TraceBuilder().launch(1, 2, "gemm", 10, 20).trace()
    assert "No decode step ran on this rank." in section_of(page(("lone", lone)))
    assert "Nothing was recorded of graphs." in section_of(page(("nothing", TraceBuilder().trace())))
    assert "In graphs" not in terminal(lone)


def test_hostile_names_stay_text() -> None:
    trace = speculative(names=HOSTILE).trace()
    assert HOSTILE[4] in section_of(page(("run", trace)))
    assert "<img" not in re.sub(r"<script.*?</script>", "", page(("run", trace)), flags=re.DOTALL)


def test_rows_of_json_hold_all_that_is_outside() -> None:
    analysis = msgspec.json.decode(msgspec.json.encode(analyze([Recording("run", "", falling_back())])[0]))
    graphs = analysis["traces"][0]["graphs"]["0"]
    assert len(graphs["outside"]) == 15
    assert [row["gpu_ns"] for row in graphs["outside"]] == sorted(
        (r["gpu_ns"] for r in graphs["outside"]), reverse=True
    )
    assert graphs["fallbacks"][0] == {
        "phase": "verify",
        "steps": [2],
        "batch_sizes": [40],
        "extra_ns": 0,
        "partial": False,
    }
