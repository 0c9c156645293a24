"""Levers of speculation: accept length, block size, what drafting costs, drafting beside verifying."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from profkit.traces import F64, Bools, StepTimes

from ..arrays import distinct
from ..replay.model import Model, Work
from ..replay.transform import scaled_calls, scaled_ops, scaled_pauses, scaled_work
from ..vocabulary import CLASS, PHASE
from ..words import duration, listed
from .case import Case, alike
from .changes import Change, RefusedError, Version
from .request import Request
from .result import Figure
from .tokens import beyond, factors_at, refuse_far

PLAIN = "it is plain decoding, which does not draft"
OVERLAPPED = ("draft", "verify")
NOT_TIMED = "other contexts are met, by which the step differs by an unknown amount"
AS_NOW = "the accept length is the recording's own"
GOES_WITH_TOKENS = "accepting more or fewer tokens leaves the step as it is; at most accept and KV append go with them"


def accept_length(case: Case, request: Request, cases: Sequence[Case]) -> Change:
    """Another accept length: more tokens a step, and hardly another step."""
    _refuse_plain(case)
    wanted, now = request.accept_len or 1.0, case.cycle.accept_len
    block = request.block_size or case.attribution.trace.run.block_size
    if block is not None and wanted > block:
        raise RefusedError(f"a block of {block} gives no more than {block} tokens a step")
    exactly = Figure(wanted, wanted, wanted)
    if wanted == now:
        return Change(Version(), Version(), Version(), (AS_NOW,), exactly)
    spread, said = case.spread, (GOES_WITH_TOKENS, _contexts(case))
    unknown = "" if _timed(case) else NOT_TIMED
    if now is None:
        return Change(Version(), Version(), Version(), said, exactly, spread=spread, not_in_bounds=unknown)
    appended = _in_phases(case.model, "accept", "kv_append")
    other = Version(partial(scaled_work, which=appended, factor=wanted / now))
    low, high = (Version(), other) if wanted > now else (other, Version())
    return Change(low, Version(), high, said, exactly, spread=spread, not_in_bounds=unknown)


def block_size(case: Case, request: Request, cases: Sequence[Case]) -> Change:
    """Another block size: drafter and target compute more or fewer tokens."""
    _refuse_plain(case)
    block, wanted = case.attribution.trace.run.block_size, request.block_size or 1
    if not block or not case.tokens:
        raise RefusedError(
            f"the {'batch' if block else 'block'} size is not known, so neither are the tokens of a step"
        )
    series = alike(case, cases)
    wanted_tokens = case.tokens / block * wanted
    refuse_far(wanted_tokens, series)
    found = factors_at(wanted_tokens, case, series)
    low, usual, high = (
        Version(partial(scaled_ops, factor=_per_op(case.model, table)))
        for table in (found.low, found.usual, found.high)
    )
    given = request.accept_len
    accepted = Figure(given, given, given) if given else _accepted(case.cycle.accept_len, block, wanted)
    said = [_how_many(case, series), "attention usually does not change: it goes by requests and their context"]
    if not given:
        said.append("the accept length stays, but for the block's end: give --accept-len to say otherwise")
    return Change(low, usual, high, tuple(said), accepted, beyond=beyond(wanted_tokens, series))


def drafter(case: Case, request: Request, cases: Sequence[Case]) -> Change:
    """A drafter that costs ``request.drafter`` times as much: its ops, and the pauses between them."""
    _refuse_plain(case)
    model, factor = case.model, request.drafter if request.drafter is not None else 1.0
    drafts = _in_phases(model, "draft")

    def on_gpu(changed: Model) -> Model:
        return scaled_pauses(scaled_work(changed, drafts, factor), drafts, factor)

    def on_host(changed: Model) -> Model:
        pace = np.ones(len(changed.calls))
        pace[changed.work.call[drafts & (changed.work.call >= 0)]] = factor
        return scaled_calls(on_gpu(changed), pace)

    low, high = (on_host, on_gpu) if factor <= 1 else (on_gpu, on_host)
    said = (
        "the drafter's ops and the pauses between them change alike; at one bound the host's time to launch them too"
        if factor
        else "the drafter's ops and the pauses between them are gone; at the lower bound the host's time for them too"
    )
    return Change(Version(low), Version(on_gpu), Version(high), (said,))


def overlap(case: Case, request: Request, cases: Sequence[Case]) -> Change:
    """The next block drafted while this one is verified, from tokens that are not accepted yet: a bound."""
    _refuse_plain(case)
    said = (
        "a bound, no prediction: the shorter of draft and verify, as they are with all other changes, is hidden behind "
        "the other one",
        "for the figure between the bounds kernels do not share SMs, so only collectives and pauses are hidden; the "
        "upper bound is no gain; a block drafted from tokens that are then rejected is lost, which is not counted",
    )

    def floor(changed: Model) -> int:
        return max(computing_ns(changed), longer_phase_ns(changed))

    return Change(Version(_overlapped, longer_phase_ns), Version(_overlapped, floor), Version(), said, bound=True)


def _overlapped(model: Model) -> Model:
    """The shorter of draft and verify takes no time, whichever that is in a step; the longer one remains."""
    work, steps = model.work, int(model.work.step.max(initial=-1)) + 1
    draft, verify = (_per_step(work, _in_phases(model, name), steps).max(axis=0) for name in OVERLAPPED)
    drafts_hidden = np.append(draft < verify, False)[work.step]
    hidden = np.where(drafts_hidden, *(_in_phases(model, name) for name in OVERLAPPED))
    return scaled_pauses(scaled_work(model, hidden, 0), hidden, 0)


def longer_phase_ns(model: Model) -> int:
    """The time of a step's ops, of draft and verify the longer one only, on the busiest stream of all, in ns."""
    work, steps = model.work, int(model.work.step.max(initial=-1)) + 1
    draft, verify = (_per_step(work, _in_phases(model, name), steps) for name in OVERLAPPED)
    remains = _per_step(work, work.step >= 0, steps) - np.minimum(draft, verify)
    return int(np.median(remains, axis=1).max(initial=0))


