"""The data of a page: columns and string tables as JSON, made safe to stand inside a ``<script>`` element."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from profkit.analyzers.counter_tracks import Line, Track
from profkit.analyzers.flame import LEVELS, Flame
from profkit.analyzers.timeline import StepTimeline
from profkit.analyzers.vocabulary import CLASSES, PARTS, PHASES
from profkit.traces import F64

GZIP_ABOVE = 1_000_000


@dataclass(frozen=True, slots=True)
class Embedded:
    """Text for a script element, and how it is encoded: ``json`` or ``gzip+base64``."""

    encoding: str
    text: str


def embed(data: Any) -> Embedded:
    """``data`` as JSON with sorted keys; compressed where it is long."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(text) > GZIP_ABOVE:
        return Embedded("gzip+base64", packed(text.encode()))
    # JSON allows both escapes; no browser then sees the end of the element, or a line end within a string.
    return Embedded("json", text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def packed(data: bytes) -> str:
    """``data`` compressed, as base64; the same for the same data."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def words() -> dict[str, list[str]]:
    """The code tables of the columns."""
    return {"classes": list(CLASSES), "levels": list(LEVELS), "parts": list(PARTS), "phases": list(PHASES)}


def flame_columns(flame: Flame) -> dict[str, Any]:
    """A flame graph as columns; a frame's own time follows from the totals."""
    return {
        "count": flame.count.tolist(),
        "label": flame.label.tolist(),
        "level": flame.level.tolist(),
        "name": flame.name.tolist(),
        "parent": flame.parent.tolist(),
        "steps": flame.steps,
        "strings": list(flame.strings),
        "total": flame.total_ns.tolist(),
    }


def timeline_columns(timeline: StepTimeline) -> dict[str, Any]:
    """A timeline as lanes and columns; ``first`` holds where the items of each lane begin."""
    items = timeline.items
    first = [0, *_ends(items.lane.tolist(), len(timeline.lanes))]
    return {
        "code": items.code.tolist(),
        "first": first,
        "label": items.label.tolist(),
        "lanes": [
            {"device": lane.device, "kind": lane.kind, "label": lane.label, "rank": lane.rank, "rows": lane.rows}
            for lane in timeline.lanes
        ],
        "launch": items.launch.tolist(),
        "length": items.length.tolist(),
        "marks": [[device, begin, end] for device, (begin, end) in sorted(timeline.marks.items())],
        "name": items.name.tolist(),
        "nvml": {str(device): text for device, text in timeline.nvml.items()},
        "phase": items.phase.tolist(),
        "row": items.row.tolist(),
        "span": timeline.end_ns - timeline.start_ns,
        "split": items.split.tolist(),
        "start": items.start.tolist(),
        "strings": list(timeline.strings),
        "tracks": [_track(track) for track in timeline.tracks],
    }


def _track(track: Track) -> dict[str, Any]:
    return {
        "device": track.device,
        "limit": track.limit,
        "lines": [_line(line) for line in track.lines],
        "scale": track.scale,
        "title": track.title,
        "unit": track.unit,
    }


def _line(line: Line) -> dict[str, Any]:
    columns = {name: getattr(line, name) for name in ("low", "mean", "high")}
    values = {name: None if column is None else three_figures(column) for name, column in columns.items()}
    return {"length": line.length.tolist(), "name": line.name, "start": line.start.tolist(), **values}


def three_figures(values: F64) -> list[float]:
    """Values as the page tells them; it can draw no more."""
    return [float(f"{value:.3g}") for value in values.tolist()]


def _ends(lane: list[int], lanes: int) -> Iterator[int]:
    """How many items lie in the lanes up to and with each one."""
    counts = [0] * lanes
    for number in lane:
        counts[number] += 1
    total = 0
    for count in counts:
        total += count
        yield total
