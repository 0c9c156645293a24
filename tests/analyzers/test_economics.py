"""Economics over concurrency, against rows worked out by hand: of which sweeps, and with which accept length."""

from __future__ import annotations

import pytest
from msgspec import structs

from profkit.analyzers.comparison import compare
from profkit.analyzers.economics.build import economics
from profkit.analyzers.result import TraceFigures
from tests.analyzers.sweeps_by_hand import by_hand, economics_of

ROWS = """
batch  break-even  headroom  share     predicted  measured  error   us plain  us speculative
1      1.5         1.5       1.0       2.0        2.0       0.0     4000.0    2000.0
4      2.4         0.6       0.25      1.25       1.2       0.0417  1250.0    1000.0
16     4.5         -1.5      -0.3333   0.6667     0.8      -0.1667  500.0     750.0
"""


def test_rows_by_hand() -> None:
    found = economics_of(by_hand())
    assert (found.baseline, found.speculative, found.graphs) == ("plain", "draft", True)
    for row, text in zip(found.rows, ROWS.split("\n")[2:-1], strict=True):
        cells = [
            row.batch_size, row.break_even, row.headroom, row.headroom_share, row.predicted_speedup,
            row.measured_speedup, row.prediction_error, row.plain.us_per_token, row.speculative.us_per_token,
        ]  # fmt: skip
        assert cells == pytest.approx([float(cell) for cell in text.split()], abs=1e-4)
        assert row.basis == "recorded"


def test_without_an_accept_length_little_is_known() -> None:
    traces = by_hand()
    unknown = [
        structs.replace(trace, cycle=structs.replace(trace.cycle, accept_len=None))
        if trace.cycle.kind == "speculative"
        else trace
        for trace in traces
    ]
    found = economics_of(
        [structs.replace(t, provenance=structs.replace(t.provenance, tokens_per_s=None)) for t in unknown]
    )
    assert found.crossover.estimate.state == "unknown" and found.lever is None
    assert found.sentences[0] == (
        "Whether draft pays is unknown without its accept length; predicted from steps, a cycle costs 1.50 plain steps "
        "at 1, 2.40 plain steps at 4 and 4.50 plain steps at 16."
    )
    assert found.sentences[1].startswith("By its steps, a cycle costs 4.50 plain steps at 16")
    assert found.prediction.startswith("The speed-up predicted from recorded steps cannot be checked")
    assert found.decided_by is None and {row.outcome for row in found.rows} == {None}


def test_rates_decide_without_an_accept_length_too() -> None:
    """They say where it wins, but neither what it would take nor a break-even."""
    traces = [
        structs.replace(t, cycle=structs.replace(t.cycle, accept_len=None)) if t.cycle.kind == "speculative" else t
        for t in by_hand()
    ]
    found = economics_of(traces)
    assert [row.outcome for row in found.rows] == ["wins", "wins", "loses"] and found.decided_by == "measured"
    assert found.lever is found.measured_lever is found.rows[0].measured_break_even is None
    assert (
        found.sentences[2]
        == "What would move the line is unknown without the accept length: give one with --accept-len."
    )
    assert found.intervals.endswith("can lie outside.")
    assert found.prediction.endswith("cannot be checked: the accept length is not known.")


def test_an_accept_length_of_the_user_is_not_measured() -> None:
    traces = [
        structs.replace(t, cycle=structs.replace(t.cycle, accept_len_source="given on the command line"))
        for t in by_hand()
    ]
    found = economics_of(traces)
    assert found.prediction.endswith("checked: the throughput that was measured is of another accept length.")
    row = found.rows[0]
    assert row.measured_speedup is row.prediction_error is row.speculative.throughput_ns is None


def test_repeated_sweeps_stay_apart() -> None:
    traces = by_hand()
    again = [
        structs.replace(t, name=f"again/{t.name}", path=f"again/{t.name}")
        for t in traces
        if t.cycle.kind == "speculative"
    ]
    found = economics([*traces, *again], compare([*traces, *again]))
    assert [[row.speculative.trace for row in one.rows] for one in found] == [
        ["draft/c1", "draft/c4", "draft/c16"],
        ["again/draft/c1", "again/draft/c4", "again/draft/c16"],
    ]


def test_a_sweep_with_fewer_concurrencies_does_not_mix_with_another() -> None:
    """Whatever order they are given in: the one recorded at 1 and 4 only takes nothing of the other's."""
    traces = by_hand()
    short = [
        structs.replace(t, name=f"short/{t.name}", path=f"short/{t.name}")
        for t in traces
        if t.cycle.kind == "speculative" and t.cycle.batch_size != 16
    ]
    for order in ([*traces, *short], [*short, *traces]):
        found = economics(order, compare(order))
        assert sorted([row.speculative.trace for row in one.rows] for one in found) == [
            ["draft/c1", "draft/c4", "draft/c16"],
            ["short/draft/c1", "short/draft/c4"],
        ]


def of_model(model: str, graphs: bool, *traces: TraceFigures) -> list[TraceFigures]:
    """The traces as runs of ``model``: the plain ones with CUDA graphs, the speculative ones with them or without."""
    return [
        structs.replace(
            one,
            name=f"{model}/{one.name}",
            provenance=structs.replace(one.provenance, model=model, graphs=graphs or one.cycle.kind == "plain"),
        )
        for one in traces
    ]


@pytest.mark.parametrize("other, kept", [("large", True), ("small", False), ("", False)])
def test_a_pair_unlike_in_graphs_gives_way_to_one_of_its_own_model_only(other: str, kept: bool) -> None:
    """What an eager run without a name says is taken to be what the one with graphs says better."""
    first, second = of_model("small", True, *by_hand()[:2]), of_model(other, False, *by_hand()[:2])
    found = [(one.speculative, one.same_graphs) for one in compare([*first, *second])]
    assert found == [("small/draft/c1", True), *([(f"{other}/draft/c1", False)] if kept else [])]
