"""What recording costs, on a terminal and on the page."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from profkit import Recording, analyze
from profkit.analyzers.words import range_of
from profkit.reports.terminal import render_terminal
from profkit.traces import Run, StepTimes, Trace
from tests.builders import TraceBuilder
from tests.reports.pages import HOSTILE, page
from tests.reports.test_html import Elements


def timed(median: int) -> StepTimes:
    return StepTimes(median, median - 20_000, median + 20_000, 100)


def graph_steps(run: Run, host: int = 200_000) -> Trace:
    """Five steps: ``host`` of Python, 100 µs to the graph's first kernel, 400, a gap of 100, and 200 of kernels."""
    builder = TraceBuilder().rank(0).run(run)
    period = host + 800_000
    for at in range(0, 5 * period, period):
        call, first = at + host, at + host + 100_000
        builder.range(at, call + 90_000, "step:decode bs=1").range(at, call + 80_000, "target")
        nodes = ("gemm", first, first + 400_000), ("gemm", first + 500_000, first + 700_000)
        builder.graph(call, call + 50_000, *nodes)
    return builder.trace()


def terminal(*recordings: tuple[str, Trace], width: int = 140) -> str:
    return render_terminal(analyze([Recording(name, "", trace) for name, trace in recordings])[0], width)


def words_of(text: str, section: str) -> str:
    found = re.search(rf'<section id="{section}">.*?</section>', text, re.DOTALL)
    assert found is not None
    return Elements(found[0]).words.replace("\u00a0", " ")


COSTLY = Run(step_times=timed(800_000), recorder="nsys")


def test_one_sentence_on_a_terminal() -> None:
    said = " ".join(terminal(("run", graph_steps(COSTLY))).split())
    assert (
        "Without a recorder a step takes 800 µs (780 to 820 µs) instead of 1.00 ms: host gaps 102 µs (80.0 to 122 µs) "
        "instead of 300 µs, gaps inside graphs 99.3 µs (99.0 to 100 µs) instead of 100 µs, kernels 599 µs (599 to 600 "
        "µs) instead of 600 µs." in said
    )
    assert "! inflation: recording by nsys made a step 1.25 times as long (1.00 ms instead of 800 µs)" in said
    assert "What recording cost" not in said


def test_a_recorder_that_costs_nothing() -> None:
    run = replace(COSTLY, step_times=timed(1_010_000))
    assert "What recording by nsys cost cannot be told from the spread" in terminal(("run", graph_steps(run)))


def test_unknown_is_said_once() -> None:
    traces = [(name, graph_steps(Run())) for name in ("c1", "c32")]
    said = terminal(*traces)
    assert said.count("What recording cost is unknown: no step was timed without a recorder.") == 1
    assert "Without a recorder" not in said and "! inflation" not in said
    said = terminal(*traces, ("timed", graph_steps(COSTLY)))
    assert "What recording cost is unknown for c1 and c32: no step was timed without a recorder." in said


def test_throughput_gives_a_bound() -> None:
    trace = graph_steps(Run(accept_len=1.0, tokens_per_s=1_100.0))
    bound = "Without a recorder a step takes at most 909 µs instead of 1.00 ms, as throughput says."
    assert bound in terminal(("run", trace)) and "What recording cost" not in terminal(("run", trace))
    assert "At most 909 µs a step, as the throughput without a recorder says" in words_of(
        page(("run", trace)), "budget"
    )


def test_the_page_shows_parts_beside_each_other() -> None:
    text = page(("run", graph_steps(COSTLY)))
    words = words_of(text, "budget")
    assert "Recording by nsys made a step 1.25 times as long (1.00 ms instead of 800 µs)." in words
    assert "Of all steps without it, eight of ten take 780 µs to 820 µs." in words
    assert "gap: host code 200 µs 67.8 µs 0 ns 122 µs" in words
    assert "step, from first op to first op 1.00 ms 800 µs 780 µs 820 µs" in words
    assert '<section id="recorders">' not in text


