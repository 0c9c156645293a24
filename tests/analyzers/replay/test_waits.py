"""What a recording does not say: what calls, streams and hosts of ranks wait for."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.analyzers import attribute
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.replay import Model, build_model, simulate
from profkit.analyzers.replay.transform import scaled_work
from profkit.traces import Trace
from tests.analyzers.replay.steps import launches, model_of, off_by
from tests.analyzers.replay.test_by_hand import CASES
from tests.builders import TraceBuilder

EVERY = 400_000


def copying(result_ends: int, returns: int, begins: int = 120_000, steps: int = 4) -> Trace:
    """Steps whose result is copied to the host; an event synchronisation follows. Times count from the step's start."""
    builder = TraceBuilder().rank(0)
    for at in range(0, steps * EVERY, EVERY):
        builder.range(at, at + 100_000, "step:decode bs=1").range(at + 5_000, at + 95_000, "target")
        launches(builder, at + 10_000, [1_000] * 8)
        builder.launch(at + 105_000, at + 107_000, "DtoH", at + result_ends - 1_000, at + result_ends, stream=9)
        builder.call(at + begins, at + returns, "cudaEventSynchronize")
    return builder.trace()


def awaited_steps_back(model: Model) -> list[int]:
    """For each blocking call that waits for an op, how many steps before it that was launched."""
    calls = np.flatnonzero(model.calls.awaited >= 0)
    op = model.calls.awaited[calls]
    steps: list[int] = (model.calls.step[calls] - model.calls.step[model.work.call[op]]).tolist()
    return steps


@pytest.mark.parametrize(
    ("result_ends", "returns", "back", "words"),
    [
        (160_000, 162_000, [0] * 4, "that the same step copies to the host"),
        (110_000, 122_000, [1] * 3, "that the step before copies to the host, though none of them had to wait"),
        (300_000, 122_000, [1] * 3, "that the step before copies to the host, though none of them had to wait"),
        (400_000 + 170_000, 172_000, [1] * 3, "that the step before copies to the host"),
        (2 * 400_000 + 170_000, 172_000, [2] * 2, "that the last step but one copies to the host"),
    ],
)
def test_event_synchronisations(result_ends: int, returns: int, back: list[int], words: str) -> None:
    trace = copying(result_ends, returns)
    model = model_of(trace)
    assert awaited_steps_back(model) == back
    assert words in model.assumptions[0] and ("though" in words) == ("though" in model.assumptions[0])
    assert off_by(trace) == 0


def test_event_synchronisation_that_nothing_explains() -> None:
    trace = copying(result_ends=3 * EVERY, returns=122_000)
    assert awaited_steps_back(model_of(trace)) == [] and off_by(trace) == 0
    assert "cannot be told" in model_of(trace).assumptions[0]


def two_streams(waits: bool) -> Model:
    """A copy on another stream, 5 us behind the kernel launched before it; the host says so, or only before both."""
    builder = TraceBuilder().rank(0).range(0, 90_000, "step:decode bs=1")
    if not waits:
        builder.call(5_000, 6_000, "cudaStreamWaitEvent")
    builder.launch(10_000, 12_000, "gemm", 20_000, 50_000)
    if waits:
        builder.call(13_000, 14_000, "cudaStreamWaitEvent")
    builder.launch(15_000, 17_000, "DtoH", 55_000, 56_000, stream=9)
    model = model_of(builder.trace())
    assert simulate(model).start.tolist() == model.work.origin.tolist()
    return model


def test_a_stream_that_was_told_to_wait_follows() -> None:
    model = two_streams(waits=True)
    longer = scaled_work(model, model.work.duration == 30_000, 2.0)
    # 1 us is the usual distance; the rest is a delay that stays.
    assert simulate(longer).start.tolist() == [20_000, 85_000]


def test_a_stream_that_was_not_told_to_wait_goes_on() -> None:
    model = two_streams(waits=False)
    assert simulate(scaled_work(model, model.work.duration == 30_000, 2.0)).start.tolist() == [20_000, 55_000]


