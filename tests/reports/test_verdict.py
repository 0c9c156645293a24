"""The verdict of a sweep on the terminal, in the page's source and in JSON."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import msgspec
import pytest

from profkit.analyzers.economics.result import Economics
from profkit.analyzers.result import Cause, TraceFigures
from profkit.reports.html import render_report
from profkit.reports.terminal import render_answers, render_terminal
from profkit.reports.verdict import untold_comparisons, verdict_views
from profkit.reports.verdict_budget import budget_figure
from profkit.reports.verdict_figures import break_even_figure, cycle_figure, throughput_figure
from profkit.reports.verdict_scales import Scale, spaced
from profkit.traces import StepTimes
from tests.analyzers.sweeps_by_hand import MS, Cells, analysis_of, by_hand, counted_twice, economics_of, even, step
from tests.reports.pages import analysed, page, speculative
from tests.reports.test_verdict_page import many


def without_measurements() -> list[TraceFigures]:
    """The sweep without accept length, throughput and parts."""
    return [_little(trace) for trace in by_hand()]


def without_throughput() -> list[TraceFigures]:
    """The sweep, of which no throughput was measured."""
    replace = msgspec.structs.replace
    return [replace(trace, provenance=replace(trace.provenance, tokens_per_s=None)) for trace in by_hand()]


def _little(trace: TraceFigures) -> TraceFigures:
    blind = {
        name: msgspec.structs.replace(
            device,
            phase_partition_ns={phase: dict.fromkeys(parts) for phase, parts in device.phase_partition_ns.items()},
        )
        for name, device in trace.devices.items()
    }
    accept_len = None if trace.cycle.kind == "speculative" else 1.0
    return msgspec.structs.replace(
        trace,
        devices=blind,
        cycle=msgspec.structs.replace(trace.cycle, accept_len=accept_len),
        provenance=msgspec.structs.replace(trace.provenance, tokens_per_s=None),
    )


def test_the_terminal_shows_a_row_for_each_concurrency() -> None:
    said = render_terminal(analysis_of(by_hand()), width=120)
    table = [line.split() for line in said.split("Does speculation pay? plain → draft")[1].splitlines()[1:5]]
    assert table[0][:2] == ["batch", "plain"]
    assert " ".join(table[3]) == "16 8.00 ms 36.0 ms 4.50 4.50 3.00 −33 % 0.67 0.80 −16.7 % loses"
    found = economics_of(by_hand())
    for sentence in (*found.sentences, found.intervals, found.prediction):
        assert sentence in " ".join(said.split())


PARTS = """
                at 1  at 4  at 16  base + per request    R²  worst
cycle           1.50  2.40   4.50   4.00 ms + 2.00 ms  1.00  0.0 %
  draft         0.50  0.40   0.25      2.00 ms + 0 ns  1.00  0.0 %
    kernels     0.25  0.20   0.12      1.00 ms + 0 ns  1.00  0.0 %
    host gaps   0.25  0.20   0.12      1.00 ms + 0 ns  1.00  0.0 %
  verify        1.00  2.00   4.25   2.00 ms + 2.00 ms  1.00  0.0 %
    kernels     1.00  2.00   4.25   2.00 ms + 2.00 ms  1.00  0.0 %
plain step      1.00  1.00   1.00    3.83 ms + 262 µs  1.00  2.4 %
  decode        1.00  1.00   1.00    3.83 ms + 262 µs  1.00  2.4 %
    kernels     0.90  1.00   1.00    3.57 ms + 281 µs  0.98  6.9 %
    other gaps  0.10  0.00   0.00    no straight line  0.43   38 %
"""


def test_the_terminal_shows_where_a_cycle_goes_and_how_parts_grow() -> None:
    """As the page does; of a plain step of 4 ms at 1 request, 0.4 ms are gaps in its graph."""
    cells: Cells = {("decode", "compute"): 3_600_000, ("decode", "gap_in_graph"): 400_000}
    traces = [step("plain", 1, even(4 * MS), cells, rate=250), *by_hand()[1:]]
    said = render_terminal(analysis_of(traces), width=120)
    assert [line.rstrip() for line in parts_of(said)] == PARTS.strip("\n").splitlines()


def parts_of(said: str) -> list[str]:
    """The lines of the table of parts."""
    return said.split("; straight is up to 10 %\n")[1].split("\n\n")[0].splitlines()


def bent(last: int) -> list[TraceFigures]:
    """Cycles of 6 and 12 ms at 1 and 4 requests, and at 16 of ``last`` ns; all of it verify's kernels."""
    cells = [{("verify", "compute"): ns} for ns in (6 * MS, 12 * MS, last)]
    cycles = [
        step("speculative", batch, even(cell["verify", "compute"]), dict(cell), 3.0, 300)
        for batch, cell in zip((1, 4, 16), cells, strict=True)
    ]
    return [*by_hand()[::2], *cycles]


