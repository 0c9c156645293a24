"""Exports hold every activity and add up."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profkit.analyzers import Attribution, attribute
from profkit.analyzers.flame import gpu_flame
from profkit.cli import main
from profkit.reports.exports import folded, ops_frame, perfetto_json, speedscope_json, tracks
from profkit.traces import open_trace

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def attribution() -> Attribution:
    return attribute(open_trace(ROOT / "traces" / "ep2-dflash" / "c1"))


def test_frame_has_a_row_per_activity(attribution: Attribution) -> None:
    frame = ops_frame(attribution)
    assert len(frame) == len(attribution.trace.ops) == 19_824
    assert frame.groupby(["rank", "phase"], observed=True).size()[0, "verify"] == 8584
    assert (frame["end_ns"] >= frame["start_ns"]).all()


def test_folded_stacks_sum_to_the_gpu_time_of_both_ranks(attribution: Attribution) -> None:
    values = [int(line.rsplit(" ", 1)[1]) for line in folded(attribution).splitlines()]
    assert sum(values) == sum(int(gpu_flame(attribution, device).total_ns[0]) for device in (0, 1))


def test_speedscope_weights_end_where_the_profile_does(attribution: Attribution) -> None:
    document = json.loads(speedscope_json(attribution, "x"))
    frames = len(document["shared"]["frames"])
    for profile in document["profiles"]:
        assert sum(profile["weights"]) == profile["endValue"]
        assert all(0 <= frame < frames for sample in profile["samples"] for frame in sample)


def test_perfetto_events_of_a_track_nest_or_follow(attribution: Attribution) -> None:
    events = [e for e in json.loads(perfetto_json(attribution))["traceEvents"] if e["ph"] == "X"]
    streams = [e for e in events if 1_000 <= e["tid"] < 1_000_000]
    assert len(streams) == 19_824
    by_track: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in streams:
        by_track.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_track.values():
        spans.sort()
        assert all(b[0] >= a[1] - 1e-3 for a, b in pairwise(spans))


def test_tracks_of_overlapping_intervals() -> None:
    start, end = np.array([0, 2, 5, 6]), np.array([5, 8, 6, 7])
    assert tracks(start, end).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("form", ["perfetto", "speedscope", "folded", "csv", "parquet"])
def test_command_writes_the_file(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert main(["export", form, str(ROOT / "traces" / "ep2" / "c1"), "-o", str(target)]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    assert target.stat().st_size > 2_000
    if form == "csv":
        assert len(pd.read_csv(io.StringIO(target.read_text()))) == 16_568
    if form == "parquet":
        assert len(pd.read_parquet(target)) == 16_568
