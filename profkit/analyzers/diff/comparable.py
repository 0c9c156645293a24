"""May two recordings be compared? What differs beyond what is asked about, and what forbids an answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from profkit.analyzers.cycle import device_steps
from profkit.analyzers.outliers import outliers_of
from profkit.analyzers.ranks import lost_steps
from profkit.analyzers.vocabulary import PHASE
from profkit.analyzers.words import counted, listed, share, tokens
from profkit.traces import Trace

from .noise import MIN_STEPS
from .result import Comparable, Per
from .side import Context, Side

ALIKE = 0.01
"""Accept lengths that differ by less than this share are the same."""

SLOWED = 1.1
"""A recorder that makes a run slower by more than this factor is named. Less is not told apart from what the rates
measured without it also hold: the prefill of requests that take the place of finished ones."""

NEAR = 0.04
"""Contexts that differ by less than this share are alike: a window lies within 1 % of an output of typical ones, about
half of it, so that two of them differ by up to 4 % (of the prompt's tokens too, so mostly less)."""

UNEVEN = 0.05
"""Prefills are named where they take a larger share of the time."""

MOST_SETTINGS = 4
MOST_VERSIONS = 2
SAME = "A and B are the same recording"
BESIDE = {"attention_backend": "attention backend", "prompt_len": "prompt length"}
"""Settings that shape a step as much as the rest but are often not recorded, and their names."""

NO_STEPS = (
    "neither has decode steps: the whole recordings are compared, each as long as it was left running, and no change "
    "can be told from noise"
)
LOSSES = ("dropped_records", "truncated", "bad_times")


def comparability(a: Side, b: Side, per: Per) -> Comparable:
    """The verdict and its reasons, those that forbid a comparison first."""
    forbidding = tuple(_forbidden(a, b, per))
    if forbidding:
        return Comparable("no", forbidding)
    if _same(a, b, per):
        return Comparable("same", (SAME,), identical=True)
    reasons = (*_run_differs(a, b), *_tokens_differ(a, b, per), *_not_recorded(a, b), *_recording_differs(a, b))
    reasons += tuple(text for letter, side in (("A", a), ("B", b)) for text in _doubts(letter, side))
    return Comparable("warn" if reasons else "ok", reasons)


def _same(a: Side, b: Side, per: Per) -> bool:
    """Whether these are one recording, cut into the same steps; with two accept lengths, they are two of its tokens."""
    first, second = (side.attribution.trace for side in (a, b))
    if (len(first.ops), a.steps) != (len(second.ops), b.steps) or fingerprint(first) != fingerprint(second):
        return False
    return a.tokens == b.tokens or (per == "step" and None in (a.tokens, b.tokens))


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
    yield from _unlike("model", a.run.model, b.run.model)
    yield from _unlike("GPU", _gpus(a), _gpus(b))
    yield from _unlike("number of ranks", len(a.devices()), len(b.devices()))
    ranks = [sorted(side.ranks[device] for device in side.devices()) for side in (a, b)]
    if not set(ranks[0]) & set(ranks[1]):
        yield f"A holds {_ranks(ranks[0])}, B {_ranks(ranks[1])}: no rank is in both"
    for name in ("driver", "CUDA version"):
        yield from _unlike(name, _drivers(a).get(name), _drivers(b).get(name))
    if a.run.engine.casefold() != b.run.engine.casefold():
        yield from _unlike("engine", a.run.engine, b.run.engine)
    yield from _unlike("graph mode", _graph_mode(a), _graph_mode(b))
    yield from _unlike("batch size", a.cycle.batch_size, b.cycle.batch_size)
    yield from _contexts_differ(a, b)
    for name in sorted(_packages(a) & _packages(b)):
        # torch 2.11.0+cu130 is 2.11.0, built for another CUDA.
        first, second = (side.context.versions[name].partition("+")[0] for side in (a, b))
        yield from _unlike(f"version of {name}", first, second)
    settings = list(_settings(a.context, b.context))
    yield from settings[:MOST_SETTINGS]
    if len(settings) > MOST_SETTINGS:
        yield f"{len(settings) - MOST_SETTINGS} more settings differ"


def _contexts_differ(a: Side, b: Side) -> Iterator[str]:
    known = [(side.run.step_times_recorded, side.run.concurrency) for side in (a, b)]
    contexts = [times.context / requests for times, requests in known if times and times.context and requests]
    if len(contexts) == len(known) and abs(contexts[0] - contexts[1]) > NEAR * min(contexts):
        said = f"{contexts[0]:,.0f} tokens a request in A, {contexts[1]:,.0f} in B"
        yield f"context: {said} (attention takes longer the longer contexts are)"


def _ranks(numbers: list[int]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {listed([str(number) for number in numbers])}"


def _packages(side: Side) -> set[str]:
    """Packages whose version is known."""
    return set(side.context.versions) - {"driver", "cuda", "nsys"}


def _unlike(what: str, a: object, b: object) -> Iterator[str]:
    """A sentence where both are known and differ."""
    if a not in (None, "") and b not in (None, "") and a != b:
        yield f"{what}: {a} in A, {b} in B"


def _settings(a: Context, b: Context) -> Iterator[str]:
    if not a.settings or not b.settings:
        return
    for name in sorted(a.settings.keys() | b.settings.keys()):
        # What is missing was not set, unless the record does not say or it is told in a line of its own.
        missing = [None if name in BESIDE or not side.complete else "not set" for side in (a, b)]
        yield from _unlike(name, a.settings.get(name, missing[0]), b.settings.get(name, missing[1]))


def _drivers(side: Side) -> dict[str, str]:
    """The driver's own version and that of CUDA, which a PyTorch trace gives in its place."""
    versions = side.context.versions
    found = {"driver": versions.get("driver", ""), "CUDA version": versions.get("cuda", "")}
    name, _, cuda = side.attribution.trace.source.driver.partition(" ")
    return found | ({"CUDA version": cuda} if name == "CUDA" else {"driver": name} if name else {})


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


def _not_recorded(a: Side, b: Side) -> Iterator[str]:
    """One line on everything that is known of one side only."""
    missing: dict[str, list[str]] = {"A": [], "B": []}
    known = [dict(_known(side, other)) for side, other in ((a, b), (b, a))]
    for title in dict.fromkeys((*known[0], *known[1])):
        first, second = (one.get(title, False) for one in known)
        if first != second:
            missing["B" if first else "A"].append(title)
    texts = [f"{listed(titles)} of {letter}" for letter, titles in missing.items() if titles]
    if texts:
        yield f"not recorded: {'; '.join(texts)}"


def _known(side: Side, other: Side) -> Iterator[tuple[str, bool]]:
    """What is compared, and whether it is known of ``side``."""
    yield "GPU", bool(_gpus(side))
    # One of the two is enough: recorders give one or the other.
    yield "driver", bool(_drivers(side).get("driver") or _drivers(side).get("CUDA version"))
    alone = sorted(_packages(side) - _packages(other)) if _packages(other) else []
    yield "versions", bool(_packages(side))
    if len(alone) > MOST_VERSIONS:
        yield f"{len(alone)} versions", True
    else:
        yield from ((f"version of {name}", True) for name in alone)
    for name, title in BESIDE.items():
        yield title, name in side.context.settings
    if side.steps:
        yield "accept length", side.cycle.accept_len is not None


def _recording_differs(a: Side, b: Side) -> Iterator[str]:
    sources = [f"{s.tool or s.format} {s.tool_version}".strip() for s in (x.attribution.trace.source for x in (a, b))]
    yield from _unlike("recorder", *sources)
    slowdowns = (("A", a.context.slowdown or 1.0), ("B", b.context.slowdown or 1.0))
    slowed = [f"{letter} by {share(times - 1, 1)}" for letter, times in slowdowns if times > SLOWED]
    if slowed:
        yield f"the recorder slowed {listed(slowed)}"
    if not a.steps and not b.steps:
        yield NO_STEPS


def _doubts(letter: str, side: Side) -> Iterator[str]:
    if 0 < side.steps < MIN_STEPS:
        yield f"only {counted(side.steps, 'step')} in {letter}: noise is unknown, so no change is called significant"
    if side.cycle.phases_inferred:
        yield f"phases of {letter} are inferred"
    sizes = side.attribution.plan.steps.batch_size
    if side.steps and len(np.unique(sizes[device_steps(side.attribution, side.slowest()).row])) > 1:
        yield f"batch sizes are mixed in {letter}: figures are averages over them"
    yield from _uneven(letter, side)
    for key in LOSSES:
        for text in side.attribution.trace.notes_of(key):
            yield f"{key.replace('_', ' ')} in {letter}: {text}"


def _uneven(letter: str, side: Side) -> Iterator[str]:
    """Few long steps, and prefills between the steps: they change the mean step, and are no noise of it."""
    line = side.attribution.devices[side.slowest()] if side.steps else None
    totals = line.window_totals() if line is not None else None
    if totals is None:
        return
    if (far := outliers_of(side.attribution, side.slowest())) is not None:
        yield f"{far.text}, in {letter}: figures are means, which hold them"
    prefills = int(totals[:, PHASE["prefill"]].sum())
    if prefills > UNEVEN * int(totals.sum()):
        yield f"prefills take {share(prefills, int(totals.sum()))} of the time in {letter}: figures are means over it"
