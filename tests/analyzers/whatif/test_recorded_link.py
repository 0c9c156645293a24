"""Another link against recordings over both links; docs/whatif.md has the tables."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest

from profkit.analyzers import analyze, attribute
from profkit.analyzers.replay.transform import scaled_ops
from profkit.analyzers.vocabulary import CLASS, PHASE
from profkit.analyzers.whatif import LINKS, Request
from profkit.analyzers.whatif.case import Case, case_of
from profkit.analyzers.whatif.changes import Change, Version
from profkit.analyzers.whatif.linking import link
from profkit.analyzers.whatif.links import BASE_US, NVLINK_HOP_US, PCIE_HOP_US
from profkit.analyzers.whatif.outcome import step_with
from profkit.traces import F64
from tests.analyzers.whatif.test_recorded import recordings, said

CONCURRENCIES = ("c1", "c32", "c128")
PCIE, NVLINK = "ep2-dflash", "ep2-dflash-nvlink"
LINK = {PCIE: LINKS["pcie5"], NVLINK: LINKS["nvlink4"]}
OTHER = {PCIE: NVLINK, NVLINK: PCIE}
COLLECTIVE, ATTENTION = CLASS["collective"], CLASS["attention"]


@cache
def case(name: str) -> Case:
    """A recording, over NVLink where its sweep says so."""
    (recording,) = recordings(name)
    found = case_of(recording, attribute(recording.trace), [name] if name.startswith(NVLINK) else [])
    assert isinstance(found, Case)
    return found


def over_the_other(name: str) -> Change:
    sweep = name.split("/")[0]
    series = [case(f"{sweep}/{concurrency}") for concurrency in CONCURRENCIES]
    return link(case(name), Request(link=LINK[OTHER[sweep]]), series)


def recorded_over_the_other(name: str) -> Case:
    sweep, concurrency = name.split("/")
    return case(f"{OTHER[sweep]}/{concurrency}")


def attention_as_in(other: Case, here: Case) -> Change:
    """Attention as long as in another recording, by phase: that of its contexts."""
    now, then = here.per_step[:, ATTENTION], other.per_step[:, ATTENTION]
    factor = np.divide(then, now, out=np.ones_like(now), where=now > 0)
    work = here.model.work
    version = Version(partial(scaled_ops, factor=np.where(work.kernel_class == ATTENTION, factor[work.phase], 1.0)))
    return Change(version, version, version)


def in_ms(*times: float) -> list[float]:
    return [round(ns / 1e6, 2) for ns in times]


STEPS = {
    f"{PCIE}/c1": ([7.28, 9.82, 9.82], 10.06),
    f"{PCIE}/c32": ([18.16, 18.85, 21.97], 19.58),
    f"{PCIE}/c128": ([51.10, 52.91, 58.28], 66.08),
    f"{NVLINK}/c1": ([8.49, 10.13, 10.13], 9.82),
    f"{NVLINK}/c32": ([21.95, 25.34, 32.40], 25.77),
    f"{NVLINK}/c128": ([75.77, 89.33, 116.68], 73.68),
}
"""Bounds and middle of the step over the other link, and the step recorded over it; ms."""


@pytest.mark.parametrize("name", STEPS)
def test_steps_over_the_other_link(name: str) -> None:
    """Both at 32 lie within their bounds; those at 128 do not. At 1 the host holds them back, one by its recorder."""
    step, (predicted, recorded) = step_with(case(name), [over_the_other(name)]), STEPS[name]
    assert in_ms(step.low, step.usual, step.high) == predicted
    assert in_ms(recorded_over_the_other(name).recorded_ns) == [recorded]
    inside = step.low <= recorded_over_the_other(name).recorded_ns <= step.high
    assert inside == (name.endswith("/c32") or name == f"{NVLINK}/c1")


AT_THE_SAME_CONTEXTS = {
    f"{PCIE}/c32": [19.36, 20.06, 23.17],
    f"{PCIE}/c128": [63.08, 64.89, 70.26],
    f"{NVLINK}/c32": [20.76, 24.15, 31.22],
    f"{NVLINK}/c128": [63.53, 77.08, 104.41],
}


@pytest.mark.parametrize("name", AT_THE_SAME_CONTEXTS)
def test_steps_with_attention_as_long_as_there(name: str) -> None:
    """Contexts differ; with the attention of the other recording, all that the GPU bounds lie within their bounds."""
    here, there = case(name), recorded_over_the_other(name)
    step = step_with(here, [attention_as_in(there, here), over_the_other(name)])
    assert in_ms(step.low, step.usual, step.high) == AT_THE_SAME_CONTEXTS[name]
    assert step.low <= there.recorded_ns <= step.high


def test_all_but_collectives_and_attention_takes_as_long() -> None:
    """At 32 and 128: what the link changed is the only other difference between the two sweeps."""
    for concurrency in ("c32", "c128"):
        both = [case(f"{sweep}/{concurrency}").per_step.copy() for sweep in (PCIE, NVLINK)]
        for table in both:
            table[:, [COLLECTIVE, ATTENTION]] = 0
        assert both[1].sum() == pytest.approx(both[0].sum(), rel=0.01)


TRANSFERS = {
    f"{PCIE}/c1": (1.261, [0.794, 0.953, 1.261], 0.731, False),
    f"{PCIE}/c32": (8.965, [1.334, 2.032, 5.155], 1.629, True),
    f"{PCIE}/c128": (24.842, [2.445, 4.255, 9.601], 4.469, True),
    f"{NVLINK}/c1": (0.731, [0.803, 0.981, 1.611], 1.261, True),
    f"{NVLINK}/c32": (1.629, [4.006, 7.389, 14.426], 8.965, True),
    f"{NVLINK}/c128": (4.469, [14.149, 27.673, 54.995], 24.842, True),
}
"""Transfer a step in ms: as recorded, over the other link (bounds and middle), recorded there, whether in bounds."""


def transfer_ns(name: str, version: Version | None = None) -> float:
    """The transfer of all collectives of a step, mean of ranks, with what a link changes."""
    here = case(name)
    work = (version.change(here.model) if version else here.model).work
    steps = np.unique(work.step[work.step >= 0])
    mine = here.collectives & (work.step >= 0)
    return float(work.duration[mine].sum()) / len(steps) / here.ranks


@pytest.mark.parametrize("name", TRANSFERS)
def test_transfer_of_a_step_over_the_other_link(name: str) -> None:
    """What the lever itself changes, whatever the contexts: at 1, NVLink's latency is less than NCCL's model says."""
    now, predicted, recorded, inside = TRANSFERS[name]
    change = over_the_other(name)
    low, usual, high = (transfer_ns(name, version) for version in (change.low, change.usual, change.high))
    there = transfer_ns(f"{OTHER[name.split('/')[0]]}/{name.split('/')[1]}")
    assert [transfer_ns(name) / 1e6, there / 1e6] == pytest.approx([now, recorded], abs=0.0006)
    assert [low / 1e6, usual / 1e6, high / 1e6] == pytest.approx(predicted, abs=0.0006)
    assert (low <= there <= high) == inside


@pytest.mark.parametrize("sweep, exposed", [(PCIE, [1.54, 8.93, 24.98]), (NVLINK, [0.87, 1.70, 4.61])])
def test_exposed_collectives_of_the_rank_that_waits_least(sweep: str, exposed: list[float]) -> None:
    """Nearly all of its transfer, over either link: nothing else runs meanwhile."""
    found = []
    for one in analyze(recordings(*(f"{sweep}/{name}" for name in CONCURRENCIES)))[0].traces:
        found.append(min(each.collectives.exposed_ns / each.steps for each in one.devices.values()) / 1e6)
    assert found == pytest.approx(exposed, abs=0.006)


def transfers_us(sweep: str, phase: str) -> F64:
    """The median transfer of a collective of the target at each concurrency, in µs."""
    medians = []
    for name in CONCURRENCIES:
        found = case(f"{sweep}/{name}")
        mine = found.collectives & (found.model.work.step >= 0) & (found.model.work.phase == PHASE[phase])
        medians.append(float(np.median(found.model.work.duration[mine])) / 1e3)
    return np.array(medians)


@pytest.mark.parametrize(
    "sweep, phase, recorded, latency, third",
    [
        ("ep2", "decode", [9.2, 20.9, 51.0], 8.8, 57.2),
        (PCIE, "verify", [10.6, 67.4, 170.0], 8.8, 243.3),
        (NVLINK, "verify", [6.3, 13.2, 34.8], 6.1, 34.3),
    ],
)
def test_transfers_as_a_latency_and_bytes(
    sweep: str, phase: str, recorded: list[float], latency: float, third: float
) -> None:
    """A line through the first two; over PCI Express it leaves the latency of NCCL's model, over NVLink 22 % less."""
    few, middle, many = transfers_us(sweep, phase)
    assert [few, middle, many] == pytest.approx(recorded, abs=0.06)
    tokens = [case(f"{sweep}/{name}").tokens or 0 for name in CONCURRENCIES]
    slope = (middle - few) / (tokens[1] - tokens[0])
    left, model = few - slope * tokens[0], BASE_US + 2 * (NVLINK_HOP_US if sweep == NVLINK else PCIE_HOP_US)
    assert left == pytest.approx(latency, abs=0.06)
    assert left / model - 1 == pytest.approx(-0.22 if sweep == NVLINK else 0.025, abs=0.025)
    assert few + slope * (tokens[2] - tokens[0]) == pytest.approx(third, abs=0.1)


