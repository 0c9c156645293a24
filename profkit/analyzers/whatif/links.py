"""Links between GPUs, and what collective algorithms ask of them: a latency per step, and bytes over bandwidth."""

from __future__ import annotations

import math
from dataclasses import dataclass

BASE_US = 6.6
PCIE_HOP_US, NVLINK_HOP_US = 1.0, 0.6
SIMPLE_BASE_US, SIMPLE_PCIE_HOP_US, SIMPLE_NVLINK_HOP_US = 8.4, 5.7, 3.4
"""NCCL's own model of a ring's latency in µs (``src/graph/tuning.cc`` of 2.18 to 2.28: ``baseLat`` and ``hwLat``), for
its protocols LL, which carries small messages, and Simple, which carries large ones."""

SAME = 0.02
"""Bandwidths that differ by less are those of one generation, counted in other ways."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a GPU: bytes per second of one direction, whether it is NVLink, and its latency per collective in ns,
    where that was said."""

    name: str
    bandwidth: float
    nvlink: bool = False
    latency_ns: float | None = None

    def __str__(self) -> str:
        return self.name

    def same_as(self, other: Link) -> bool:
        """Whether there is nothing to tell them apart by."""
        alike = math.isclose(self.bandwidth, other.bandwidth, rel_tol=SAME) and self.nvlink == other.nvlink
        return alike and self.latency_ns is None and other.latency_ns is None


LINKS = {
    link.name: link
    for link in (
        Link("pcie3", 15.754e9),
        Link("pcie4", 31.508e9),
        Link("pcie5", 63.015e9),
        Link("pcie6", 121e9),
        Link("nvlink4", 450e9, nvlink=True),
    )
}
"""16 lanes of PCI Express at 8, 16 and 32 GT/s in 128b/130b coding, and at 64 GT/s in FLITs of which 242 of 256 bytes
carry packets (PCI Express Base Specification 3.0 to 6.0); NVLink 4 of H100 and H200: 18 links of 25 GB/s (NVIDIA H100
architecture whitepaper)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What an all-reduce of m bytes asks of a link: ``steps`` latencies, and ``volume`` times m over its bandwidth.

    ``most_volume`` where less of the bandwidth than that may be reached.
    """

    steps: int
    volume: float
    most_volume: float


ALGORITHMS = ("ring", "tree", "one-shot", "two-shot")


def cost_of(algorithm: str, ranks: int) -> Cost:
    """Ring: reduce-scatter and all-gather around it. Tree: up and down, in two trees that share the volume (NCCL), or
    in one without. One-shot: each rank reads all messages. Two-shot: each reads its share of all, then all results.

    Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH (2005); Sanders, Speck,
    Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan (2009).
    """
    ideal = 2 * (ranks - 1) / ranks
    costs = {
        "ring": Cost(2 * (ranks - 1), ideal, ideal),
        "tree": Cost(2 * math.ceil(math.log2(ranks)), ideal, 2.0),
        "one-shot": Cost(1, ranks - 1, ranks - 1),
        "two-shot": Cost(2, ideal, ideal),
    }
    return costs[algorithm]


def algorithm_in(name: str) -> str | None:
    """The algorithm that a kernel's name tells of, or ``None``."""
    lowered = name.lower().replace("_", "").replace("-", "")
    said = {"ring": "ring", "tree": "tree"} if lowered.startswith("nccl") else CUSTOM
    return next((algorithm for text, algorithm in said.items() if text in lowered), None)


CUSTOM = {
    "1stage": "one-shot",
    "oneshot": "one-shot",
    "2stage": "two-shot",
    "twoshot": "two-shot",
}
"""What vLLM's and SGLang's own all-reduces, and those of symmetric memory, are called."""


def hop_us(link: Link | None) -> float:
    """The latency of one step of a small collective over ``link``, without what each call costs; PCIe if unknown."""
    return NVLINK_HOP_US if link is not None and link.nvlink else PCIE_HOP_US


def latency_ratios(now: Link, then: Link, ranks: int) -> tuple[float, float, float]:
    """Latency of a ring over ``then`` relative to ``now``: lowest, usual and highest; 1 between links of one kind."""
    if now.nvlink == then.nvlink:
        return 1.0, 1.0, 1.0
    steps = 2 * (ranks - 1)
    small = (BASE_US + steps * NVLINK_HOP_US) / (BASE_US + steps * PCIE_HOP_US)
    large = (SIMPLE_BASE_US + steps * SIMPLE_NVLINK_HOP_US) / (SIMPLE_BASE_US + steps * SIMPLE_PCIE_HOP_US)
    return (large, small, 1.0) if then.nvlink else (1.0, 1 / small, 1 / large)
