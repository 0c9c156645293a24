"""A comparison in a terminal: what fits in it, and how changes are written."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from profkit.analyzers.diff import Diff, diff, parse_limit
from profkit.analyzers.diff.result import Change, KernelChange
from profkit.reports import diff_cells as cells
from profkit.reports.diff_terminal import render_diff
from profkit.traces import Trace
from tests.builders import TraceBuilder

from .pairs import Served, at_concurrency, compared, side_of, trace_of, whole_diff

FAST, SLOW = Served(seed=1, layers=3), Served(seed=2, layers=3, gemm=45_000, inserted=("rope_kernel", 9_000))
PLAIN = Served(seed=1, layers=3, drafts=False)


def change(a: int, b: int, interval: tuple[int, int] | None = None, significant: bool = False) -> Change:
    return Change(a, b, b - a, interval, significant)


def sweeps(batch: tuple[int, int] = (1, 1)) -> Diff:
    """Two pairs."""
    made = [
        [at_concurrency(trace_of(Served(seed=10 * k + n, layers=2, batch=batch[k]), 8), n, 3.0) for n in (1, 32)]
        for k in (0, 1)
    ]
    return whole_diff(*made)


def without_steps(kernels: int) -> Trace:
    builder = TraceBuilder().rank(0)
    for start in range(0, 10 * kernels, 10):
        builder.launch(start, start + 1, "gemm", start + 3, start + 8)
    return builder.trace()


def rows_of(text: str, title: str) -> list[str]:
    """The lines below ``title``, up to an empty one."""
    return text.split(title, 1)[1].split("\n\n")[0].strip().split("\n")[1:]


# -- cells -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (1_000, 1_050, "+5.0 %"),
        (1_000, 500, "−50.0 %"),
        (100_000, 99_990, "0.0 %"),
        (1_000, 10_990, "+999.0 %"),
        (1_000, 11_000, "11.0 times"),
        (1_000, 105_595, "106 times"),
        (1, 1_234_567, "1,234,567 times"),
        (0, 5, "new"),
        (5, 0, "gone"),
        (0, 0, "–"),
    ],
)
def test_relative(a: int, b: int, text: str) -> None:
    assert cells.relative(change(a, b)) == text


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (change(9_000_000, 8_143_000, (-1_140_000, -599_000), True), ("−0.86 ms", "−1.14 ms … −0.60 ms", "shorter")),
        (change(197_000, 189_000, (-16_500, 57)), ("−8.0 µs", "−16.5 µs … +0.1 µs", "within noise")),
        (change(1_000, 1_900, (100, 1_700)), ("+0.90 µs", "+0.10 µs … +1.70 µs", "maybe longer")),
        (change(1_000, 1_900), ("+900 ns", "–", "not tested")),
        (change(500, 500, (-2_000, 2_000)), ("0 ns", "−2.00 µs … +2.00 µs", "within noise")),
    ],
)
def test_changes_are_written_as_their_intervals(row: Change, shown: tuple[str, str, str]) -> None:
    assert (cells.change(row), cells.interval(row), cells.verdict(row)) == shown


@pytest.mark.parametrize(
    ("count", "each", "text"),
    [
        (36.0, 47_700, "36 × 47.7 µs"),
        (0.0814, 1_200_000, "0.0814 × 1.20 ms"),
        (1234.0, 500, "1,234 × 500 ns"),
        (0.00001, 500, "< 0.001 × 500 ns"),
        (0.0, None, "–"),
    ],
)
def test_calls(count: float, each: int | None, text: str) -> None:
    assert cells.calls(count, each) == text


@pytest.mark.parametrize(("state", "text"), [("new", "only in B"), ("gone", "only in A"), ("unknown", "not tested")])
def test_states_are_plain_words(state: Any, text: str) -> None:
    row = KernelChange(state, "draft", "gemm", None, "x", 0, 1, 0, 5, 5, None, False)
    assert cells.state(row) == text


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 108, 140])
def test_rows_can_be_told_apart_and_nothing_is_cut(width: int) -> None:
    text = render_diff(whole_diff([trace_of(FAST, 8)], [trace_of(SLOW, 8)]), width)
    rows = rows_of(text, "The largest changes")
    assert max(map(len, text.split("\n"))) <= width and "…" not in "\n".join(rows).replace(" … ", "")
    places = [tuple(re.split(r" {2,}|(?<!:) (?=\w)", row)[:2]) for row in rows]
    assert len(set(places)) == len(places)
    assert any("compute: gemm" in row for row in rows) and any("compute: attention" in row for row in rows)
    assert not any("collective: collective" in row for row in rows)


@pytest.mark.parametrize("width", [80, 108, 140])
def test_pairs_keep_their_figures(width: int) -> None:
    text = render_diff(sweeps(), width)
    rows = rows_of(text, "all pairs")
    assert len(rows) == 3 and all(re.search(r"within noise$|noise$|longer$|shorter$", row) for row in rows[1:])
    assert ("95 %" in rows[0]) == (width >= 108)


def test_minus_signs() -> None:
    text = render_diff(whole_diff([trace_of(SLOW, 8)], [trace_of(FAST, 8)]), 140)
    assert "−" in text and not re.search(r"(?<![\w-])-\d", text)


def test_kernels_show_count_and_time_of_a_call() -> None:
    text = render_diff(whole_diff([trace_of(FAST, 8)], [trace_of(SLOW, 8)]), 80)
    assert re.search(r"slower · verify · nvjet\S+\n +\S+ µs +3 × (29|30)\.\d µs +13\d µs +3 × 4\d\.\d µs +\+4\d", text)
    assert re.search(r"only in B · verify · rope_kernel\n +0 ns +– +\S+ µs +1 × \S+ µs +\+\S+ µs +new", text)


def test_plain_and_speculative_meet_in_the_target() -> None:
    text = render_diff(whole_diff([trace_of(PLAIN, 8)], [trace_of(FAST, 8)]), 108)
    assert "target" in text and not re.search(r"^(decode|verify)\b", text, flags=re.MULTILINE)


def test_not_tested_is_said_once() -> None:
    for a, b in ((trace_of(FAST, 3), trace_of(SLOW, 3)), (without_steps(10), without_steps(12))):
        text = render_diff(whole_diff([a], [b]), 108)
        assert text.count("not tested against noise") == 1
        assert "within noise" not in text and "95 %" not in text.split("Kernels")[0]


def test_reasons_of_all_pairs_are_said_once() -> None:
    text = render_diff(sweeps(batch=(1, 2)), 108)
    assert text.count("batch size") == 1
    assert text.startswith("Of every pair:\n! ")
    alone = render_diff(replace_pairs(sweeps(batch=(1, 2))), 108)
    assert "Of every pair" not in alone and "! batch size" in alone


def replace_pairs(found: Diff) -> Diff:
    """``found`` with its first pair alone."""
    from msgspec.structs import replace as with_fields

    return with_fields(found, pairs=found.pairs[:1])


def test_the_same_recording_twice() -> None:
    trace = trace_of(FAST, 8)
    found = diff([side_of(trace, "a")], [side_of(trace, "b")], limits=[parse_limit("verify>5%")])
    heading, *rest = render_diff(found, 80).split("\n")
    assert heading.startswith("a → b ─")
    assert [line for line in rest if line] == [
        "✓ held: verify>5%, the change is 0 ns (0.0 %)",
        "A and B are the same recording, so nothing changed.",
    ]


def test_limits_say_why_they_are_unknown() -> None:
    limits = [parse_limit(text) for text in ("verify>5%", "prefill>3%")]
    found = diff([side_of(trace_of(FAST, 3))], [side_of(trace_of(SLOW, 3))], limits=limits)
    text = " ".join(render_diff(found, 100).split())
    assert "✗ not known to hold: verify>5%, the change is +" in text
    assert "✗ not known to hold: prefill>3%; neither A nor B has any time of 'prefill'" in text


def test_recordings_without_a_partner_are_one_sentence() -> None:
    a, b = ([at_concurrency(trace_of(replace(FAST, seed=n), 6, 1), n) for n in each] for each in ((1,), (1, 32, 64)))
    text = render_diff(whole_diff(a, b), 108)
    assert "! b1 and b2 have no partner of the same concurrency." in text


def test_untested_rows_are_not_dimmed_as_noise() -> None:
    assert not cells.tested(compared(trace_of(FAST, 3), trace_of(SLOW, 3)))
    assert cells.tested(compared(trace_of(FAST, 8), trace_of(SLOW, 8)))


def test_ranks_have_a_row_each() -> None:
    """What each rank computes, and waits for its host and for others; noise is said to be noise."""
    slow = replace(FAST, seed=2)
    text = render_diff(whole_diff([trace_of(FAST, 8)], [trace_of(slow, 8, slow_rank=1.3)]), 80)
    heads, first, second = text.split("Ranks, change per step")[1].split("\n")[1:4]
    assert heads.split() == ["rank", "wall", "time", "compute", "host", "gaps", "waiting", "transfer"]
    assert re.match(r"0 +\+\S+ µs +noise +noise +\+\S+ µs", first) and re.match(r"1 +\+\S+ µs +\+\S+ µs", second)
    assert max(map(len, text.split("\n"))) <= 80
    assert "Ranks" not in render_diff(whole_diff([trace_of(FAST, 8, 1)], [trace_of(SLOW, 8, 1)]), 80)


def test_what_of_a_collective_is_waiting() -> None:
    a, b = (trace_of(Served(seed=n), 12, slow_rank=1.0 if n == 1 else 1.2) for n in (1, 3))
    text = render_diff(whole_diff([a], [b]), 100)
    assert re.search(r"waits less · verify · waiting \S+ [µn]s → \S+ [µn]s · nccl", text)


def test_ranks_of_what_is_not_compared_are_not_named() -> None:
    text = render_diff(whole_diff([trace_of(FAST, 8)], [without_steps(10)]), 100)
    assert "None" not in text and "rank" not in text
    assert "the longest" not in render_diff(whole_diff([without_steps(10)], [without_steps(12)]), 100)
    assert "longest rank: 0 ·" in render_diff(whole_diff([without_steps(10)], [without_steps(12)]), 100)


def test_one_token_is_one_token() -> None:
    pairs = [at_concurrency(trace_of(replace(FAST, seed=n), 8), 1, length) for n, length in ((1, 2.0), (2, 1.0))]
    assert "as steps yield 1 token, not 2." in whole_diff(pairs[:1], pairs[1:]).summary
    plain = [trace_of(replace(PLAIN, seed=n), 8) for n in (1, 2)]
    assert "steps yield 1 token (accept length 1)" in whole_diff(plain[:1], plain[1:], "token").summary
