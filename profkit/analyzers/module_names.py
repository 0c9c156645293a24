"""Names of modules: the full name of each call, and a name split into layer and kind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from profkit.traces import I32, UNKNOWN, ModuleCalls
from profkit.traces.ranges import nest

ANY_LAYER = "*"


@dataclass(frozen=True, slots=True)
class ModuleName:
    """A name such as ``model.layers.12.mlp.gate``: layer 12 of the stack ``model.layers``, kind ``mlp.gate``.

    ``layer`` is ``None`` outside of layers, where the whole name is the kind; the kind of a layer's own work is empty.
    """

    layer: int | None
    kind: str
    stack: str = ""

    @classmethod
    @cache
    def of(cls, text: str) -> ModuleName:
        """``text`` split at its first number."""
        parts = text.split(".")
        number = next((place for place, part in enumerate(parts) if part.isdigit()), None)
        if number is None:
            return cls(None, text)
        return cls(int(parts[number]), ".".join(parts[number + 1 :]), ".".join(parts[:number]))


def frames_of(text: str) -> tuple[str, ...]:
    """The levels of a name in a flame graph: layers are one, whatever their number.

    ``model.layers.12.mlp.gate`` gives ``layers.*``, ``mlp``, ``gate``.
    """
    frames: list[str] = []
    for part in text.removeprefix("model.").split("."):
        if part.isdigit() and frames:
            frames[-1] += f".{ANY_LAYER}"
        else:
            frames.append(part)
    return tuple(frames)


def full_names(calls: ModuleCalls, strings: tuple[str, ...]) -> tuple[tuple[str, ...], I32]:
    """The distinct full names, and which of them each call has.

    A module that layers share (a rotary embedding) goes by the name that it has in the first of them: its calls get
    that of the caller instead.
    """
    order, _, parent = nest(calls.start, calls.end, calls.pid, calls.tid)
    known: dict[str, int] = {}
    place = np.full(len(calls), UNKNOWN, np.int32)
    full = [""] * len(calls)
    for row, (call, above) in enumerate(zip(order.tolist(), parent.tolist(), strict=True)):
        full[row] = _full_name(strings[calls.name[call]], full[above] if above >= 0 else "")
        place[call] = known.setdefault(full[row], len(known))
    return tuple(known), place


@cache
def _full_name(own: str, caller: str) -> str:
    called, calling = ModuleName.of(own), ModuleName.of(caller)
    if None in (called.layer, calling.layer) or (called.stack, called.layer) == (calling.stack, calling.layer):
        return own
    return f"{caller}.{own.rpartition('.')[2]}"
