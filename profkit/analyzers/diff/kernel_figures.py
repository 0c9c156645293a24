"""How often groups of kernels run and how long, per unit and per call, and which of these changes are no noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.traces import F64, Bools

from .noise import Noise, change_of_means
from .result import State

SAME_COUNT = 1e-6
"""Counts per unit that differ by less are equal."""

MOST_OF_IT = 0.5
"""A collective changed because of waiting if that is more than this share of its change."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelFigures:
    """Columns over groups; pairs are of A and B.

    ``time`` and ``count`` are means per unit, ``call`` is time over calls, all steps together; ``wait`` is what of
    ``time`` is waiting in collectives. ``noise`` and ``significant`` speak of ``time``; ``call_change`` is the sign of
    a significant change of ``call``, else 0.
    """

    time: tuple[F64, F64]
    wait: tuple[F64, F64]
    count: tuple[F64, F64]
    call: tuple[F64, F64]
    noise: Noise
    significant: Bools
    call_change: F64

    @classmethod
    def of(
        cls,
        times: tuple[F64, F64],
        counts: tuple[F64, F64],
        tokens: tuple[float, float],
        waits: tuple[F64, F64] | None = None,
    ) -> KernelFigures:
        """From tables of nanoseconds, of calls, and of nanoseconds of waiting, of shape (steps, groups)."""
        noise = change_of_means(*times, tokens)
        waits = waits or (np.zeros_like(times[0]), np.zeros_like(times[1]))
        calls = [_per_call(*tables) for tables in zip(times, counts, strict=True)]
        call_noise = change_of_means(calls[0], calls[1])
        return cls(
            time=_means(times, tokens),
            wait=_means(waits, tokens),
            count=_means(counts, tokens),
            call=(calls[0].mean(axis=0), calls[1].mean(axis=0)),
            noise=noise,
            significant=noise.significant(),
            call_change=np.where(call_noise.significant(), np.sign(call_noise.delta), 0.0),
        )

    def state(self, place: int) -> State:
        """What became of kernels that both sides have, by the sum of their durations per unit.

        Where a changed count explains it, and the time per call did not change the same way, it is that they run more
        or less often; where more than half of it is a change of waiting, it is that they wait more or less.
        """
        if not self.noise.known:
            return "unknown"
        if not self.significant[place]:
            return "same"
        change = float(np.sign(self.noise.delta[place]))
        more = float(self.count[1][place] - self.count[0][place])
        if abs(more) > SAME_COUNT and np.sign(more) == change != self.call_change[place]:
            return "more often" if change > 0 else "less often"
        if (self.wait[1][place] - self.wait[0][place]) * change > MOST_OF_IT * abs(self.noise.delta[place]):
            return "waits more" if change > 0 else "waits less"
        return "slower" if change > 0 else "faster"


def _means(tables: tuple[F64, F64], tokens: tuple[float, float]) -> tuple[F64, F64]:
    return tables[0].mean(axis=0) / tokens[0], tables[1].mean(axis=0) / tokens[1]


def _per_call(times: F64, counts: F64) -> F64:
    """A table whose column means are time over calls, and whose rows vary as that ratio does (linearised)."""
    count = np.maximum(counts.mean(axis=0), np.finfo(np.float64).tiny)
    call = times.mean(axis=0) / count
    table: F64 = call + (times - call * counts) / count
    return table
