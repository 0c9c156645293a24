"""Levers of the link between GPUs: its bandwidth and latency, and the algorithm of collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np

from profkit.traces import F64, Bools

from ..replay.transform import scaled_ops
from ..vocabulary import CLASS, PHASES
from ..words import counted, duration, listed
from .case import Case, alike
from .changes import Change, RefusedError, Version
from .links import BASE_US, Link, algorithm_in, cost_of, hop_us, latency_ratios
from .request import Request
from .transfers import Factors, Transfers, transfers_of

OTHER_KIND = 2.0
"""How far the used share of a bandwidth may differ between PCI Express and NVLink: an allowance, not a measurement."""


def link(case: Case, request: Request, cases: Sequence[Case]) -> Change:
    """Another link: the part of a transfer that goes with bytes by bandwidth, the other by latency."""
    _refuse_without_collectives(case)
    now, then = case.link, request.link
    if now is None:
        raise RefusedError("the recording does not say which link its collectives used")
    if then is None or then.same_as(now):
        return _as_recorded("its link is of this kind already")
    series = alike(case, cases)
    factors = _over(case, now, then, _in_blocks(case, request, series)).factors
    said = (
        f"bytes go {then.bandwidth / now.bandwidth:.2g} times as fast as over the recorded link ({now}), in proportion "
        "to the bandwidths"
    )
    if (spread := _spread(now, then)) > 1:
        said += f", or {spread:g} times faster or slower than that: a link of another kind may be used better or worse"
    return _scaled(case, case.collectives, factors, (_split(series), said, _latency_said(case, now, then)))


def collective(case: Case, request: Request, cases: Sequence[Case]) -> Change:
    """Another algorithm of all-reduces, by what it asks of a link; other collectives stay."""
    _refuse_without_collectives(case)
    reduces = case.collectives & _all_reduces(case)
    now, then = _algorithm(case, reduces), request.collective or "ring"
    if now is None:
        raise RefusedError("no name of an all-reduce kernel says which algorithm it uses")
    if now == then:
        return _as_recorded(f"its all-reduces are {then} already")
    series = alike(case, cases)
    before, after, hop = cost_of(now, case.ranks), cost_of(then, case.ranks), hop_us(request.link or case.link)
    steps = after.steps / before.steps
    small = (BASE_US + after.steps * hop) / (BASE_US + before.steps * hop)
    volumes = after.volume / before.most_volume, after.volume / before.volume, after.most_volume / before.volume
    transfers = _in_blocks(case, request, series)
    if case.link and request.link and not request.link.same_as(case.link):
        transfers = _over(case, case.link, request.link, transfers).changed
    factors = transfers.scaled((min(steps, 1.0), small, max(steps, 1.0)), volumes).factors
    said = [
        f"a model, not measured: from {now} to {then} with {case.ranks} ranks, an all-reduce has a latency for each of "
        f"{counted(after.steps, 'step')} instead of {before.steps}, and moves {_times(after.volume / before.volume)}as "
        "many bytes",
        _split(series),
    ]
    if case.ranks == 2:
        said.append("with two ranks all algorithms move the same bytes, so that little can change")
    return _scaled(case, reduces, factors, tuple(said))


def _times(ratio: float) -> str:
    return "" if ratio == 1 else f"{ratio:.2g} times "


def _as_recorded(said: str) -> Change:
    return Change(Version(), Version(), Version(), (said,))


def _refuse_without_collectives(case: Case) -> None:
    every = (case.model.work.kernel_class == CLASS["collective"]) & (case.model.work.step >= 0)
    if case.ranks < 2 or not every.any():
        raise RefusedError("no collectives between ranks are recorded")
    if 2 * case.collectives.sum() < every.sum():
        raise RefusedError("transfer cannot be told from waiting in most of its collectives")


def _all_reduces(case: Case) -> Bools:
    attribution = case.attribution
    kinds = [rule.value for rule in attribution.collective_rules]
    wanted = np.array([kind == "all_reduce" for kind in kinds] + [False])
    found: Bools = wanted[attribution.collective[case.model.work.row]]
    return found


def _algorithm(case: Case, reduces: Bools) -> str | None:
    """The algorithm that most all-reduces use by their names, or ``None`` where names do not say."""
    trace = case.attribution.trace
    names = Counter(trace.ops.name[case.model.work.row[reduces]].tolist())
    return next((algorithm_in(trace.strings[name]) for name, _ in names.most_common(1)), None)


def _in_blocks(case: Case, request: Request, series: Sequence[Case]) -> Transfers:
    """Latency and bytes in each transfer, with blocks of the size that is asked for as well."""
    transfers, block = transfers_of(case, series), case.attribution.trace.run.block_size
    if not case.speculative or not request.block_size or not block:
        return transfers
    growth = request.block_size / block
    return transfers.scaled((1.0, 1.0, 1.0), (growth, growth, growth)).changed


def _over(case: Case, now: Link, then: Link, transfers: Transfers) -> Transfers:
    """What ``transfers`` take over another link."""
    faster, spread = now.bandwidth / then.bandwidth, _spread(now, then)
    size = faster / spread, faster, faster * spread
    if then.latency_ns is None:
        return transfers.scaled(latency_ratios(now, then, case.ranks), size)
    return transfers.with_latency(_latency_part(case, then.latency_ns), size)


def _spread(now: Link, then: Link) -> float:
    return OTHER_KIND if now.nvlink != then.nvlink else 1.0


def _latency_said(case: Case, now: Link, then: Link) -> str:
    if then.latency_ns is not None:
        return f"each collective has a latency of {duration(then.latency_ns)}"
    low, usual, high = latency_ratios(now, then, case.ranks)
    if low == high:
        return "latency stays: the link is of the same kind"
    return f"latency is {usual:.2f} times as long ({low:.2f} to {high:.2f}: NCCL's own figures)"


def _latency_part(case: Case, latency_ns: float) -> F64:
    """By phase: the latency of all collectives of a step, relative to their transfer."""
    work, mine = case.model.work, case.collectives
    count = np.bincount(work.phase[mine], minlength=len(PHASES))
    transfer = np.bincount(work.phase[mine], work.duration[mine].astype(np.float64), len(PHASES))
    with np.errstate(divide="ignore", invalid="ignore"):
        part: F64 = np.where(transfer > 0, count * latency_ns / transfer, 0)
    return part


def _scaled(case: Case, which: Bools, factors: Factors, said: tuple[str, ...]) -> Change:
    phase = case.model.work.phase
    low, usual, high = (Version(partial(scaled_ops, factor=np.where(which, factor[phase], 1.0))) for factor in factors)
    return Change(low, usual, high, said)


def _split(series: Sequence[Case]) -> str:
    if len(series) < 2:
        return "one concurrency only: a transfer may be all latency or all bytes, and is usually taken for half of each"
    seen = listed([f"{one.tokens:,}" for one in series])
    return f"latency is the part of a transfer that does not grow with tokens, from recordings at {seen} tokens a step"