def _per_step(work: Work, which: Bools, steps: int) -> F64:
    """How long the ops ``which`` run, by stream and step, in ns; shape (streams, steps)."""
    streams = distinct(work.lane)
    place = np.searchsorted(streams, work.lane[which]) * steps + work.step[which]
    found: F64 = np.bincount(place, work.duration[which].astype(np.float64), len(streams) * steps).astype(np.float64)
    return found.reshape(len(streams), steps)


def computing_ns(model: Model) -> int:
    """The time of all kernels that are no collectives, per step of the busiest device, in ns."""
    work = model.work
    mine = (work.step >= 0) & (work.kernel_class != CLASS["collective"])
    devices, steps = distinct(work.device[mine]), int(work.step.max(initial=-1)) + 1
    place = np.searchsorted(devices, work.device[mine]) * steps + work.step[mine]
    table = np.bincount(place, work.duration[mine].astype(np.float64), len(devices) * steps)
    return int(np.median(table.reshape(len(devices), steps), axis=1).max(initial=0))


def _refuse_plain(case: Case) -> None:
    if not case.speculative:
        raise RefusedError(PLAIN)


def _in_phases(model: Model, *names: str) -> Bools:
    found: Bools = np.isin(model.work.phase, [PHASE[name] for name in names]) & (model.work.step >= 0)
    return found


def _timed(case: Case) -> StepTimes | None:
    timed = case.attribution.trace.run.step_times
    return timed if timed is not None and timed.median_ns else None


def _contexts(case: Case) -> str:
    timed = _timed(case)
    met = "contexts then grow faster or slower, so that a recording meets other ones"
    if timed is None:
        return f"{met}: by how much the step differs for that is not known, and not in the bounds"
    low, middle, high = (duration(ns) for ns in (timed.low_ns, timed.median_ns, timed.high_ns))
    return (
        f"{met}: the bounds are wider by as much as the middle 80 % of the run's steps without a recorder "
        f"({low} to {high}) differ from their median ({middle})"
    )


def _per_op(model: Model, table: F64) -> F64:
    work = model.work
    return np.where(work.step >= 0, table[work.phase, work.kernel_class], 1.0)


def _accepted(now: float | None, block: int, wanted: int) -> Figure | None:
    """The accept length in another block, if drafts are as good.

    Capped at the block; at the other bound, drafts are accepted to the end or not at all, so that what lies beyond the
    first token goes with the block.
    """
    if now is None:
        return None
    capped = min(now, float(wanted))
    extreme = 1 + (now - 1) * (wanted - 1) / (block - 1) if block > 1 else now
    return Figure(min(capped, extreme), capped, max(capped, extreme))


def _how_many(case: Case, series: Sequence[Case]) -> str:
    if len(series) < 2:
        return "one concurrency only: from no change to proportional to tokens, and usually in the middle"
    seen = listed([f"{one.tokens:,}" for one in series])
    return f"each class of kernels takes what it takes at so many tokens, from recordings at {seen} tokens a step"
