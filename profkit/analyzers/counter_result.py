"""What hardware counters say of a device: the use of its links during collectives, and how busy its units were."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

RESOLVED = 1.2
"""By how much the highest possible rate may exceed the mean for the mean to be told alone."""


class CounterSampling(Struct, frozen=True):
    """How far apart the hardware counters of a device were sampled.

    ``period_ns`` is the usual interval of its samples, ``asked_ns`` the one that capture asked for (``None`` where the
    recording does not tell). ``covered_share`` of the time from the device's first op to its last one lies in samples.
    They were moved back by ``moved_ns``, to where links carry what collectives transfer; ``clock_error_ns`` is how
    exactly capture knew their times where the GPU's clock was not UTC.
    """

    period_ns: int
    asked_ns: int | None
    covered_share: float = 1.0
    moved_ns: int = 0
    clock_error_ns: int | None = None


class LinkUse(Struct, frozen=True):
    """Bytes over one link in one direction during the transfers of one kind of collective in one phase.

    ``count`` transfers take ``transfer_ns`` together, of which samples cover ``measured_ns``; ``bytes`` is the
    counter's integral over that, and ``mean`` the rate. A sample is a mean over ``period_ns``: what it counts beside a
    shorter transfer cannot be told from what it counts within, so ``mean_most`` is the rate if all bytes of the samples
    that a transfer touches were its own, as far as the link allows. ``peak`` is the highest sample that lies at least
    half in transfers. ``limit`` is the link's, ``share`` the mean over it; ``bus_bandwidth`` is what message sizes
    imply. Rates are bytes per second; with fewer than three samples the measured figures are ``None``.
    """

    kind: str
    phase: str
    link: Literal["pcie", "nvlink"]
    direction: Literal["in", "out"]
    count: int
    transfer_ns: int
    measured_ns: int
    period_ns: int
    bytes: int | None
    mean: float | None
    mean_most: float | None
    peak: float | None
    limit: int | None
    share: float | None
    share_most: float | None
    bus_bandwidth: float | None

    @property
    def resolved(self) -> bool:
        """Whether the mean can be told alone: what else it may be is hardly more."""
        return self.mean is not None and self.mean_most is not None and self.mean_most <= RESOLVED * self.mean


class PhaseActivity(Struct, frozen=True):
    """Means of hardware counters while the GPU is busy in one phase; ``None`` for what was not sampled enough.

    They are taken over the samples at least half of whose busy time is the phase's, which are ``samples``; what a
    sample counts is taken to be of its busy time, since an idle GPU counts nothing. ``busy_ns`` is all busy time of the
    phase. Percentages are of the time that an SM, or its tensor pipe, is active; ``dram_bytes_per_s`` is read and
    written, ``dram_share`` that over the GPU's bandwidth.
    """

    phase: str
    busy_ns: int
    samples: int
    sm_percent: float | None
    tensor_percent: float | None
    dram_bytes_per_s: float | None
    dram_share: float | None

    @property
    def told(self) -> bool:
        """Whether anything is known of the phase."""
        known = (self.sm_percent, self.tensor_percent, self.dram_share, self.dram_bytes_per_s)
        return any(value is not None for value in known)