def test_an_op_that_starts_late_and_right_behind_another_stream_follows() -> None:
    builder = TraceBuilder().rank(0).range(0, 290_000, "step:decode bs=1")
    builder.launch(10_000, 12_000, "gemm", 20_000, 150_000).launch(15_000, 17_000, "DtoH", 155_000, 156_000, stream=9)
    model = model_of(builder.trace())
    assert simulate(scaled_work(model, model.work.duration == 130_000, 0.5)).start.tolist() == [20_000, 90_000]


def meeting(waits: bool, seed: int = 3, steps: int = 8) -> Model:
    """Two hosts of uneven pace; before each step, the first to come waits for the other, or goes on by itself."""
    random = np.random.default_rng(seed)
    builder, now = TraceBuilder(), [0, 0]
    for _ in range(steps):
        for rank in (0, 1):
            begin = now[rank]
            builder.rank(rank)
            ended = begin + 10_000 * 9 + int(random.integers(10_000, 200_000))
            launches(builder, begin + 2_000, [1_000] * 9)
            builder.launch(ended - 4_000, ended - 2_000, "gemm", ended - 1_000, ended)
            builder.range(begin, ended, "step:decode bs=1").range(begin + 1_000, ended - 1, "target")
            now[rank] = ended + 30_000 + rank
        if waits:
            now = [max(now), max(now) + 1]
    model = model_of(builder.trace())
    assert simulate(model).start.tolist() == model.work.origin.tolist()
    return model


def test_hosts_that_meet() -> None:
    model = meeting(waits=True)
    met = model.calls.meeting >= 0
    assert met.sum() == 2 * 7
    # From the last one's last call to the first call of the next step, less than 1 ns apart.
    assert set(model.calls.before[met].tolist()) <= {34_000, 34_001, 34_002}


@pytest.mark.parametrize("seed", range(5))
def test_hosts_that_do_not_meet(seed: int) -> None:
    assert not np.any(meeting(waits=False, seed=seed).calls.meeting >= 0)


@pytest.mark.parametrize("case", CASES)
def test_the_first_steps_play_back_alone(case: str) -> None:
    attribution = attribute(CASES[case]())
    matched = match_collectives(attribution)
    for count in (1, 2, 4):
        part = build_model(attribution, matched, count)
        assert int(part.work.step.max()) == count - 1
        played = simulate(part)
        assert played.start.tolist() == part.work.origin.tolist()
        assert played.call_start.tolist() == part.calls.origin.tolist()


def joined(*launched: int) -> list[tuple[int, int]]:
    """Ops launched on these streams in turn, 0 for a ``cudaStreamWaitEvent``: pairs of one that waits and its cause."""
    builder, at = TraceBuilder().rank(0).range(0, 90_000, "step:decode bs=1"), 0
    for stream in launched:
        at += 2_000
        if stream:
            builder.launch(at, at + 500, "gemm", at + 600, at + 1_600, stream)
        else:
            builder.call(at, at + 500, "cudaStreamWaitEvent")
    model = model_of(builder.trace())
    place = np.argsort(np.argsort(model.work.origin))
    return sorted(zip(place[model.waits.op].tolist(), place[model.waits.on].tolist(), strict=True))


@pytest.mark.parametrize(
    ("launched", "waits"),
    [
        ((7, 0, 8, 7, 0, 7), [(1, 0), (3, 1)]),
        ((7, 0, 8, 7, 7), [(1, 0)]),
        # Two waits join two streams, one joins the one with the later op.
        ((7, 8, 9, 0, 0, 7), [(3, 1), (3, 2)]),
        ((7, 8, 9, 0, 7), [(3, 2)]),
        # A stream that has joined another one waits only for what is launched later; so do libraries' own waits.
        ((7, 8, 0, 7, 0, 7, 8, 0, 7), [(2, 1), (5, 4)]),
    ],
)
def test_streams_join_what_was_launched_since_they_joined_last(
    launched: tuple[int, ...], waits: list[tuple[int, int]]
) -> None:
    assert joined(*launched) == waits
