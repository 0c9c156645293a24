"""Which recordings of two sweeps are compared with each other: those of the same concurrency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from profkit.analyzers.analysis import Recording
from profkit.traces import Run, UsageError

from .side import Side

T = TypeVar("T", bound=Side | Recording)


def pair_up(a: Sequence[Side], b: Sequence[Side]) -> tuple[list[tuple[Side, Side]], tuple[str, ...]]:
    """Pairs in the order of ``a``, and the names of recordings without a partner.

    Two single recordings are a pair whatever their concurrencies. Raises ``UsageError`` where nothing pairs up.
    """
    return _pairs(a, b, lambda side: side.run)


def pair_recordings(
    a: Sequence[Recording], b: Sequence[Recording]
) -> tuple[list[tuple[Recording, Recording]], tuple[str, ...]]:
    """The same of recordings that are not attributed yet."""
    return _pairs(a, b, lambda recording: recording.trace.run)


def _pairs(a: Sequence[T], b: Sequence[T], run_of: Callable[[T], Run]) -> tuple[list[tuple[T, T]], tuple[str, ...]]:
    if len(a) == len(b) == 1:
        return [(a[0], b[0])], ()
    left = list(b)
    pairs = []
    for one in a:
        run = run_of(one)
        same = [other for other in left if run_of(other).concurrency == run.concurrency]
        if same and run.concurrency is not None:
            partner = max(same, key=lambda other: run_of(other).graphs == run.graphs)
            left.remove(partner)
            pairs.append((one, partner))
    if not pairs:
        raise UsageError(f"{a[0].path} and {b[0].path}: no concurrency is in both; name one recording of each")
    paired = {id(first) for first, _ in pairs}
    alone = [*(one for one in a if id(one) not in paired), *left]
    return pairs, tuple(one.name for one in alone)
