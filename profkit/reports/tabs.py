"""The tabs of a page: one per recording, and a list of sweeps beside them where there are many."""

from __future__ import annotations

from collections.abc import Sequence

TABS = 24
"""More tabs than so many, of several sweeps, are shown one sweep at a time: three rows hold no more of them."""


def tabs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Each recording's sweep, where it is another than that of the tab before, and its name within."""
    parts = [name.rpartition("/")[::2] for name in names]
    before = [None, *(sweep for sweep, _ in parts)]
    return [(sweep if sweep != last else "", own) for (sweep, own), last in zip(parts, before, strict=False)]


def chosen_by_sweep(names: Sequence[str]) -> bool:
    """Whether a list of sweeps stands beside the tabs, which are then those of one sweep."""
    return len(names) > TABS and len({name.rpartition("/")[0] for name in names}) > 1
