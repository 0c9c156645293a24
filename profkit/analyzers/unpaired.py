"""Why speculative recordings are compared with no plain one, though there are plain ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product
from typing import Any

from .comparison import nearness, unlike
from .comparison_result import Unlike, Unpaired
from .result import TraceFigures
from .words import listed

Traces = Sequence[TraceFigures]


def unpaired(traces: Traces) -> tuple[Unpaired, ...]:
    """One for each speculative sweep of which no recording has a plain partner; nothing without a plain recording."""
    plain, speculative = (_by_sweep(traces, kind) for kind in ("plain", "speculative"))
    shared = plain.keys() & speculative.keys()
    bases = {_label(name, own, shared): own for name, own in plain.items()}
    sweeps = {_label(name, own, shared): own for name, own in speculative.items()}
    found = (_unpaired(name, own, bases) for name, own in sweeps.items() if bases)
    return tuple(one for one in found if one is not None)


def in_one_line(found: Sequence[Unpaired]) -> str | None:
    """All that have no partner in one sentence; nothing where each has one."""
    if len(found) < 2:
        return f"{found[0].text}." if found else None
    return f"Compared with no plain decoding: {'; '.join(f'{one.speculative} ({one.why})' for one in found)}."


def _by_sweep(traces: Traces, kind: str) -> dict[str, list[TraceFigures]]:
    found: dict[str, list[TraceFigures]] = {}
    for trace in traces:
        if trace.cycle.kind == kind:
            found.setdefault(trace.name.rpartition("/")[0] or trace.name, []).append(trace)
    return found


def _label(sweep: str, own: Traces, shared: set[str]) -> str:
    """The sweep's name; a lone recording's own, and those of all where the sweep holds the other kind too."""
    return listed([trace.name for trace in own]) if len(own) == 1 or sweep in shared else sweep


def _unpaired(name: str, own: Traces, bases: dict[str, list[TraceFigures]]) -> Unpaired | None:
    """What the nearest plain sweep differs in: that of the pair with the fewest differences."""
    pairs = [(base, p, s) for base, plain in bases.items() for p, s in product(plain, own)]
    base, plain, speculative = min(pairs, key=lambda pair: _distance(*pair[1:]))
    reasons = unlike(plain, speculative)
    if not reasons:
        return None
    alike = [p for p in bases[base] if unlike(p, speculative) == reasons]
    ours = [s for s in own if any(unlike(p, s) == reasons for p in bases[base])]
    why = f"{base} {', and '.join(WORDS[reason](alike, ours) for reason in reasons)}"
    text = f"{name}: compared with no plain decoding, as {why}"
    return Unpaired(name, base, tuple(trace.name for trace in own), reasons, why, text)


def _distance(plain: TraceFigures, speculative: TraceFigures) -> tuple[int, *tuple[bool, ...]]:
    return len(unlike(plain, speculative)), *(not near for near in nearness(plain, speculative))


def _other_model(plain: Traces, speculative: Traces) -> str:
    ours, theirs = ({trace.provenance.model for trace in traces} for traces in (plain, speculative))
    return f"ran {_each(ours)}, not {_each(theirs - ours)}"


def _other_period(plain: Traces, speculative: Traces) -> str:
    if not any(trace.cycle.period_ns_median for trace in plain):
        return "has a single step, so no time from step to step"
    return "has no speculative recording of two steps or more beside it"


def _other_batch(plain: Traces, speculative: Traces) -> str:
    ours, theirs = ({trace.cycle.batch_size for trace in traces} for traces in (plain, speculative))
    if None in ours | theirs:
        return "may have run at another batch size, which is not known of both"
    return f"ran at batch {_each(ours)}, not {_each(theirs - ours)}"


def _other_number(plain: Traces, speculative: Traces) -> str:
    ours, theirs = ({len(trace.devices) for trace in traces} for traces in (plain, speculative))
    return f"ran on {_each(ours)} GPU{'' if ours == {1} else 's'}, not {_each(theirs - ours)}"


def _other_kind(plain: Traces, speculative: Traces) -> str:
    ours, theirs = (
        {device.gpu for trace in traces for device in trace.devices.values()} for traces in (plain, speculative)
    )
    if "" in ours | theirs:
        return "may have run on other GPUs, whose names are not known of both"
    if ours == theirs:
        return f"ran on other numbers of {_each(ours)}"
    return f"ran on {_each(ours)}, not {_each(theirs)}"


def _other_link(plain: Traces, speculative: Traces) -> str:
    return "ran over another link between the GPUs"


def _other_recorder(plain: Traces, speculative: Traces) -> str:
    ours, theirs = ({trace.provenance.tool or trace.source for trace in traces} for traces in (plain, speculative))
    return f"was recorded with {_each(ours)}, not {_each(theirs - ours)}"


def _each(values: Collection[Any]) -> str:
    return listed([str(value) for value in sorted(values)])


WORDS: dict[Unlike, Callable[[Traces, Traces], str]] = {
    "model": _other_model,
    "period": _other_period,
    "batch_size": _other_batch,
    "gpus": _other_number,
    "gpu": _other_kind,
    "link": _other_link,
    "recorder": _other_recorder,
}
"""What a plain sweep did otherwise, as the rest of a sentence that begins with its name."""
