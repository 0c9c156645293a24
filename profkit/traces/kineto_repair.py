"""Decoding of a Kineto file that is not well-formed JSON: cut off, or with values that JSON does not allow.

Event by event: one that cannot be mended is left out and counted, all others are kept.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any

import msgspec

from .kineto_decode import META_KEYS, Args, Decoded, Event, Scalar
from .model import Note

_Mend = Callable[[str], str]

_JSON = json.JSONDecoder(strict=False, parse_float=Decimal, parse_constant=lambda _: None)
_ARRAY = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_EVENT_KEY = r'"(?:ph|cat|name|pid|tid|ts|dur|id|args|s|bp)"\s*:'
_NEXT = re.compile(rf'\}}\s*(?=,\s*(?:$|\{{\s*(?:$|"\w*"?$|{_EVENT_KEY}))|\]\s*(?:[,}}]|$))')
_NOT_FINITE = re.compile(r"(?<=[:,\[])(\s*)[-+]?(?:inf|infinity|nan)(?=\s*[,}\]])", re.IGNORECASE)
_VALUE = re.compile(r'("\s*:\s*")(.*?)("(?=\s*(?:,\s*"[^"\\]*"\s*:|\}|\],)))', re.DOTALL)
_STRAY_QUOTE = re.compile(r'(?<!\\)"')
_BOUNDARIES = 4  # an event may hold what looks like its end
_LONGEST_MENDED = 10_000  # characters; the search for stray quotes takes quadratic time
_BAD_BYTES = "profkit-latin-1"


def _as_latin_1(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(_BAD_BYTES, _as_latin_1)


def decode_tolerant(data: bytes) -> Decoded | None:
    """Every complete event of a damaged file; ``None`` where it holds no array of events."""
    text = data.decode("utf-8", _BAD_BYTES).removeprefix("\ufeff")
    array = _ARRAY.search(text)
    if array is None and not text.lstrip().startswith("["):
        return None
    begin = array.end() if array else text.index("[") + 1
    events, end, lost, cut = _events(text, begin)
    notes = []
    if lost:
        notes.append(Note("warning", f"{lost} unreadable event{'s' if lost > 1 else ''} left out"))
    if cut:
        notes.append(Note("truncated", f"the file breaks off; {len(events):,} complete events were read"))
    return Decoded(events, _meta(text[:begin] + text[end:]) if array else {}, tuple(notes))


def _events(text: str, at: int) -> tuple[list[Event], int, int, bool]:
    """The events from ``at`` on, where their array ends, how many were lost, whether the file is cut off."""
    events: list[Event] = []
    lost = 0
    while True:
        at = _skip(text, at)
        if at >= len(text):
            return events, at, lost, True
        if text[at] == "]":
            return events, at + 1, lost, False
        value, stop = _next_value(text, at)
        if isinstance(value, dict):
            events.append(_event(value))
        elif stop is None:
            return events, len(text), lost, True
        else:
            lost += 1
        at = len(text) if stop is None else stop


def _next_value(text: str, at: int) -> tuple[object, int | None]:
    """The event at ``at``, or ``None`` where it makes no sense, and where it ends, if another one or the end follows.

    Only pieces are decoded: the error of a decoder counts the lines before it, which is slow in a long text.
    """
    first = None
    for boundary in islice(_NEXT.finditer(text, at), _BOUNDARIES):
        stop = boundary.start() + 1
        value = _mended(text[at:stop], _MENDS if first is None else ())
        if value is not None:
            return value, stop
        first = first or stop
    if first is not None:
        return None, first
    return _mended(text[at:], _MENDS), None


def _skip(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return match.end() if match else at


def _mended(chunk: str, mends: Sequence[_Mend]) -> object:
    """The event in ``chunk``, if need be after one of ``mends`` after the other, or ``None``."""
    steps: tuple[_Mend, ...] = (str, *mends)
    for mend in steps:
        chunk = mend(chunk)
        try:
            return _JSON.decode(chunk)
        except (json.JSONDecodeError, RecursionError):
            continue
    return None


def _without_infinities(chunk: str) -> str:
    return _NOT_FINITE.sub(r"\1null", chunk)


def _with_escaped_quotes(chunk: str) -> str:
    if len(chunk) > _LONGEST_MENDED:
        return chunk
    return _VALUE.sub(lambda value: value[1] + _STRAY_QUOTE.sub(r'\\"', value[2]) + value[3], chunk)


_MENDS = (_without_infinities, _with_escaped_quotes)


def _meta(text: str) -> dict[str, Any]:
    """The wanted metadata in what surrounds the events, as far as it can be read."""
    meta = {}
    for key in META_KEYS:
        found = re.search(rf'"{key}"\s*:\s*', text)
        if found:
            try:
                meta[key] = _JSON.raw_decode(text, found.end())[0]
            except (json.JSONDecodeError, RecursionError):
                continue
    return meta


def _event(value: dict[str, Any]) -> Event:
    args = value.get("args")
    return Event(
        ph=_text(value.get("ph")),
        cat=_text(value.get("cat")),
        name=_text(value.get("name")),
        pid=_scalar(value.get("pid")),
        tid=_scalar(value.get("tid")),
        ts=_decimal(value.get("ts")),
        dur=_decimal(value.get("dur")),
        args=_args(args) if isinstance(args, dict) else None,
    )


def _args(value: dict[str, Any]) -> Args:
    wanted = {spec.name: _scalar(value.get(spec.encode_name)) for spec in _ARG_FIELDS}
    return Args(**wanted)


_ARG_FIELDS = msgspec.structs.fields(Args)


def _text(value: object) -> str:
    """``value`` as text that can be written as UTF-8; JSON may escape half a surrogate pair."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


def _scalar(value: object) -> Scalar:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str):
        return _text(value)
    return value if isinstance(value, int) else None


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return None
    try:
        return Decimal(value)
    except InvalidOperation:
        return None
