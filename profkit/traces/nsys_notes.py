"""What an Nsight Systems recording says of itself."""

from __future__ import annotations

import re

from .model import Note
from .nsys_tables import NsysTables

RECORDER_SAYS = (
    (re.compile(r"drop|\blost\b", re.IGNORECASE), "dropped_records", "the recorder dropped records"),
    (re.compile(r"buffer.{0,20}full|overflow", re.IGNORECASE), "dropped_records", "a buffer of the recorder was full"),
    (re.compile(r"out of memory", re.IGNORECASE), "warning", "the recorder ran out of memory"),
    (re.compile(r"driver.*not supported by this build"), "warning", "the driver is newer than this nsys supports"),
    (re.compile(r"may be missing", re.IGNORECASE), "warning", "the recorder says that events may be missing"),
)
"""What a message of the recorder means. Its own words may hold command lines and paths, and are not kept."""

COUNT_OF_DROPPED = re.compile(r"\b(\d[\d,]*) (?:\w+ ){0,3}(?:dropped|lost)\b", re.IGNORECASE)


def recorder_notes(tables: NsysTables) -> list[Note]:
    """How graphs were traced, and what the recorder warned of."""
    settings = dict(tables.rows("META_DATA_CAPTURE", ["name", "value"]))
    notes = []
    mode = next((value for name, value in settings.items() if name and name.endswith("GRAPH_TRACE_OPTIONS:MODE")), None)
    if mode:
        notes.append(Note("graph_mode", str(mode).lower()))
    for text, severity in tables.rows("DIAGNOSTIC_EVENT", ["text", "severity"]):
        if severity is not None and severity >= 2:
            notes += _meaning(str(text or "").split("\n", 1)[0])
    return list(dict.fromkeys(notes))


def _meaning(message: str) -> list[Note]:
    count = COUNT_OF_DROPPED.search(message)
    for pattern, key, meaning in RECORDER_SAYS:
        if pattern.search(message):
            return [Note(key, f"{meaning} ({count[1]})" if count else meaning)]
    return []


def bad_time_notes(bad: int, total: int) -> list[Note]:
    """How many activities were left out, if any."""
    return [Note("bad_times", f"{bad} of {total} GPU records have no usable time and were left out")] if bad else []
