"""Limits of a pipeline: what they may say, and when they are exceeded."""

from __future__ import annotations

import pytest

from profkit.analyzers.diff import diff, parse_limit
from profkit.analyzers.diff.limits import Limit
from profkit.traces import Trace, UsageError

from .pairs import Served, side_of, trace_of


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("verify>5%", Limit("verify>5%", ("verify",), 0.05, True)),
        ("gap_host>10us", Limit("gap_host>10us", ("gap_host",), 10_000.0, False)),
        (" total > 1.5 ms ", Limit("total > 1.5 ms", (), 1.5e6, False)),
        ("verify:compute:gemm>300ns", Limit("verify:compute:gemm>300ns", ("verify", "compute", "gemm"), 300.0, False)),
        ("moe>2µs", Limit("moe>2µs", ("moe",), 2_000.0, False)),
    ],
)
def test_limits(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize(
    "text", ["", "verify", "verify>5", "verify<5%", "verify>-5%", "verify>5 %%", "verifi>5%", ">5%"]
)
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageError, match="--fail-on"):
        parse_limit(text)


@pytest.fixture(scope="module")
def slower() -> tuple[Trace, Trace]:
    return trace_of(Served(seed=1, layers=4)), trace_of(Served(seed=2, layers=4, gemm=33_000))


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("verify:gemm>5%", "exceeded"),
        ("verify:gemm>20%", "held"),
        ("gemm>5us", "exceeded"),
        ("gemm>50us", "held"),
        ("total>0%", "exceeded"),
        ("draft:norm>0ns", None),
        ("prefill>1%", "held"),
    ],
)
def test_judgements(slower: tuple[Trace, Trace], text: str, status: str | None) -> None:
    a, b = (side_of(trace) for trace in slower)
    (judgement,) = diff([a], [b], limits=[parse_limit(text)]).limits
    if status is None:
        # The drafter did not change: beyond 0 ns it can only be noise.
        status = "noise" if judgement.change.delta_ns > 0 else "held"
    assert judgement.status == status
    if text == "prefill>1%":
        assert judgement.percent is None


def test_a_limit_that_too_few_steps_pass() -> None:
    a, b = (side_of(trace_of(Served(seed=n, gemm=30_000 * n), 3, ranks=1)) for n in (1, 2))
    first, second = diff([a], [b], limits=[parse_limit("verify>5%"), parse_limit("draft>90%")]).limits
    assert (first.status, second.status) == ("unknown", "held")
