"""A recording, attributed, in the formats of other tools."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from profkit.analyzers.attribution import Attribution
from profkit.analyzers.flame import Flame, gpu_flame
from profkit.analyzers.ranks import rank_of_device
from profkit.analyzers.vocabulary import CLASSES, PARTS, PHASES
from profkit.traces import I64, OpKind

if TYPE_CHECKING:
    import pandas as pd

GAP_LANE, STREAM_LANES, HOST_LANES = 1, 1_000, 1_000_000
SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def ops_frame(attribution: Attribution) -> pd.DataFrame:
    """One row per GPU activity: times in nanoseconds, names, and what it was attributed to."""
    import pandas as pd

    trace, ops, launches = attribution.trace, attribution.trace.ops, attribution.trace.launches
    ranks = rank_of_device(trace)
    names = pd.Series([*trace.strings, ""])
    launched = attribution.launch >= 0
    row = np.maximum(attribution.launch, 0)
    call = launches.start[row] if len(launches) else np.zeros(len(ops), np.int64)
    return pd.DataFrame(
        {
            "start_ns": ops.start,
            "end_ns": ops.end,
            "rank": pd.Series(ops.device).map(ranks),
            "device": ops.device,
            "stream": ops.stream,
            "kind": pd.Categorical.from_codes(ops.kind, pd.Index([kind.name.lower() for kind in OpKind])),
            "name": names.iloc[ops.name].to_numpy(),
            "class": pd.Categorical.from_codes(attribution.kernel_class, pd.Index(CLASSES)),
            "phase": pd.Categorical.from_codes(attribution.phase, pd.Index(PHASES)),
            "step": pd.Series(attribution.step).where(attribution.step >= 0).astype("Int64"),
            "launch_start_ns": pd.Series(call).where(launched).astype("Int64"),
            "graph_launch": pd.Series(ops.graph_launch).where(ops.graph_launch >= 0).astype("Int64"),
            "graph_node": pd.Series(ops.graph_node).where(ops.graph_node >= 0).astype("Int64"),
            "bytes": pd.Series(ops.bytes).where(ops.bytes >= 0).astype("Int64"),
        }
    )


def folded(attribution: Attribution) -> str:
    """Call stacks of GPU time as ``frame;frame;frame nanoseconds`` lines, for flamegraph.pl and its kin."""
    lines = []
    for device, rank in rank_of_device(attribution.trace).items():
        for stack, value in _stacks(gpu_flame(attribution, device)):
            lines.append(f"{';'.join([f'rank {rank}', *(_folded_label(frame) for frame in stack)])} {value}")
    return "\n".join(lines) + "\n"


def _folded_label(text: str) -> str:
    return text.replace(";", ",").replace("\n", " ")


def _stacks(flame: Flame) -> Iterator[tuple[list[str], int]]:
    """The label path of each frame that has time of its own, without the root, and that time."""
    for row in np.flatnonzero(flame.self_ns > 0).tolist():
        stack, value = [], int(flame.self_ns[row])
        while row > 0:
            stack.append(flame.strings[flame.label[row]])
            row = int(flame.parent[row])
        yield stack[::-1], value


def speedscope_json(attribution: Attribution, name: str) -> str:
    """One profile per rank for speedscope, weighted by GPU nanoseconds."""
    frames: dict[str, int] = {}
    profiles = []
    for device, rank in rank_of_device(attribution.trace).items():
        stacks = list(_stacks(gpu_flame(attribution, device)))
        profiles.append(
            {
                "type": "sampled",
                "name": f"rank {rank}",
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": sum(value for _, value in stacks),
                "samples": [[frames.setdefault(label, len(frames)) for label in stack] for stack, _ in stacks],
                "weights": [value for _, value in stacks],
            }
        )
    document = {
        "$schema": SPEEDSCOPE_SCHEMA,
        "name": name,
        "exporter": "profkit",
        "shared": {"frames": [{"name": label} for label in frames]},
        "profiles": profiles,
    }
    return msgspec.json.encode(document).decode()


def perfetto_json(attribution: Attribution) -> str:
    """Chrome trace events for Perfetto: per rank its host threads, streams, and the gaps with their causes.

    Viewers drop an event that overlaps another on its track without lying inside it; such ops get a track more.
    """
    trace = attribution.trace
    origin = int(min(trace.ops.start.min(initial=0), trace.launches.start.min(initial=0)))
    events = []
    for device, rank in rank_of_device(trace).items():
        events += _device_events(attribution, device, rank, origin)
        events += _host_events(attribution, device, rank, origin)
    return msgspec.json.encode({"displayTimeUnit": "ns", "traceEvents": events}).decode()


def _event(name: str, rank: int, lane: int, start: int, end: int, origin: int, **more: Any) -> dict[str, Any]:
    times = {"ts": (start - origin) / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, "pid": rank, "tid": lane, **times, **more}


def _named(kind: str, rank: int, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{kind}_name", "pid": rank, "tid": lane, "args": {"name": name}}


def _device_events(attribution: Attribution, device: int, rank: int, origin: int) -> list[dict[str, Any]]:
    trace, ops, line = attribution.trace, attribution.trace.ops, attribution.devices[device]
    gpu = next((d.name for d in trace.devices if d.device == device), "")
    events = [_named("process", rank, 0, f"rank {rank} {gpu}".strip()), _named("thread", rank, GAP_LANE, "gaps")]
    for place, stream in enumerate(np.unique(ops.stream[ops.device == device]).tolist()):
        rows = np.flatnonzero((ops.device == device) & (ops.stream == stream))
        lanes = tracks(ops.start[rows], ops.end[rows])
        for track in range(int(lanes.max(initial=0)) + 1):
            title = f"stream {stream}" + (f" ({track + 1})" if track else "")
            events.append(_named("thread", rank, STREAM_LANES + place * 100 + track, title))
        for row, track in zip(rows.tolist(), lanes.tolist(), strict=True):
            detail = {"phase": PHASES[attribution.phase[row]], "class": CLASSES[attribution.kernel_class[row]]}
            lane, name = STREAM_LANES + place * 100 + track, trace.strings[ops.name[row]]
            events.append(_event(name, rank, lane, int(ops.start[row]), int(ops.end[row]), origin, args=detail))
    gaps = np.flatnonzero(np.char.startswith(np.array(PARTS), "gap")[line.part])
    for row in gaps.tolist():
        phase = {"phase": PHASES[line.phase[row]]}
        start, end = int(line.start[row]), int(line.end[row])
        events.append(_event(PARTS[line.part[row]], rank, GAP_LANE, start, end, origin, args=phase))
    return events


def _host_events(attribution: Attribution, device: int, rank: int, origin: int) -> list[dict[str, Any]]:
    trace = attribution.trace
    pids = np.unique(trace.ops.pid[trace.ops.device == device])
    events = []
    for table, text in ((trace.ranges, trace.ranges.text), (trace.launches, trace.launches.api)):
        for row in np.flatnonzero(np.isin(table.pid, pids)).tolist():
            lane, name = HOST_LANES + int(table.tid[row]), trace.strings[text[row]]
            events.append(_event(name, rank, lane, int(table.start[row]), int(table.end[row]), origin))
    threads = sorted({event["tid"] for event in events})
    return [*(_named("thread", rank, lane, f"host thread {lane - HOST_LANES}") for lane in threads), *events]


def tracks(start: I64, end: I64) -> I64:
    """A track for each interval so that those of one track do not overlap; ``start`` need not ascend."""
    track = np.zeros(len(start), np.int64)
    running: list[tuple[int, int]] = []
    free: list[int] = []
    for row in np.argsort(start, kind="stable").tolist():
        while running and running[0][0] <= start[row]:
            heapq.heappush(free, heapq.heappop(running)[1])
        track[row] = heapq.heappop(free) if free else len(running)
        heapq.heappush(running, (int(end[row]), int(track[row])))
    return track
