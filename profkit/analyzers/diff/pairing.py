"""Which recordings of two sweeps are compared with each other: those of the same concurrency."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.traces import UsageError

from .side import Side


def pair_up(a: Sequence[Side], b: Sequence[Side]) -> tuple[list[tuple[Side, Side]], tuple[str, ...]]:
    """Pairs in the order of ``a``, and the names of recordings without a partner.

    Two single recordings are a pair whatever their concurrencies. Raises ``UsageError`` where nothing pairs up.
    """
    if len(a) == len(b) == 1:
        return [(a[0], b[0])], ()
    left = list(b)
    pairs = []
    for side in a:
        same = [other for other in left if other.run.concurrency == side.run.concurrency]
        if same and side.run.concurrency is not None:
            partner = max(same, key=lambda other: other.run.graphs == side.run.graphs)
            left.remove(partner)
            pairs.append((side, partner))
    if not pairs:
        raise UsageError(f"{a[0].path} and {b[0].path}: no concurrency is in both; name one recording of each")
    paired = {id(first) for first, _ in pairs}
    alone = [*(side for side in a if id(side) not in paired), *left]
    return pairs, tuple(side.name for side in alone)
