"""A few collectives of a step that take most of its transfer are named, with what the others take."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from profkit import Trace
from profkit.analyzers.result import Cause
from profkit.traces import CollectiveCalls
from tests.analyzers.engine import run
from tests.analyzers.test_verdict import CALM, cost_of, near, verdict_of
from tests.builders import TraceBuilder

ONE_SLOW = replace(CALM, slow_transfers=(3_000_000,))


def link_of(trace: Trace) -> Cause:
    return next(cause for cause in verdict_of(trace) if cause.cause == "link_bound")


def with_sizes(trace: Trace, slow: int) -> Trace:
    """Calls of the collective library around the launches of all-reduces, with the size of slow and other ones."""
    ops, launches = trace.ops, trace.launches
    nccl = np.array(["AllReduce" in text for text in trace.strings])[ops.name]
    calls = []
    for row in np.flatnonzero(nccl).tolist():
        at = np.flatnonzero((launches.pid == ops.pid[row]) & (launches.correlation == ops.correlation[row]))[0]
        size = slow if ops.end[row] - ops.start[row] > 1_000_000 else 65_536
        start, end, tid = int(launches.start[at]), int(launches.end[at]), int(launches.tid[at])
        found = {"pid": ops.pid[row], "tid": tid, "start": start, "end": end, "count": -1, "dtype": -1}
        calls.append(found | {"comm": 0, "kind": 0, "bytes": size})
    columns = {name: np.array([call[name] for call in calls], kind) for name, kind in CollectiveCalls.dtypes().items()}
    return replace(trace, collective_calls=CollectiveCalls(**columns))


def test_one_slow_transfer() -> None:
    planted = run(ONE_SLOW, ONE_SLOW)
    found = link_of(planted)
    usual = run(CALM, CALM)
    assert near(found.ns_per_step - link_of(usual).ns_per_step, cost_of(planted, usual))
    assert "3.00 ms of it for 1 all_reduce in verify, where others take 10.0 µs each: look at that" in found.text


def test_two_slow_transfers() -> None:
    plan = replace(CALM, slow_transfers=(2_000_000, 1_000_000))
    text = link_of(run(plan, plan)).text
    assert "3.00 ms of it for 2 all_reduces in verify, where others take 10.0 µs each: look at those first" in text


def test_the_size_that_is_slow() -> None:
    plan = replace(ONE_SLOW, eager=True)
    assert "for 1 all_reduce in verify (64 MiB), where" in link_of(with_sizes(run(plan, plan), 2**26)).text


def test_transfers_that_are_alike() -> None:
    plan = replace(CALM, transfer=200_000, contended=200_000)
    assert "of it for" not in link_of(run(plan, plan)).text


def test_a_transfer_that_is_slow_in_one_step_only_is_not_named() -> None:
    """Another step's is as quick as the others: the place is not slow."""
    planted = run(ONE_SLOW, ONE_SLOW)
    ops = planted.ops
    slow = np.flatnonzero(ops.end - ops.start > 1_000_000)
    end = ops.end.copy()
    end[slow[2:]] = ops.start[slow[2:]] + 10_000
    assert "of it for" not in link_of(replace(planted, ops=replace(ops, end=end))).text


def test_the_slow_one_is_part_of_the_transfer_where_steps_have_none() -> None:
    """Every other of 12 steps has 14 all-reduces of 10 us and one of 300: 220 us in each step, of them 150."""
    builder = TraceBuilder()
    for rank, step in product((0, 1), range(12)):
        at = step * 1_000_000
        builder.rank(rank).range(at, at + 900_000, "step:decode bs=1").range(at + 1, at + 890_000, "target")
        builder.launch(at + 10, at + 20, "gemm", at + 1_000, at + 90_000)
        for place in range(0 if step % 2 else 15):
            start = at + 100_000 + 20_000 * place
            length = 300_000 if place == 14 else 10_000
            builder.launch(at + 50 + 10 * place, at + 55 + 10 * place, "all_reduce", start, start + length)
        builder.launch(at + 300, at + 400, "gemm", at + 800_000, at + 990_000)
    text = link_of(builder.trace()).text
    assert "take 220 µs of" in text and "150 µs of it for 1 all_reduce in decode, where others take 10.0 µs" in text