WITHOUT_RECORDER = {
    "c1": ([6.95, 8.48, 9.60], 0.158, (373, 386)),
    "c32": ([17.68, 18.80, 20.12], 0.003, (3852, 4861)),
    "c128": ([52.81, 57.13, 62.99], -0.074, (6348, 7155)),
}
"""Steps over NVLink without a recorder (ms, middle 80 %), how far off the predicted one is, and tokens/s over both."""


@pytest.mark.parametrize("name", CONCURRENCIES)
def test_steps_and_tokens_without_a_recorder(name: str) -> None:
    over_pcie, over_nvlink = (case(f"{sweep}/{name}").attribution.trace.run for sweep in (PCIE, NVLINK))
    (times, error, rates), timed = WITHOUT_RECORDER[name], over_nvlink.step_times
    assert timed is not None and in_ms(timed.low_ns, timed.median_ns, timed.high_ns) == times
    step = step_with(case(f"{PCIE}/{name}"), [over_the_other(f"{PCIE}/{name}")])
    assert step.usual / timed.median_ns - 1 == pytest.approx(error, abs=0.0006)
    assert step.low <= timed.median_ns <= step.high
    assert (over_pcie.tokens_per_s, over_nvlink.tokens_per_s) == pytest.approx(rates, abs=0.6)


def test_the_link_decides_at_128_and_the_host_at_1() -> None:
    found = said(Request(link=LINKS["nvlink4"]), *(f"{PCIE}/{name}" for name in CONCURRENCIES))
    many, one = found[f"{PCIE}/c128"], found[f"{PCIE}/c1"]
    assert many.now is not None and one.now is not None
    assert many.alone[0].then.step_ns.usual < 0.8 * many.now.step_ns.usual
    held = one.alone[0].then.step_ns
    assert held.low < held.usual == one.now.step_ns.usual
    assert one.alone[0].held_back.startswith("held back by the host as recorded; at the lower bound the host takes no ")
    assert one.text.endswith("; held back by the host as recorded.") and not many.alone[0].held_back