@pytest.mark.parametrize(
    ("last", "line"),
    [
        (36 * MS, "4.00 ms + 2.00 ms 1.00 0.0 %"),
        (40 * MS, "3.33 ms + 2.29 ms 1.00 6.3 %"),
        (60 * MS, "no straight line 0.99 38 %"),
        (120 * MS, "no straight line 0.98 >100 %"),
    ],
)
def test_a_line_far_off_a_small_time_is_not_called_straight(last: int, line: str) -> None:
    """R² rests on the largest times, and is 0.98 or more for each of them."""
    (cycle,) = [row for row in parts_of(render_terminal(analysis_of(bent(last)), 120)) if row.startswith("cycle")]
    assert " ".join(cycle.split()).endswith(line)


def test_the_table_of_parts_says_where_recorded_cycles_are_longer_than_timed_ones() -> None:
    """Timed without the recorder, the cycle of 36 ms at 16 took 30 ms, as the table above says."""
    times = StepTimes(30 * MS, 29 * MS, 31 * MS, 100)
    said = render_terminal(analysis_of(by_hand(), {"draft/c16": times}), 80)
    assert "at 16 a cycle took 36.0 ms as recorded, 30.0 ms without a recorder (above)\n" in said
    assert "without a recorder (above)" not in render_terminal(analysis_of(by_hand()), 80)


def test_side_by_side_words_stand_left_and_what_was_not_measured_is_unknown() -> None:
    """A dash is what a recording has none of, as plain decoding has no verify; a column that none fills is left out."""
    traces = [by_hand()[0], *without_throughput()[1:2]]
    for place, cause in enumerate(("queue", "verify_cost")):
        verdict = (Cause(cause, None, None, None, 1, ""),)
        cycle = msgspec.structs.replace(traces[place].cycle, phase_ns_median={"verify": MS} if place else {})
        traces[place] = msgspec.structs.replace(traces[place], verdict=verdict, cycle=cycle)
    said = render_terminal(analysis_of(traces), 120).split("side by side")[1].splitlines()[1:4]
    assert [line.split() for line in said[1:]] == [
        ["plain/c1", "1", "4.00", "ms", "–", "unknown", "250", "queue"],
        ["draft/c1", "1", "6.00", "ms", "1.00", "ms", "unknown", "unknown", "verify_cost"],
    ]
    assert said[1].index("queue") == said[2].index("verify_cost") == said[0].index("first cause")
    assert (
        "tokens/s"
        not in render_terminal(analysis_of(without_throughput()), 120).split("side by side")[1].split("\n")[1]
    )


def test_two_concurrencies_have_no_line() -> None:
    said = render_terminal(analysis_of(by_hand()[:4]), width=120)
    assert "Where a cycle goes, in plain steps\n" in said and "R²" not in said


def test_a_narrow_terminal_keeps_all_lines_whole() -> None:
    said = render_terminal(analysis_of(by_hand()), width=80).split("Does speculation pay?")[1]
    assert "spread" not in said.splitlines()[1] and max(map(len, said.splitlines())) <= 80
    assert not re.search(r"\w…", said)


RATES = """
Rates, plain → speculative; error: predicted over measured speed-up
batch  spread  headroom    error  µs per accepted token       tokens/s
    1    1.50    +100 %   +0.0 %          4,000 → 2,000      250 → 500
    4    2.40     +25 %   +4.2 %          1,250 → 1,000      800 → 960
   16    4.50     −33 %  −16.7 %              500 → 750  2,000 → 1,600
"""


def rates_of(said: str) -> list[str]:
    """The lines of the table of rates, with its title."""
    lines = said[said.index("Rates, plain") :].split("\n\n")[0].splitlines()
    return [line.rstrip() for line in lines]


