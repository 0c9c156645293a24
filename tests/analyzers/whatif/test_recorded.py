"""What-ifs of recorded runs against other recorded runs; docs/whatif.md has the table."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import pytest

from profkit.analyzers import attribute
from profkit.analyzers.analysis import Recording
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.replay import predict_graphs
from profkit.analyzers.vocabulary import CLASSES, PHASE
from profkit.analyzers.whatif import LINKS, Request, what_if
from profkit.analyzers.whatif.case import Case, alike, case_of
from profkit.analyzers.whatif.result import RecordingWhatIf
from profkit.analyzers.whatif.tokens import factors_at, times_at
from profkit.traces import open_recordings

TRACES = Path(__file__).parents[3] / "traces"


@cache
def recordings(*names: str) -> tuple[Recording, ...]:
    opened = [one for name in names for one in open_recordings(TRACES / name)]
    return tuple(Recording(one.name, str(one.path), one.trace) for one in opened)


@cache
def case(name: str) -> Case:
    (recording,) = recordings(name)
    found = case_of(recording, attribute(recording.trace), ())
    assert isinstance(found, Case)
    return found


def said(request: Request, *names: str) -> dict[str, RecordingWhatIf]:
    return {one.name: one for one in what_if(recordings(*names), request).recordings}


@pytest.mark.parametrize("concurrency", ("c1", "c32", "c128"))
def test_graphs_are_those_of_the_replay(concurrency: str) -> None:
    name = f"ep2-dflash/{concurrency}-eager"
    (outcome,) = said(Request(graphs=True), name)[name].alone
    attribution = case(name).attribution
    found = predict_graphs(attribution, match_collectives(attribution))
    step = outcome.then.step_ns
    assert (step.low, step.usual, step.high) == (found.low_ns, found.step_ns, found.high_ns)


@pytest.mark.parametrize(
    "sweep, error",
    [("ep2-dflash", 0.12), ("tp1-dflash", 0.15), ("tp1", 0.03), ("ep2", 0.32)],
)
def test_work_at_256_tokens_from_that_at_8_and_1024(sweep: str, error: float) -> None:
    """From concurrency 1 and 128 to 32; for plain decoding, of ``ep2``'s experts at 32 tokens most are loaded."""
    middle = case(f"{sweep}/c32")
    found = times_at(middle.tokens or 0, [case(f"{sweep}/c1"), case(f"{sweep}/c128")])
    assert found.sum() == pytest.approx(middle.per_step.sum(), rel=error)


@pytest.mark.parametrize("sweep", ["ep2-dflash", "tp1-dflash"])
def test_blocks_of_another_size_within_their_bounds(sweep: str) -> None:
    """Batch 128 with as many tokens as batch 32 has takes what that takes, but for attention."""
    many, few = case(f"{sweep}/c128"), case(f"{sweep}/c32")
    factors = factors_at(few.tokens or 0, many, [case(f"{sweep}/c1"), many])
    others = [place for place, name in enumerate(CLASSES) if name != "attention"]
    for phase in ("draft", "verify"):
        low, high = ((table * many.per_step)[PHASE[phase]][others].sum() for table in (factors.low, factors.high))
        assert low <= few.per_step[PHASE[phase]][others].sum() <= high


@pytest.mark.parametrize("batch, plainly", [("c32", "tp1/c32"), ("c128", "tp1/c128")])
def test_verify_takes_what_plain_decoding_of_as_many_tokens_takes(batch: str, plainly: str) -> None:
    plain = case(plainly)
    found = times_at(plain.tokens or 0, [case(f"tp1-dflash/{one}") for one in ("c1", "c32", "c128")])
    gemm = CLASSES.index("gemm")
    assert found[PHASE["verify"], gemm] == pytest.approx(plain.per_step[PHASE["decode"], gemm], rel=0.12)


def test_a_sweep_is_one_series_and_eager_recordings_are_another() -> None:
    every = [case(one.name) for one in recordings("ep2-dflash")] + [case(one.name) for one in recordings("ep2")]
    series = alike(case("ep2-dflash/c32"), every)
    assert [one.name for one in series] == [f"ep2-dflash/{name}" for name in ("c1", "c32", "c128")]
    assert [one.tokens for one in series] == [8, 256, 1024]


def test_the_link_decides_at_128_and_the_host_at_1() -> None:
    found = said(Request(link=LINKS["nvlink4"]), *(f"ep2-dflash/{name}" for name in ("c1", "c32", "c128")))
    many, one = found["ep2-dflash/c128"], found["ep2-dflash/c1"]
    assert many.now is not None and one.now is not None
    assert many.alone[0].then.step_ns.usual < 0.8 * many.now.step_ns.usual
    assert one.alone[0].then.step_ns.usual == one.now.step_ns.usual


def test_every_lever_of_a_sweep_takes_seconds() -> None:
    begin = time.process_time()
    found = said(Request(), "ep2-dflash/c128", "ep2/c128")
    assert time.process_time() - begin < 20
    assert found["ep2-dflash/c128"].baseline == "ep2/c128"
