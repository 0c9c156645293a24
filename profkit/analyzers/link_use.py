"""How much of a link collectives use, as its hardware counters measured it during their transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from profkit.traces import I64, UNKNOWN, Trace

from .arrays import occurring
from .attribution import Attribution
from .counter_result import LinkUse
from .counters import MOSTLY, Counter, counters_of
from .device_result import CollectiveKind
from .intervals import merge
from .matching import MatchedCollectives
from .vocabulary import PHASES
from .words import rate, share

Link = Literal["pcie", "nvlink"]
Direction = Literal["in", "out"]

COUNTERS: Mapping[str, tuple[Link, Direction]] = {
    "pm_pcie_read_bytes_per_s": ("pcie", "in"),
    "pm_pcie_write_bytes_per_s": ("pcie", "out"),
    "pm_nvlink_rx_bytes_per_s": ("nvlink", "in"),
    "pm_nvlink_tx_bytes_per_s": ("nvlink", "out"),
}
TITLES = {"pcie": "PCIe", "nvlink": "NVLink"}


def link_use(
    attribution: Attribution, matched: MatchedCollectives, device: int, kinds: Sequence[CollectiveKind]
) -> tuple[LinkUse, ...] | None:
    """The use of each link of ``device``, the longest transfers first; ``None`` where the recording cannot tell.

    It cannot without samples of a link, nor where transfer cannot be told from waiting for the last rank.
    """
    found = counters_of(attribution.trace, device)
    links = {name: found[name] for name in COUNTERS if name in found}
    if not links or (len(matched.instances[device].row) and not matched.known):
        return None
    limits = {name: link_limit(attribution.trace, device, COUNTERS[name][0]) for name in links}
    rows = [
        _use(key, (name, counter), transfers, limits[name], [k for k in kinds if (k.kind, k.phase) == key])
        for key, transfers in transfers_of(attribution, matched, device).items()
        for name, counter in links.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.transfer_ns))


def transfers_of(
    attribution: Attribution, matched: MatchedCollectives, device: int
) -> dict[tuple[str, str], tuple[I64, I64]]:
    """Start and end of the transfers of matched collectives, by kind and phase."""
    own = matched.instances[device]
    start = own.start + np.maximum(own.skew, 0)
    kept = np.flatnonzero((own.skew != UNKNOWN) & (own.end > start))
    code = attribution.collective[own.row[kept]].astype(np.int64) * len(PHASES) + attribution.phase[own.row[kept]]
    groups: dict[tuple[str, str], list[I64]] = {}
    for number in occurring(code).tolist():
        kind = attribution.collective_rules[number // len(PHASES)].value
        groups.setdefault((kind, PHASES[number % len(PHASES)]), []).append(kept[code == number])
    rows = {key: np.concatenate(parts) for key, parts in groups.items()}
    return {key: (start[mine], own.end[mine]) for key, mine in rows.items()}


def _use(
    key: tuple[str, str],
    named: tuple[str, Counter],
    transfers: tuple[I64, I64],
    limit: int | None,
    kinds: Sequence[CollectiveKind],
) -> LinkUse:
    name, counter = named
    link, direction = COUNTERS[name]
    start, end = merge(*transfers)
    overlap = counter.overlap(start, end)
    measured = int(overlap.sum())
    enough = counter.suffices(measured)
    moved = counter.total(start, end)
    mean = moved / (measured * 1e-9) if enough else None
    most = _most(counter, overlap, limit) / (measured * 1e-9) if enough else None
    inside = overlap >= MOSTLY * (counter.end - counter.start)
    return LinkUse(
        kind=key[0],
        phase=key[1],
        link=link,
        direction=direction,
        count=len(transfers[0]),
        transfer_ns=int((end - start).sum()),
        measured_ns=measured,
        period_ns=counter.period_ns,
        bytes=round(moved) if enough else None,
        mean=mean,
        mean_most=most,
        peak=float(counter.value[inside].max()) if enough and np.any(inside) else None,
        limit=limit,
        share=mean / limit if mean is not None and limit else None,
        share_most=most / limit if most is not None and limit else None,
        bus_bandwidth=_implied(kinds),
    )


def link_limit(trace: Trace, device: int, link: Link) -> int | None:
    """The limit of a link in bytes per second and direction, where the recording tells it: PCIe's, never NVLink's."""
    return next((d.link_bandwidth for d in trace.devices if d.device == device and link == "pcie"), None)


def _most(counter: Counter, overlap: I64, limit: int | None) -> float:
    """The bytes of all samples that transfers touch, as far as the link's limit lets them pass within the transfers."""
    counted = counter.value * (counter.end - counter.start)
    if limit is not None:
        counted = np.minimum(counted, np.maximum(counter.value, limit) * overlap)
    return float(counted[overlap > 0].sum()) * 1e-9


def _implied(kinds: Sequence[CollectiveKind]) -> float | None:
    """Bus bandwidth over all sizes, weighted by the time of their transfers; ``None`` where a size is not known."""
    weighted = [(kind.bus_bandwidth, kind.transfer_ns) for kind in kinds if kind.transfer_ns]
    if not weighted or any(bandwidth is None for bandwidth, _ in weighted):
        return None
    return sum((b or 0.0) * (t or 0) for b, t in weighted) / sum(t or 0 for _, t in weighted)


def dearest(rows: Sequence[LinkUse]) -> LinkUse | None:
    """Of the collectives whose transfers take longest, the direction that most went over.

    ``None`` where no link is known to carry anything: the bytes then went a way that was not sampled.
    """
    known = [row for row in rows if row.mean]
    return max(known, key=lambda row: (row.transfer_ns, row.mean), default=None)


def in_words(row: LinkUse) -> str:
    """``during verify's all-reduces PCIe reads 9.8 GB/s, 18 % of the link's 55 GB/s, measured``."""
    mean, most = row.mean or 0.0, row.mean_most or 0.0
    verb = {"pcie": ("reads", "writes"), "nvlink": ("receives", "sends")}[row.link][row.direction == "out"]
    rates = rate(mean) if row.resolved else f"{rate(mean)} to {rate(most)}"
    said = f"during {row.phase}'s {plural(row.kind)} {TITLES[row.link]} {verb} {rates}"
    if row.limit:
        shares = share(mean, row.limit) if row.resolved else f"{share(mean, row.limit)} to {share(most, row.limit)}"
        said += f", {shares} of the link's {rate(row.limit)}"
    return f"{said}, measured"


def plural(kind: str) -> str:
    """``all-reduces`` for ``all_reduce``."""
    name = kind.replace("_", "-")
    return f"{name}{'es' if name.endswith(('s', 'ch', 'sh')) else 's'}"