def test_rates_stand_below_with_what_a_narrow_terminal_has_no_room_for() -> None:
    assert rates_of(render_terminal(analysis_of(by_hand()), 80)) == RATES.strip().splitlines()
    wide = rates_of(render_terminal(analysis_of(by_hand()), 120))
    assert wide[0] == "Rates, plain → speculative" and wide[1].split("  ")[0] == "batch"
    assert wide[4].split() == ["16", "500", "→", "750", "2,000", "→", "1,600"]


def test_rates_that_were_not_measured_are_unknown() -> None:
    rows = [line.split() for line in rates_of(render_terminal(analysis_of(without_throughput()), 120))[2:]]
    assert rows[0] == ["1", "4,000", "→", "2,000", "unknown"]


def test_many_concurrencies_fit_on_a_narrow_terminal() -> None:
    said = render_terminal(analysis_of(many()), width=80)
    table = parts_of(said)
    assert table[0].split("base")[0].split() == ["at", "1", "at", "4", "at", "32", "at", "128"]
    assert max(map(len, table)) <= 80 and max(map(len, rates_of(said))) <= 80


def test_what_a_verdict_tells_is_not_told_twice() -> None:
    analysis = analysis_of(by_hand())
    assert untold_comparisons(analysis) == [] and "in plain steps, so speculation pays" not in render_terminal(analysis)
    single = analysis_of(by_hand()[:2])
    assert len(untold_comparisons(single)) == 1
    assert "plain/c1 → draft/c1: it wins: at batch 1 a cycle takes 1.50 plain steps" in render_terminal(single, 120)


def test_a_pair_is_told_once_on_the_page() -> None:
    """What the verdict tells has no row among the other pairs; a pair of one concurrency has one."""
    assert 'id="comparison"' not in render_of(by_hand()) and 'id="speculation"' in render_of(by_hand())
    assert 'id="comparison"' in render_of(by_hand()[:2]) and 'id="speculation"' not in render_of(by_hand()[:2])


def test_what_has_no_partner_is_told_on_terminal_and_page() -> None:
    """In the place of the verdict; beside one, under a heading of its own."""
    replace = msgspec.structs.replace
    lone = [replace(t, name=t.name.replace("draft", "wide"), source="cupti") for t in by_hand()[1::2]]
    said = "compared with no plain decoding, as plain was recorded with"
    alone, beside = [*by_hand()[::2], *lone], [*by_hand(), *lone]
    for traces, heading in ((alone, "Does speculation pay?"), (beside, "Not compared: does speculation pay?")):
        assert render_terminal(analysis_of(traces), 200).count(f"wide: {said}") == 1
        assert render_answers(analysis_of(traces), 200).count(f"wide: {said}") == 1
        section = render_of(traces).split('<section id="comparison">')[1].split("</section>")[0]
        assert f"<h2>{heading}</h2>" in section and f"wide: {said}" in section and "<table" not in section
    assert "Not compared" not in render_of(by_hand())


def render_of(traces: list[TraceFigures]) -> str:
    """The page of an analysis, with the recording of another trace in the place of each."""
    results, _ = analysed(*((trace.name, speculative().trace()) for trace in traces))
    named = [
        (msgspec.structs.replace(own, name=trace.name), attribution)
        for trace, (own, attribution) in zip(traces, results, strict=True)
    ]
    return render_report(named, analysis_of(traces))


def test_answers_are_sentences_alone() -> None:
    """The verdict's, those of pairs without one, and where there is no pair, each recording's."""
    said = render_answers(analysis_of(by_hand()), 120)
    found = economics_of(by_hand())
    words = ["Does speculation pay? plain → draft", *found.sentences, found.prediction, found.intervals]
    assert " ".join(said.split()) == " ".join(words)
    assert render_answers(analysis_of(by_hand()[:2]), 200).startswith("plain/c1 → draft/c1: it wins: at batch 1")
    alone = by_hand()[0]
    assert render_answers(analysis_of([alone]), 200).startswith(f"plain/c1: {alone.summary}")


def test_further_sweeps_of_a_pair_are_a_sentence_each() -> None:
    replace, traces = msgspec.structs.replace, by_hand()
    first, again, other = (
        [replace(t, name=t.name.replace("draft", to), path=t.name.replace("draft", to)) for t in traces[1::2]]
        for to in ("draft", "again", "other")
    )
    other = [replace(trace, provenance=replace(trace.provenance, config="other")) for trace in other]
    analysis = analysis_of([*traces[::2], *first, *again, *other])
    told = analysis.economics
    assert [one.speculative for one in told] == ["draft", "again", "other"]
    said = " ".join(render_answers(analysis, 120).split())
    assert said.count("Does speculation pay?") == 2
    assert all(said.count(one.sentences[0]) == 1 for one in told)
    assert said.count(told[0].sentences[1]) == 2, "one for each pair of configurations"


