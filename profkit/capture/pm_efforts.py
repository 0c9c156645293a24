"""What is sampled of each GPU and how often: less where its buffer held no window, fewer counters of a silent one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import pm_sampler

LINKS = ("pm_pcie_read_bytes_per_s", "pm_pcie_write_bytes_per_s")
ACTIVITY = ("pm_sm_active_percent", "pm_tensor_active_percent", "pm_dram_read_percent", "pm_dram_write_percent")
EVERYTHING = tuple(pm_sampler.COUNTERS)


@dataclass(frozen=True, slots=True)
class Effort:
    """Which counters are sampled, and how many nanoseconds apart."""

    counters: tuple[str, ...]
    interval_ns: int


EFFORTS = (
    Effort(EVERYTHING, 50_000),
    Effort((*LINKS, *ACTIVITY), 50_000),
    Effort(EVERYTHING, 500_000),
    Effort((*LINKS, *ACTIVITY), 200_000),
    Effort(LINKS, 100_000),
)
"""What is tried, in this order, until the GPU's buffer holds a window."""

FEWER = (EVERYTHING, (*LINKS, *ACTIVITY), LINKS, ())
"""What a GPU is asked for at most, in this order, until it gives samples: one counter can keep all others silent."""

SURE = 4
"""A GPU that was sampled for more than so many intervals has samples: the first one ends within two."""


class Efforts:
    """What is asked of ``gpus`` next; ``unlinked`` are those without NVLink, which are not asked for its counters.

    What a GPU's buffer holds depends on the server's windows. What a GPU has does not, but that it lacks a counter is
    shown only where it first gave samples when asked for fewer: until then, each server asks for everything again.
    """

    def __init__(self, gpus: Sequence[int], unlinked: Collection[int] = ()) -> None:
        self._first = {gpu: int(gpu in unlinked) for gpu in gpus}
        self._heard_at: dict[int, int] = {}
        self.begin_anew()

    def begin_anew(self) -> None:
        """A server starts: what another one's windows were too much for need not be too much for its own."""
        self._eased = 0
        self._level = self._first | self._heard_at

    @property
    def next(self) -> Effort | None:
        """The first that is left and names no counter that no GPU is asked for; ``None`` where there is none."""
        wanted = {counter for level in self._level.values() for counter in FEWER[level]}
        return next((effort for effort in EFFORTS[self._eased :] if wanted.issuperset(effort.counters)), None)

    def counters(self) -> dict[int, tuple[str, ...]]:
        """What each GPU is asked for next; one that is asked for nothing is left out."""
        named = self.next.counters if self.next else ()
        asked = {gpu: tuple(one for one in named if one in FEWER[level]) for gpu, level in self._level.items()}
        return {gpu: counters for gpu, counters in asked.items() if counters}

    def ease(self) -> None:
        """Ask for less until the next server starts."""
        if self.next:
            self._eased = EFFORTS.index(self.next) + 1

    def learn(self, heard: Iterable[int], silent: Iterable[int]) -> list[str]:
        """Ask each GPU of ``silent``, which gave no sample, for fewer counters than it was asked for; told in words.

        What those of ``heard`` were asked for when they first gave samples is remembered.
        """
        self._heard_at = {gpu: self._level[gpu] for gpu in heard} | self._heard_at
        told: dict[tuple[int, int], list[int]] = {}
        for gpu in silent:
            before = len(self.counters()[gpu])
            self._level[gpu] = next(level for level, counters in enumerate(FEWER) if len(counters) < before)
            told.setdefault((before, len(self.counters().get(gpu, ()))), []).append(gpu)
        return [_in_words(gpus, before, left) for (before, left), gpus in told.items()]


def silent_gpus(found: Mapping[str, Any], interval_ns: int) -> list[int]:
    """The GPUs in a sampler's file that gave no sample, though they were sampled long enough for some."""
    gpus, (_, began, ended, _) = found["devices"].tolist(), found["brackets"].T.tolist()
    lasted = dict(zip(gpus, np.subtract(ended, began).tolist(), strict=True))
    heard = set(found["device"].tolist())
    return [gpu for gpu in gpus if gpu not in heard and lasted[gpu] > SURE * interval_ns]


def _in_words(gpus: Sequence[int], before: int, left: int) -> str:
    """One line: who was silent, asked for how much, and what follows."""
    who, they_are = ("GPU", "it is") if len(gpus) == 1 else ("GPUs", "they are")
    named = ", ".join(map(str, gpus))
    then = f"asked for {left}" if left else "not sampled"
    silence = f"{who} {named} gave no sample in a window ({before} counters asked for)"
    return f"{silence}: in this server's next windows {they_are} {then}"
