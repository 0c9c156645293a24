"""Sizes and bandwidths of collectives, by the definitions of NCCL's tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit import Recording, analyze
from profkit.analyzers.device_result import CollectiveKind
from profkit.traces import Device
from tests.builders import TraceBuilder

SIZE = 8_000
"""Bytes per rank."""

TRANSFER = 100
"""Nanoseconds: 8,000 bytes in them are 80 GB/s."""


def kind_of(name: str, ranks: int, size: int = SIZE) -> CollectiveKind:
    """Three steps with one collective each; the last rank enters 20 ns behind the others."""
    builder = TraceBuilder()
    for rank in range(ranks):
        builder.rank(rank)
        for start in (0, 1_000, 2_000):
            late = 20 if rank == ranks - 1 else 0
            builder.range(start, start + 90, "step:decode bs=1").range(start, start + 90, "target")
            builder.collective_call(start + 5, start + 15, "ncclAllReduce", "tp", size)
            builder.launch(start + 8, start + 9, name, start + 100 + late, start + 120 + TRANSFER)
    trace = replace(builder.trace(), devices=(Device(0, link_bandwidth=100 * 10**9), Device(1, link_bandwidth=10**9)))
    (kind,) = analyze([Recording("sized", "", trace)])[0].traces[0].devices["0"].collectives.kinds
    return kind


@pytest.mark.parametrize(
    ("name", "ranks", "algorithm", "bus"),
    [
        # All-reduce: size / time; each byte goes 2 (n - 1) / n times over a link.
        ("all_reduce", 2, 80e9, 80e9),
        ("all_reduce", 4, 80e9, 120e9),
        # All-gather: n times the size arrives; (n - 1) / n of it over a link.
        ("all_gather", 2, 160e9, 80e9),
        ("all_gather", 4, 320e9, 240e9),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", 4, 80e9, 60e9),
    ],
)
def test_bandwidth(name: str, ranks: int, algorithm: float, bus: float) -> None:
    kind = kind_of(name, ranks)
    assert (kind.bytes, kind.count, kind.phase) == (SIZE, 3, "decode")
    assert (kind.sum_ns, kind.skew_ns, kind.transfer_ns, kind.transfer_ns_median) == (360, 60, 300, 100)
    assert kind.algorithm_bandwidth == pytest.approx(algorithm)
    assert kind.bus_bandwidth == pytest.approx(bus)
    assert kind.link_share == pytest.approx(bus / 100e9)


def test_unknown_size() -> None:
    kind = kind_of("all_reduce", 2, size=-1)
    assert (kind.bytes, kind.algorithm_bandwidth, kind.bus_bandwidth, kind.link_share) == (None,) * 4
    assert kind.transfer_ns_median == 100


def test_one_rank_has_no_transfer() -> None:
    kind = kind_of("all_reduce", 1)
    assert (kind.skew_ns, kind.transfer_ns, kind.bus_bandwidth) == (None, None, None)
