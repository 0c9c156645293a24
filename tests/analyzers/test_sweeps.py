"""The reference sweeps, as ``profkit capture`` left them: whole steps, ranges around them, and figures that fit."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from profkit import Recording, analyze
from profkit.analyzers import Attribution, attribute
from profkit.analyzers.result import Analysis, TraceFigures
from profkit.analyzers.vocabulary import PHASE
from profkit.traces import load_sweep, open_recordings

TRACES = Path(__file__).parents[2] / "traces"
SWEEPS = {
    "tp1": ("c1", "c32", "c128"),
    "tp1-dflash": ("c1", "c32", "c128"),
    "ep2": ("c1", "c32", "c128"),
    "ep2-dflash": ("c1", "c1-eager", "c32", "c32-eager", "c128", "c128-eager"),
}
RECORDINGS = [f"{sweep}/{name}" for sweep, names in SWEEPS.items() for name in names]


@cache
def analysed(*sweeps: str) -> Analysis:
    opened = [one for sweep in sweeps for one in open_recordings(TRACES / sweep)]
    return analyze([Recording(one.name, str(one.path), one.trace) for one in opened])[0]


@cache
def attributed(name: str) -> Attribution:
    return attribute(open_recordings(TRACES / name)[0].trace)


def figures_of(name: str) -> TraceFigures:
    return next(trace for trace in analysed(name.split("/")[0]).traces if trace.name == name)


@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_concurrency_is_recorded(sweep: str) -> None:
    assert tuple(trace.name.split("/")[1] for trace in analysed(sweep).traces) == SWEEPS[sweep]
    record = load_sweep(TRACES / sweep)
    assert not record.failures and not any(run.failure for run in record.runs)
    assert all(run.tokens_per_s and run.tokens_per_s_recorded for run in record.runs)
    assert record.settings["command"].startswith(f"profkit capture --config {sweep} ")


@pytest.mark.parametrize("name", RECORDINGS)
def test_eight_steps_that_add_up(name: str) -> None:
    figures = figures_of(name)
    assert figures.cycle.steps == 8
    for device in figures.devices.values():
        assert device.window is not None
        assert sum(ns or 0 for ns in device.partition_ns.values()) == device.window.wall_ns
        assert not device.partition_ns["gap_unknown"]


@pytest.mark.parametrize("name", RECORDINGS)
def test_ranges_nest_and_cover_the_gpu_time_of_steps(name: str) -> None:
    attribution = attributed(name)
    ranges, ops = attribution.trace.ranges, attribution.trace.ops
    inner = np.flatnonzero(ranges.parent >= 0)
    outer = ranges.parent[inner]
    assert (ranges.start[outer] <= ranges.start[inner]).all() and (ranges.end[inner] <= ranges.end[outer]).all()
    busy = {
        device: (
            np.flatnonzero((ops.device == device) & (ops.start >= line.window_start) & (ops.start < line.window_end))
        )
        for device, line in attribution.devices.items()
    }
    rows = np.concatenate(list(busy.values()))
    duration = (ops.end - ops.start)[rows]
    assert duration[attribution.phase[rows] != PHASE["outside"]].sum() >= 0.99 * duration.sum()


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name.startswith("ep2")])
def test_waiting_is_told_from_transfer(name: str) -> None:
    """Every collective has its partner, and transfers take as long on both ranks, whatever their clocks."""
    first, second = (device.collectives for device in figures_of(name).devices.values())
    assert first.unpaired_ns == second.unpaired_ns == 0
    assert first.transfer_ns == pytest.approx(second.transfer_ns, rel=0.09)


@pytest.mark.parametrize(("plain", "speculative"), [("tp1", "tp1-dflash"), ("ep2", "ep2-dflash")])
def test_the_gain_shrinks_with_concurrency(plain: str, speculative: str) -> None:
    """Predicted from the recorded cycles, and as measured without a recorder."""
    rows = [row for row in analysed(plain, speculative).comparisons if "eager" not in row.speculative]
    assert [row.batch_size for row in rows] == [1, 32, 128]
    for gains in ([row.predicted_speedup for row in rows], [row.measured_speedup for row in rows]):
        assert gains[0] > gains[1] > gains[2]
    (gain,) = analysed(plain, speculative).gains
    assert (gain.baseline, gain.speculative, gain.batch_sizes) == (plain, speculative, (1, 32, 128))
    ends = sum(part.low for part in gain.parts), sum(part.high for part in gain.parts)
    assert ends == pytest.approx((rows[0].break_even_accept_len, rows[2].break_even_accept_len))
    assert (gain.parts[0].phase, gain.parts[0].group) == ("verify", "kernels")
    order = [(part.low - part.high, part.phase, part.group) for part in gain.parts]
    assert order == sorted(order), "parts that change alike, as many that do not change, are in order of their names"
    assert gain.text.startswith("the speed-up predicted from steps shrinks from ")
    assert ("verify's collectives +" in gain.cost) == (plain == "ep2") and gain.text.endswith(gain.cost)
    assert [row.predicted_speedup for row in rows] == pytest.approx([row.measured_speedup for row in rows], rel=0.15)
