"""May two recordings be compared? What differs beyond what is asked about, and what forbids an answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from profkit.analyzers.cycle import device_steps
from profkit.analyzers.ranks import lost_steps
from profkit.analyzers.words import listed, tokens
from profkit.traces import Trace

from .noise import MIN_STEPS
from .result import Comparable, Per
from .side import Side

ALIKE = 0.01
"""Accept lengths that differ by less than this share are the same."""

SLOWDOWN = 0.05
"""Recorders that slow their runs down by shares further apart than this cannot be compared without a warning."""

MOST_SETTINGS = 4
LOSSES = ("dropped_records", "truncated", "bad_times")


def comparability(a: Side, b: Side, per: Per) -> Comparable:
    """The verdict and its reasons, those that forbid a comparison first."""
    forbidding = tuple(_forbidden(a, b, per))
    if forbidding:
        return Comparable("no", forbidding)
    identical = fingerprint(a.attribution.trace) == fingerprint(b.attribution.trace)
    reasons: tuple[str, ...] = ("A and B are the same recording",) if identical else ()
    reasons += (*_run_differs(a, b), *_tokens_differ(a, b, per), *_recording_differs(a, b))
    reasons += tuple(text for letter, side in (("A", a), ("B", b)) for text in _doubts(letter, side))
    return Comparable("warn" if reasons else "ok", reasons, identical)


def fingerprint(trace: Trace) -> str:
    """A hash of the GPU activities: the same for one recording, whatever format it was read from."""
    ops = trace.ops
    used = np.unique(ops.name)
    texts = [trace.strings[number] if number >= 0 else "" for number in used.tolist()]
    rank = np.argsort(np.argsort(np.array(texts))) if texts else np.empty(0, np.int64)
    name = rank[np.searchsorted(used, ops.name)]
    begin = ops.start.min(initial=np.iinfo(np.int64).max)
    columns = np.stack([ops.start - begin, ops.end - begin, ops.device, ops.stream, ops.kind, name]).astype(np.int64)
    columns = columns[:, np.lexsort(columns[::-1])]
    return hashlib.sha256("\0".join(sorted(texts)).encode() + columns.tobytes()).hexdigest()


def _forbidden(a: Side, b: Side, per: Per) -> Iterator[str]:
    for letter, side in (("A", a), ("B", b)):
        if not len(side.attribution.trace.ops):
            yield f"{letter} holds no GPU activity"
        elif side.without_nodes:
            yield f"in {letter}, {side.without_nodes}: record with --cuda-graph-trace=node"
        elif lost_steps(side.attribution):
            yield f"{letter} lost the GPU records of whole decode steps: record it again"
    if bool(a.steps) != bool(b.steps):
        yield f"{'B' if a.steps else 'A'} has no decode steps: annotate its ranges, or name them with --rules"
    if per == "token":
        for letter, side in (("A", a), ("B", b)):
            if side.tokens is None:
                yield f"how many tokens a step of {letter} yields is unknown: compare sweeps, or give --accept-len"


def _run_differs(a: Side, b: Side) -> Iterator[str]:
    """What is known of the two runs and not the same."""
    yield from _unlike("GPU", _gpus(a), _gpus(b))
    yield from _unlike("number of ranks", len(a.devices()), len(b.devices()))
    yield from _unlike("driver", a.attribution.trace.source.driver, b.attribution.trace.source.driver)
    yield from _unlike("engine", a.run.engine, b.run.engine)
    yield from _unlike("graph mode", _graph_mode(a), _graph_mode(b))
    yield from _unlike("batch size", a.cycle.batch_size, b.cycle.batch_size)
    for name in sorted(set(a.context.versions) & set(b.context.versions) - {"driver", "nsys"}):
        yield from _unlike(f"version of {name}", a.context.versions[name], b.context.versions[name])
    settings = list(_settings(a.context.settings, b.context.settings))
    yield from settings[:MOST_SETTINGS]
    if len(settings) > MOST_SETTINGS:
        yield f"{len(settings) - MOST_SETTINGS} more settings differ"


def _unlike(what: str, a: object, b: object) -> Iterator[str]:
    """A sentence where both are known and differ."""
    if a not in (None, "") and b not in (None, "") and a != b:
        yield f"{what}: {a} in A, {b} in B"


def _settings(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[str]:
    if a and b:
        for name in sorted(set(a) | set(b)):
            yield from _unlike(name, a.get(name, "not set"), b.get(name, "not set"))


def _gpus(side: Side) -> str:
    used = set(side.devices())
    return listed(sorted({d.name for d in side.attribution.trace.devices if d.device in used and d.name}) or [""])


def _graph_mode(side: Side) -> str | None:
    return None if side.graphs is None else "CUDA graphs" if side.graphs else "eager launches"


def _tokens_differ(a: Side, b: Side, per: Per) -> Iterator[str]:
    kinds = a.cycle.kind, b.cycle.kind
    lengths = a.cycle.accept_len, b.cycle.accept_len
    apart = None not in lengths and abs((lengths[0] or 0) - (lengths[1] or 0)) > ALIKE * max(lengths[0] or 0, 1)
    if None not in kinds and kinds[0] != kinds[1]:
        yield f"decoding: {kinds[0]} in A, {kinds[1]} in B"
    elif apart:
        yield f"accept length: {tokens(lengths[0] or 1)} in A, {tokens(lengths[1] or 1)} in B"
    if per == "step" and a.tokens and b.tokens and abs(a.tokens - b.tokens) > ALIKE * a.tokens:
        yield f"steps yield {tokens(a.tokens)} and {tokens(b.tokens)} tokens: compare with --per token"


def _recording_differs(a: Side, b: Side) -> Iterator[str]:
    sources = [f"{s.tool or s.format} {s.tool_version}".strip() for s in (x.attribution.trace.source for x in (a, b))]
    yield from _unlike("recorder", *sources)
    slowdowns = a.context.slowdown, b.context.slowdown
    if slowdowns[0] is not None and slowdowns[1] is not None and abs(slowdowns[0] - slowdowns[1]) > SLOWDOWN:
        yield f"the recorder made A {slowdowns[0]:.2f} times as slow and B {slowdowns[1]:.2f} times"
    if not a.steps and not b.steps:
        yield (
            "neither has decode steps: the whole recordings are compared, whose lengths are when recording began and "
            "ended, and no change can be told from noise"
        )


def _doubts(letter: str, side: Side) -> Iterator[str]:
    if 0 < side.steps < MIN_STEPS:
        yield f"only {side.steps} steps in {letter}: noise is unknown, so no change is called significant"
    if side.cycle.phases_inferred:
        yield f"phases of {letter} are inferred"
    sizes = side.attribution.plan.steps.batch_size
    if side.steps and len(np.unique(sizes[device_steps(side.attribution, side.slowest()).row])) > 1:
        yield f"batch sizes are mixed in {letter}: figures are averages over them"
    for key in LOSSES:
        for text in side.attribution.trace.notes_of(key):
            yield f"{key.replace('_', ' ')} in {letter}: {text}"