def test_another_model_is_told_in_full() -> None:
    """Sweeps in folders of one name: neither their labels nor their configurations tell the models apart."""
    replace = msgspec.structs.replace

    def of(model: str, traces: list[TraceFigures]) -> list[TraceFigures]:
        return [
            replace(
                t, name=f"{model}/{t.name}", path=f"{model}/{t.name}", provenance=replace(t.provenance, model=model)
            )
            for t in traces
        ]

    analysis = analysis_of([*of("small", by_hand()), *of("large", by_hand())])
    assert [(one.baseline, one.speculative) for one in analysis.economics] == [("plain", "draft")] * 2
    assert render_answers(analysis, 120).count("Does speculation pay?") == 2


def test_what_a_capture_noted_of_itself_is_one_line() -> None:
    """A sweep's note is that of each of its recordings; one that has none is not told."""
    replace, traces = msgspec.structs.replace, by_hand()
    note = "stopped before its end"
    noted = [
        replace(trace, provenance=replace(trace.provenance, note=note)) if trace.name.startswith("draft/") else trace
        for trace in traces
    ]
    line = "\nNote of draft: stopped before its end."
    for render in (render_answers, render_terminal):
        assert render(analysis_of(noted), 120).count(line) == 1
        assert "Note of" not in render(analysis_of(traces), 120)


def test_json_holds_it() -> None:
    (found,) = json.loads(msgspec.json.encode(analysis_of(by_hand())))["economics"]
    assert [row["batch_size"] for row in found["rows"]] == [1, 4, 16]
    assert found["crossover"]["estimate"]["state"] == "between" and len(found["sentences"]) == 3
    assert {"phase": "verify", "group": "kernels", "ns": 34_000_000.0} in found["rows"][2]["speculative"]["parts"]


def drawings(found: Economics) -> list[str]:
    budget = budget_figure(found)
    assert budget is not None
    return [str(d) for d in (throughput_figure(found), cycle_figure(found), break_even_figure(found), budget.drawing)]


def test_drawings_hold_their_figures() -> None:
    texts = [
        ["".join(text.itertext()) for text in ElementTree.fromstring(drawing).iter("text")]
        for drawing in drawings(economics_of(by_hand()))
    ]
    assert {"tokens/s", "250", "500", "800", "960"} <= set(texts[0])
    assert {"ms", "4.00", "6.00", "36.0"} <= set(texts[1])
    assert {"1.50", "2.40", "4.50", "3.00", "by steps: pays up to 5.9"} <= set(texts[2])
    assert {"1: 1.50 plain steps, 6.00 ms", "16: 4.50 plain steps, 36.0 ms"} <= set(texts[3])


def test_hollow_dots_are_what_throughput_implies() -> None:
    """1.5 at 1 request, 2.5 at 4 and 3.75 at 16, on the axis of the lines; a label steps aside of one on its side."""
    drawing = ElementTree.fromstring(str(break_even_figure(economics_of(by_hand()))))
    dots = [one for one in drawing.iter("circle") if one.get("class") == "hollow"]
    assert ["".join(one.itertext()) for one in dots] == [
        f"{value} by measured throughput" for value in ("1.50", "2.50", "3.75")
    ]
    cost = [float(one.attrib["cy"]) for one in drawing.iter("circle") if one.get("class") == "dot cost"]
    up = [float(one.attrib["cy"]) for one in dots]
    assert up[0] == cost[0] and up[1] < cost[1] and up[2] > cost[2]
    assert (up[1] - up[0]) / (cost[1] - cost[0]) == pytest.approx((2.5 - 1.5) / (2.4 - 1.5), rel=0.02)
    without = str(break_even_figure(economics_of(without_throughput())))
    assert 'class="hollow"' not in without