def test_the_first_figures_of_the_page_say_what_they_are_without_the_recorder() -> None:
    """From the figures of ``--json``; where no cost can be told, nothing is said beneath."""
    costly = ("run", graph_steps(replace(COSTLY, accept_len=1.0)))
    words = words_of(page(costly), "verdict")
    assert "step period, median 1.00 ms without the recorder 800 µs 5 plain steps recorded" in words
    assert "time per token 1.00 ms without the recorder 800 µs period over tokens per step" in words
    (trace,) = analyze([Recording(costly[0], "", costly[1])])[0].traces
    assert (trace.cycle.us_per_token, trace.cycle.unrecorded_us_per_token) == (1_000.0, 800.0)
    cheap = graph_steps(replace(COSTLY, step_times=timed(1_010_000)))
    for run, per_token in ((cheap, 1_000.0), (graph_steps(Run()), None)):
        assert "without the recorder" not in words_of(page(("run", run)), "verdict")
        (trace,) = analyze([Recording("run", "", run)])[0].traces
        assert trace.cycle.unrecorded_us_per_token == per_token


@pytest.mark.parametrize(("median", "shown"), [(800_000, True), (990_000, False)])
def test_parts_are_folded_away_where_recording_costs_little(median: int, shown: bool) -> None:
    text = page(("run", graph_steps(replace(COSTLY, step_times=timed(median)))))
    found = re.search(r"<details( open)?>\s*<summary>The parts of a step", text)
    assert found is not None and bool(found[1]) == shown


def test_recorders_side_by_side() -> None:
    runs = [
        ("c1", graph_steps(replace(COSTLY, config="tp1"))),
        ("c1-cupti", graph_steps(replace(COSTLY, config="tp1", recorder="cupti"), 300_000)),
    ]
    said = terminal(*runs)
    assert "Batch 1 by nsys and cupti: ms per step, spreads in % of the figure" in said
    (step,) = (line.split() for line in said.splitlines() if line.startswith("step  "))
    assert step == ["step", "1.000", "1.100", "10", "%", "0.800", "0.800", "0.0", "%"]
    assert re.search(r"^decode, number of ops +2 +2 +same", said, re.MULTILINE)
    assert "c1, c1-cupti: recorded by nsys and cupti, a step has the same number of ops;" in said
    narrow = terminal(*runs, width=60).split("\nBatch 1 by nsys and cupti")[1:]
    heads = [": ms per step", ", without what recording costs: ms per step"]
    assert [" ".join(table.splitlines()).startswith(head) for table, head in zip(narrow, heads, strict=True)]
    figures = [re.findall(r"^step +.*?$", table, re.MULTILINE)[0].split() for table in narrow]
    assert figures == [["step", "1.000", "1.100", "10", "%"], ["step", "0.800", "0.800", "0.0", "%"]]
    words = words_of(page(*runs), "recorders")
    assert "step 1.00 ms 1.10 ms 10 % 800 µs 800 µs 0 %" in words and "decode 2 2 the same" in words


def test_recorders_of_unknown_cost() -> None:
    runs = [(name, graph_steps(Run(config="tp1", recorder=name), host)) for name, host in (("nsys", 1), ("torch", 9))]
    (step,) = (line.split() for line in terminal(*runs).splitlines() if line.startswith("step  "))
    assert step == ["step", "0.800", "0.800", "0.0", "%"]
    assert "what recording cost each of them is not known" in words_of(page(*runs), "recorders").lower()


def test_recorders_of_which_no_cost_can_be_told_have_no_second_columns() -> None:
    run = replace(COSTLY, step_times=StepTimes(1_010_000, 900_000, 1_100_000, 100), config="tp1")
    runs = [("c1", graph_steps(run)), ("c1-cupti", graph_steps(replace(run, recorder="cupti")))]
    said = terminal(*runs)
    (step,) = (line.split() for line in said.splitlines() if line.startswith("step  "))
    assert step == ["step", "1.000", "1.000", "0.0", "%"] and "* after what" not in said
    assert "of none can it be told what recording cost; as recorded, figures agree within 0.0 %" in " ".join(
        said.split()
    )
    assert "nsys, without" not in words_of(page(*runs), "recorders")


def test_hostile_names_stay_text() -> None:
    run = replace(COSTLY, recorder=HOSTILE[4], config="tp1")
    text = page((HOSTILE[0], graph_steps(run)), (f"{HOSTILE[0]}-2", graph_steps(replace(run, recorder="[bold]"))))
    assert "<img" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert HOSTILE[4] in words_of(text, "recorders")
    assert "[bold]" in terminal(("a", graph_steps(run)), ("b", graph_steps(replace(run, recorder="[bold]"))))


def test_ranges_share_their_unit() -> None:
    assert range_of(7_190_000, 7_710_000) == "7.19 to 7.71 ms"
    assert range_of(840_000, 1_100_000) == "840 µs to 1.10 ms"
    assert range_of(0, 5) == "0 to 5 ns"
    assert range_of(None, 5) == "unknown"
