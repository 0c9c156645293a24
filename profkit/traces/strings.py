"""The string table that a reader fills."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from .model import I32

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """``text`` for a terminal: what would steer it (escape sequences, changes of direction) is spelled out."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class StringTable:
    """Gives each distinct string one id, in order of first use."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def id(self, text: str) -> int:
        """The id of ``text``; what follows a NUL is dropped, since recorders join whole environments with it."""
        return self._ids.setdefault(text.split("\0", 1)[0], len(self._ids))

    def ids(self, texts: Iterable[str]) -> I32:
        """The ids of ``texts``."""
        return np.fromiter((self.id(text) for text in texts), np.int32)

    def freeze(self) -> tuple[str, ...]:
        """All strings, by id."""
        return tuple(self._ids)