def test_whiskers_are_the_measured_range() -> None:
    """Counts of 1,500 and 1,700 tokens/s against 1,800 and 2,200 make break-evens of 3.18 to 4.40 about 3.75."""
    traces = by_hand()
    traces[4], traces[5] = counted_twice(traces[4], 1800, 2200), counted_twice(traces[5], 1700, 1500)
    found = economics_of(traces)
    drawing = ElementTree.fromstring(str(break_even_figure(found)))
    (whisker,) = [one.attrib["d"] for one in drawing.iter("path") if one.get("class") == "whisker"]
    top, bottom = sorted(float(up) for up in re.findall(r"M[\d.]+ ([\d.]+)h", whisker))
    dot = [float(one.attrib["cy"]) for one in drawing.iter("circle") if one.get("class") == "hollow"][2]
    cost = [float(one.attrib["cy"]) for one in drawing.iter("circle") if one.get("class") == "dot cost"]
    scale = (cost[0] - cost[2]) / (4.5 - 1.5)
    assert (dot - top, bottom - dot) == pytest.approx((scale * 0.65, scale * (3.75 - 3.1765)), abs=0.3)
    assert "3.75 by measured throughput, 3.18 to 4.40 by counts" in str(break_even_figure(found))
    assert "whisker" not in str(break_even_figure(economics_of(by_hand())))


def test_the_page_tells_measured_ranges_and_what_is_by_steps() -> None:
    traces = by_hand()
    traces[4], traces[5] = counted_twice(traces[4], 1800, 2200), counted_twice(traces[5], 1700, 1500)
    said = render_of(traces)
    assert '0.80×<br><span class="faint">(0.68 … 0.94)</span>' in said and "(counted once)" in said
    assert "<b>Break-even, by steps</b>" in said and "<b>Where a cycle goes, by steps</b>" in said


def test_labels_step_aside_where_lines_cross() -> None:
    """At 4 the accept length of 3 meets a break-even of 2.9: neither label stands on the other line."""
    traces = by_hand()
    traces[3] = step("speculative", 4, even(14_500_000), {("verify", "compute"): 14_500_000}, 3.0, 960)
    drawing = ElementTree.fromstring(str(break_even_figure(economics_of(traces))))
    labels = {"".join(one.itertext()): one.attrib for one in drawing.iter("text") if "value" in one.get("class", "")}
    assert labels["2.90"]["text-anchor"] == "start" and labels["1.50"]["text-anchor"] == "middle"
    anchors = [one.get("text-anchor") for one in drawing.iter("text") if "".join(one.itertext()) == "3.00"]
    assert anchors == ["middle", "end", "middle"]


def test_bars_are_as_long_as_the_cycle_in_plain_steps() -> None:
    drawing = ElementTree.fromstring(drawings(economics_of(by_hand()))[3])
    lengths: dict[str, float] = {}
    for piece in (one for one in drawing.iter("rect") if one.get("class") == "piece"):
        lengths[piece.attrib["y"]] = lengths.get(piece.attrib["y"], 0.0) + float(piece.attrib["width"])
    first, second, third = lengths.values()
    assert (first / third, second / third) == pytest.approx((1.5 / 4.5, 2.4 / 4.5), abs=0.005)


def test_what_is_unknown_is_not_drawn() -> None:
    (view,) = verdict_views(analysis_of(without_measurements()))
    assert view.throughput is None and view.budget is None and view.growth == ()
    assert "speculative" not in re.findall(r'circle class="dot (\w+)"', str(view.break_even))


def test_one_concurrency_makes_no_verdict() -> None:
    assert verdict_views(analysis_of(by_hand()[:2])) == []


def test_a_page_without_a_sweep_has_no_verdict() -> None:
    assert 'id="speculation"' not in page(("run", speculative().trace()))


@pytest.mark.parametrize(
    ("low", "high", "logarithmic", "ticks"),
    [
        (0, 9.88, False, [0, 2, 4, 6, 8]),
        (0, 4.7, False, [0, 1, 2, 3, 4]),
        (2.2, 132, True, [5, 10, 20, 50, 100]),
        (87, 22_700, True, [100, 300, 1000, 3000, 10000]),
        (0.1, 1e7, True, [0.1, 10, 1000, 100000, 1e7]),
    ],
)
def test_ticks_are_round_and_few(low: float, high: float, logarithmic: bool, ticks: list[float]) -> None:
    assert Scale(low, high, 0, 100, logarithmic).ticks() == pytest.approx(ticks)


def test_labels_keep_their_distance() -> None:
    assert spaced([0, 10, 30, 55, 60], 25) == [0, 2, 4]
