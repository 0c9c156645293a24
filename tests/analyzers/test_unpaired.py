"""Why speculative recordings are compared with no plain one: by hand, one difference at a time, and as recorded."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from profkit.analyzers.comparison import compare
from profkit.analyzers.result import TraceFigures
from profkit.analyzers.unpaired import in_one_line, unpaired
from tests.analyzers.sweeps_by_hand import by_hand
from tests.analyzers.test_sweeps import analysed

PLAIN, DRAFT = by_hand()[:2]
START = "draft/c1: compared with no plain decoding, as plain/c1 "


def on(trace: TraceFigures, *gpus: str, link: int | None = None) -> TraceFigures:
    """``trace`` on the GPUs so named, a rank on each."""
    device = next(iter(trace.devices.values()))
    devices = {str(d): structs.replace(device, gpu=gpu, rank=d, link_bandwidth=link) for d, gpu in enumerate(gpus)}
    return structs.replace(trace, devices=devices)


def cycle(trace: TraceFigures, **values: Any) -> TraceFigures:
    return structs.replace(trace, cycle=structs.replace(trace.cycle, **values))


def by(trace: TraceFigures, source: str, tool: str) -> TraceFigures:
    return structs.replace(trace, source=source, provenance=structs.replace(trace.provenance, tool=tool))


def named(trace: TraceFigures, name: str, config: str) -> TraceFigures:
    return structs.replace(trace, name=name, provenance=structs.replace(trace.provenance, config=config))


CASES = {
    "batch_size": (PLAIN, cycle(DRAFT, batch_size=32), "ran at batch 1, not 32"),
    "gpus": (on(PLAIN, "A"), on(DRAFT, "A", "A"), "ran on 1 GPU, not 2"),
    "gpu": (on(PLAIN, "A"), on(DRAFT, "B"), "ran on A, not B"),
    "link": (on(PLAIN, "A", "A", link=50), on(DRAFT, "A", "A", link=400), "ran over another link between the GPUs"),
    "recorder": (
        by(PLAIN, "nsys", "Nsight Systems"),
        by(DRAFT, "cupti", "CUPTI"),
        "was recorded with Nsight Systems, not CUPTI",
    ),
    "period": (cycle(PLAIN, period_ns_median=None), DRAFT, "has a single step, so no time from step to step"),
}


@pytest.mark.parametrize("reason", CASES)
def test_one_difference(reason: str) -> None:
    plain, draft, why = CASES[reason]
    (found,) = unpaired([plain, draft])
    assert (found.speculative, found.baseline, found.recordings) == ("draft/c1", "plain/c1", ("draft/c1",))
    assert found.reasons == (reason,) and found.text == START + why
    assert compare([plain, draft]) == ()


UNSURE = [
    (cycle(PLAIN, batch_size=None), DRAFT, "may have run at another batch size, which is not known of both"),
    (on(PLAIN, ""), on(DRAFT, "B"), "may have run on other GPUs, whose names are not known of both"),
    (on(PLAIN, "A", "A", "B"), on(DRAFT, "A", "B", "B"), "ran on other numbers of A and B"),
    (PLAIN, cycle(DRAFT, period_ns_median=None), "has no speculative recording of two steps or more beside it"),
]


@pytest.mark.parametrize(("plain", "draft", "why"), UNSURE)
def test_what_is_not_known_is_not_claimed(plain: TraceFigures, draft: TraceFigures, why: str) -> None:
    (found,) = unpaired([plain, draft])
    assert found.text == START + why and compare([plain, draft]) == ()


def test_a_sweep_is_told_once_with_all_that_it_differs_in() -> None:
    plain = [on(trace, "A") for trace in by_hand()[::2]]
    draft = [cycle(on(t, "A", "A"), batch_size=t.cycle.batch_size * 2) for t in by_hand()[1:4:2] if t.cycle.batch_size]
    (found,) = unpaired([plain[0], plain[2], *draft])
    assert found.recordings == ("draft/c1", "draft/c4") and found.reasons == ("batch_size", "gpus")
    assert found.text == (
        "draft: compared with no plain decoding, as plain ran at batch 1 and 16, not 2 and 8, and ran on 1 GPU, not 2"
    )


def test_all_recorders_of_a_sweep_are_named() -> None:
    traces = by_hand()
    plain = [by(trace, "nsys", "Nsight Systems") for trace in traces[::2]]
    (found,) = unpaired([*plain, by(traces[1], "cupti", "CUPTI"), by(traces[3], "kineto", "PyTorch profiler")])
    assert found.why == "plain was recorded with Nsight Systems, not CUPTI and PyTorch profiler"


def test_one_partner_is_enough() -> None:
    """Of a sweep with a pair at one concurrency, the others are not told; nor is anything without a plain recording."""
    traces = by_hand()
    assert unpaired(traces) == () and unpaired([traces[0], *traces[1::2]]) == ()
    assert unpaired(traces[1::2]) == () and unpaired(traces[::2]) == () and in_one_line(()) is None


def test_the_nearest_plain_sweep_is_named() -> None:
    """That with the fewest differences; of several, that of the configuration."""
    draft = named(on(DRAFT, "A", "A"), "two-draft/c1", "two-draft")
    far = named(on(cycle(PLAIN, batch_size=4), "A"), "far/c4", "two")
    near, own = (named(on(PLAIN, "A"), f"{name}/c1", name) for name in ("other", "two"))
    assert [one.baseline for one in unpaired([far, near, draft])] == ["other/c1"]
    assert [one.baseline for one in unpaired([far, near, own, draft])] == ["two/c1"]


def test_a_folder_of_both_kinds_is_told_by_its_recordings() -> None:
    plain = [structs.replace(t, name=f"all/p{t.cycle.batch_size}") for t in by_hand()[:3:2]]
    draft = [structs.replace(on(t, "A", "A"), name=f"all/d{t.cycle.batch_size}") for t in by_hand()[1:4:2]]
    (found,) = unpaired([*plain, *draft])
    assert found.text == "all/d1 and all/d4: compared with no plain decoding, as all/p1 and all/p4 ran on 1 GPU, not 2"


def test_several_stand_in_one_line() -> None:
    other = structs.replace(on(DRAFT, "A", "A"), name="wide/c1")
    found = unpaired([PLAIN, cycle(DRAFT, batch_size=32), other])
    assert in_one_line(found) == (
        "Compared with no plain decoding: draft/c1 (plain/c1 ran at batch 1, not 32); wide/c1 (plain/c1 ran on 1 GPU, "
        "not 2)."
    )


RECORDED = {
    ("tp1/c1", "tp1-dflash/c32"): (
        "tp1-dflash/c32: compared with no plain decoding, as tp1/c1 ran at batch 1, not 32."
    ),
    ("tp1", "ep2-dflash"): (
        "ep2-dflash: compared with no plain decoding, as tp1 ran qwen3-8b, not qwen3-30b-a3b, and ran on 1 GPU, not 2."
    ),
    ("ep2", "ep2-dflash-nvlink"): (
        "ep2-dflash-nvlink: compared with no plain decoding, as ep2 ran over another link between the GPUs."
    ),
    ("tp1/c1", "tp1-dflash-torch/c1"): (
        "tp1-dflash-torch/c1: compared with no plain decoding, as tp1/c1 was recorded with Nsight Systems, not PyTorch "
        "profiler."
    ),
    ("tp1", "ep2"): None,
    ("tp1", "tp1-dflash"): None,
}


@pytest.mark.parametrize("sweeps", RECORDED)
def test_recorded(sweeps: tuple[str, ...]) -> None:
    analysis = analysed(*sweeps)
    assert in_one_line(analysis.unpaired) == RECORDED[sweeps]
    assert bool(analysis.unpaired) == (not analysis.comparisons and sweeps != ("tp1", "ep2"))
