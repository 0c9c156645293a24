"""Steps of which waiting is not told from transfer: what is said per step is of the others, and says of how many."""

from __future__ import annotations

from itertools import product

import pytest

from profkit import Recording, Trace, analyze
from profkit.analyzers.result import TraceFigures
from tests.builders import TraceBuilder

US = 1_000
STEP = 1_000 * US
STEPS = 12
SENDS = range(1, STEPS, 3)
"""The steps that only send and receive: four of twelve."""

OF = "in 8 of 12 steps (the others have no collective that is matched over the ranks) "


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("told", "told", trace)])[0].traces[0]


def text_of(trace: Trace, cause: str) -> tuple[int, str]:
    ((cost, text),) = [(c.ns_per_step, c.text) for c in figures_of(trace).verdict if c.cause == cause]
    return cost, text


def sending(sends: range, late: int = 0, copies: bool = False) -> Trace:
    """Steps of 1 ms with an all-reduce of 40 us, which rank 1 enters ``late``, or with a send of 300 us.

    With ``copies``, all-reduces of odd steps take 100 us beside a copy.
    """
    builder = TraceBuilder()
    for step in range(STEPS):
        at, sent = step * STEP, step in sends
        beside = copies and step % 2 == 1
        for rank in (0, 1):
            builder.rank(rank).range(at, at + 900 * US, "step:decode bs=1").range(at + 1, at + 890 * US, "target")
            builder.launch(at + 10, at + 20, "gemm", at + 10 * US, at + 400 * US)
            enter = at + 410 * US + (0 if sent else rank * late)
            end = at + 710 * US if sent else at + 410 * US + late + (100 if beside else 40) * US
            call = enter - 5 * US if late else at + 30
            builder.launch(call, call + 2 * US, "send_recv" if sent else "all_reduce", enter, end)
            if beside:
                builder.launch(at + 50, at + 60, "HtoD", at + 405 * US, at + 600 * US, 8)
            builder.launch(at + 800 * US, at + 801 * US, "gemm", at + 900 * US, at + 980 * US)
    return builder.trace()


def test_transfer_is_that_of_the_steps_of_which_it_is_told() -> None:
    """Eight transfers of 40 us: 40 in each of the eight steps, not 27 in each of twelve."""
    cost, text = text_of(sending(SENDS), "link_bound")
    assert cost == 40 * US
    assert text.startswith(f"{OF}the transfers themselves take 40.0 µs of a 998 µs step in 1 collective: ")


def test_transfer_of_all_steps_needs_no_number() -> None:
    cost, text = text_of(sending(range(0)), "link_bound")
    assert cost == 40 * US and text.startswith("the transfers themselves take 40.0 µs of a 998 µs step in 1 collective")


def test_waiting_is_that_of_the_steps_of_which_it_is_told() -> None:
    """Rank 0 waits 90 us for rank 1 in eight steps: 85 of them until its launch call, and 5 for the kernel."""
    cost, text = text_of(sending(SENDS, late=90 * US), "straggler_host")
    assert text.startswith(f"{OF}rank 0 waits 90.0 µs of a 998 µs step in collectives for rank 1, whose host is late")
    assert cost == pytest.approx(90 * US, rel=0.1)


def test_copies_beside_are_counted_over_the_steps_of_which_transfer_is_told() -> None:
    """Of eight all-reduces the four of odd steps take 60 us longer: 30 in each of eight steps."""
    cost, text = text_of(sending(SENDS, copies=True), "link_contended")
    assert cost == 30 * US and text.startswith(OF) and "take 30.0 µs longer for it" in text


def test_ranks_that_are_told_of_different_steps() -> None:
    """Ranks 0 and 1 reduce in each step, in four of twelve without rank 2, which sends; rank 0 is late by 90 us."""
    builder = TraceBuilder()
    for rank, step in product((0, 1, 2), range(STEPS)):
        at, sends = step * STEP, rank == 2 and step in SENDS
        builder.rank(rank).range(at, at + 900 * US, "step:decode bs=1").range(at + 1, at + 890 * US, "target")
        builder.launch(at + 10, at + 20, "gemm", at + 10 * US, at + 400 * US)
        enter = at + (500 if rank == 0 else 410) * US
        builder.collective_call(enter - 6 * US, enter - 2 * US, "ncclAllReduce", "two" if step in SENDS else "three")
        builder.launch(enter - 5 * US, enter - 3 * US, "send_recv" if sends else "all_reduce", enter, at + 540 * US)
    _, text = text_of(builder.trace(), "straggler_host")
    assert text.startswith(f"{OF.replace('in 8', 'in at least 8')}ranks 1 and 2 wait 90.0 µs of a ")
