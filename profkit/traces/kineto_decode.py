"""Decoding of a well-formed Kineto (PyTorch profiler) file into typed events; unwanted fields are never kept."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from .model import Note

Scalar = int | float | str | None


class Args(Struct, gc=False):
    """The wanted arguments of an event."""

    correlation: Scalar = None
    device: Scalar = None
    stream: Scalar = None
    bytes: Scalar = None
    graph_id: Scalar = field(name="graph id", default=None)
    graph_node: Scalar = field(name="graph node id", default=None)
    collective: Scalar = field(name="Collective name", default=None)
    in_count: Scalar = field(name="In msg nelems", default=None)
    out_count: Scalar = field(name="Out msg nelems", default=None)
    dtype: Scalar = None
    group: Scalar = field(name="Process Group Name", default=None)
    group_text: Scalar = field(name="Process Group Description", default=None)


class Event(Struct, gc=False):
    """An event of the Chrome trace format.

    ``ts`` and ``dur`` are microseconds, as decimals: a double holds no nanoseconds of a time since 1970.
    """

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: Args | None = None


_NULL = Raw(b"null")


class _File(Struct):
    events: list[Event] = field(name="traceEvents")
    schema: Raw = field(name="schemaVersion", default=_NULL)
    devices: Raw = field(name="deviceProperties", default=_NULL)
    distributed: Raw = field(name="distributedInfo", default=_NULL)
    base: Raw = field(name="baseTimeNanoseconds", default=_NULL)
    cuda_driver: Raw = field(name="cuda_driver_version", default=_NULL)
    driver: Raw = field(name="driver_version", default=_NULL)


_META = {spec.name: spec.encode_name for spec in msgspec.structs.fields(_File) if spec.name != "events"}
META_KEYS = tuple(_META.values())


@dataclass(frozen=True, slots=True)
class Decoded:
    """The events of a file, the JSON values of the ``META_KEYS`` it has, and what was wrong with it."""

    events: Sequence[Event]
    meta: Mapping[str, Any]
    notes: tuple[Note, ...] = ()


def looks_like_kineto(head: bytes) -> bool:
    """Whether a file whose (decompressed) first bytes are ``head`` may be a Chrome trace: a JSON object or array.

    Lenient: metadata of any length may come before the events.
    """
    return re.match(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*(?:[\]{]|$)|\{\s*(?:["}]|$))', head) is not None


def decode_strict(data: bytes) -> Decoded | None:
    """The content of a well-formed file; ``None`` where it is not, or has no events where a trace has them."""
    bare = data.removeprefix(codecs.BOM_UTF8)
    try:
        if bare[:64].lstrip().startswith(b"["):
            return Decoded(msgspec.json.decode(bare, type=list[Event]), {})
        file = msgspec.json.decode(bare, type=_File)
        return Decoded(file.events, {key: msgspec.json.decode(getattr(file, name)) for name, key in _META.items()})
    except (msgspec.MsgspecError, RecursionError):
        return None
