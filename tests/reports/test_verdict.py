"""The verdict of a sweep on the terminal, in the page's source and in JSON."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import msgspec
import pytest

from profkit.analyzers.economics.result import Economics
from profkit.analyzers.result import TraceFigures
from profkit.reports.terminal import render_terminal
from profkit.reports.verdict import untold_comparisons, verdict_views
from profkit.reports.verdict_budget import budget_figure
from profkit.reports.verdict_figures import break_even_figure, cycle_figure, throughput_figure
from profkit.reports.verdict_scales import Scale, spaced
from tests.analyzers.sweeps_by_hand import analysis_of, by_hand, economics_of
from tests.reports.pages import page


def without_measurements() -> list[TraceFigures]:
    """The sweep without accept length, throughput and parts."""
    return [_little(trace) for trace in by_hand()]


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
    assert " ".join(table[3]) == "16 8.00 ms 36.0 ms 4.50 4.50–4.50 3.00 −33 % 0.67 0.80 −17 %"
    for sentence in economics_of(by_hand()).sentences:
        assert sentence in " ".join(said.split())


def test_a_narrow_terminal_keeps_all_lines_whole() -> None:
    said = render_terminal(analysis_of(by_hand()), width=80).split("Does speculation pay?")[1]
    assert "95 %  " not in said.splitlines()[1] and "…" not in said


def test_what_a_verdict_tells_is_not_told_twice() -> None:
    analysis = analysis_of(by_hand())
    assert untold_comparisons(analysis) == [] and "in plain steps, so speculation pays" not in render_terminal(analysis)
    assert len(untold_comparisons(analysis_of(by_hand()[:2]))) == 1


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
    assert {"1.50", "2.40", "4.50", "3.00", "pays up to 5.9"} <= set(texts[2])
    assert {"1: 1.50 plain steps, 6.00 ms", "16: 4.50 plain steps, 36.0 ms"} <= set(texts[3])


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
    from tests.reports.pages import speculative

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
