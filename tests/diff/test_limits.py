"""Limits of a pipeline: what they may say, and when they are exceeded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.analyzers.diff import diff, parse_limit
from profkit.analyzers.diff.limits import Limit
from profkit.traces import Trace, UsageError
from tests.analyzers.engine import run

from .pairs import Served, served, side_of, trace_of


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("verify>5%", Limit("verify>5%", ("verify",), 0.05, True)),
        ("gap_host>10us", Limit("gap_host>10us", ("gap_host",), 10_000.0, False)),
        (" total > 1.5 ms ", Limit("total > 1.5 ms", (), 1.5e6, False)),
        ("verify:compute:gemm>300ns", Limit("verify:compute:gemm>300ns", ("verify", "compute", "gemm"), 300.0, False)),
        ("moe>2µs", Limit("moe>2µs", ("moe",), 2_000.0, False)),
        ("target>1s", Limit("target>1s", ("target",), 1e9, False)),
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


@pytest.mark.parametrize(
    "name",
    [
        "gap_host:gemm",
        "draft:verify",
        "moe:gemm",
        "total:total",
        "total:verify",
        "collective:gemm",
        "copy:moe",
        "draft:rest",
    ],
)
def test_what_no_time_can_be(name: str) -> None:
    """Never exceeded: a typing error that a pipeline would pass for ever."""
    first, second = name.split(":")
    with pytest.raises(UsageError, match=f"no time can be of {first} and {second} at once; give total, or one phase"):
        parse_limit(f"{name}>5%")


@pytest.mark.parametrize("name", ["verify:compute:moe", "collective:collective", "copy", "target:verify"])
def test_what_a_time_can_be(name: str) -> None:
    assert parse_limit(f"{name}>5%").words == tuple(name.split(":"))


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
        ("draft:gemm>0ns", None),
        ("target:gemm>5%", "exceeded"),
        ("target:gemm>20%", "held"),
        ("gap_sync>1us", "held"),
    ],
)
def test_judgements(slower: tuple[Trace, Trace], text: str, status: str | None) -> None:
    a, b = (side_of(trace) for trace in slower)
    (judgement,) = diff([a], [b], limits=[parse_limit(text)]).limits
    if status is None:
        # The drafter did not change: beyond 0 ns it can only be noise.
        status = "noise" if judgement.change.delta_ns > 0 else "held"
    assert judgement.status == status and judgement.note is None


@pytest.mark.parametrize(
    "text", ["prefill>1%", "moe>5us", "draft:attention>1%", "decode>1%", "rest:rope>1%", "prefill:gap_sync>1us"]
)
def test_a_limit_on_what_neither_has_is_unknown(slower: tuple[Trace, Trace], text: str) -> None:
    """Held would be a false comfort; a gap that neither has is a gap of 0 ns, as above."""
    a, b = (side_of(trace) for trace in slower)
    (judgement,) = diff([a], [b], limits=[parse_limit(text)]).limits
    assert (judgement.status, judgement.percent, judgement.change.delta_ns) == ("unknown", None, 0)
    assert judgement.note == f"neither A nor B has any time of '{text.split('>')[0]}'"


def test_all_limits_hold_of_one_recording_twice(slower: tuple[Trace, Trace]) -> None:
    sides = [side_of(slower[0]) for _ in range(2)]
    limits = [parse_limit(text) for text in ("total>0ns", "prefill>1%", "verify>0%")]
    assert [(one.status, one.note) for one in diff(sides[:1], sides[1:], limits=limits).limits] == [("held", None)] * 3


def test_the_target_where_one_side_drafts() -> None:
    """``decode`` and ``verify`` are names of the one phase that both have."""
    plain, drafting = (
        side_of(trace_of(Served(seed=n, layers=3, drafts=n > 1, gemm=30_000 + 5_000 * n))) for n in (1, 2)
    )
    limits = [parse_limit(f"{name}>5%") for name in ("target", "verify", "decode", "target:compute:gemm", "draft")]
    found = diff([plain], [drafting], limits=limits).limits
    assert [one.status for one in found] == ["exceeded"] * 5
    assert found[0].change == found[1].change == found[2].change and found[0].change.a_ns > 200_000
    assert found[0].note is None and found[3].note is None
    assert "'verify' is 'target' here" in (found[1].note or "") and "'decode' is 'target'" in (found[2].note or "")


@pytest.mark.parametrize("seed", [2, 3, 6, 7])
@pytest.mark.parametrize("ranks", [2, 4])
def test_limits_look_at_all_ranks_that_are_equally_slow(seed: int, ranks: int) -> None:
    """The last rank's kernels take a fifth longer, and the others wait: which of them is slower by a hair is chance."""
    a, b = trace_of(Served(seed=1), ranks=ranks), trace_of(Served(seed=seed), ranks=ranks, slow_rank=1.2)
    limits = [parse_limit(f"{name}>5%") for name in ("verify:compute", "gemm", "collective", "draft:collective")]
    compute, gemm, collective, draft = diff([side_of(a)], [side_of(b)], limits=limits).limits
    assert (compute.status, gemm.status, collective.status) == ("exceeded",) * 3
    assert compute.note is None and collective.note is not None
    assert collective.note.endswith(f", which is as slow as rank {ranks - 1}")
    assert draft.status == "unknown"


@pytest.mark.parametrize("samples", [0, 1])
def test_what_only_one_rank_does_is_judged_on_it(samples: int) -> None:
    """The other rank has no such time, but the pair has: that is known."""
    plans = [Served(seed=1, inserted=("rope_kernel", 9_000) if rank == samples else None) for rank in range(2)]
    later = [replace(plan, seed=2) for plan in plans]
    slow = [replace(plan, inserted=(plan.inserted[0], 15_000)) if plan.inserted else plan for plan in later]
    a, b, c = (side_of(run(*each, steps=12, programme=served)) for each in (plans, later, slow))
    limits = [parse_limit("rope>20%")]
    assert [diff([a], [side], limits=limits).limits[0].status for side in (b, c)] == ["held", "exceeded"]


def test_a_late_host_is_seen_by_a_limit_whichever_rank_is_slowest() -> None:
    a, b = ([Served(seed=n, eager=late and n == 2) for late in (False, True)] for n in (1, 2))
    sides = [side_of(run(*plans, steps=12, programme=served)) for plans in (a, b)]
    (host,) = diff(sides[:1], sides[1:], limits=[parse_limit("gap_host>20us")]).limits
    assert host.status == "exceeded"


def test_a_limit_that_too_few_steps_pass() -> None:
    a, b = (side_of(trace_of(Served(seed=n, gemm=30_000 * n), 3, ranks=1)) for n in (1, 2))
    first, second = diff([a], [b], limits=[parse_limit("verify>5%"), parse_limit("draft>90%")]).limits
    assert (first.status, second.status) == ("unknown", "held")
    assert first.note == "beyond the limit, but too few steps tell what is noise" and second.note is None
