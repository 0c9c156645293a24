"""``what_if``: recordings and a request to figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from ..analysis import Recording
from ..attribution import attribute
from ..rules import Rules
from . import drafting, hosting, linking
from .case import Case, case_of, of_its_model
from .changes import Change, RefusedError
from .holding import fastest_host, held_back
from .links import LINKS
from .outcome import accepted, economics, step_with, unrecorded
from .request import Request
from .result import SCHEMA, Economics, OnlyTogether, Outcome, RecordingWhatIf, Refusal, Span, WhatIf
from .sentence import summary, surest

Lever = Callable[[Case, Request, Sequence[Case]], Change]

LEVERS: Mapping[str, Lever] = MappingProxyType(
    {
        "graphs": hosting.graphs,
        "accept_len": drafting.accept_length,
        "block_size": drafting.block_size,
        "drafter": drafting.drafter,
        "link": linking.link,
        "collective": linking.collective,
        "align_launches": hosting.align_launches,
        "overlap_draft": drafting.overlap,
    }
)
"""In the order in which they are applied. Graphs come first: what they cost is known of the recording as it was, and
what is changed then is their launch calls and gaps. Overlap comes last: what it hides depends on all the others."""

OF_SERVING = ("link", "collective", "align_launches", "graphs")
"""Levers that plain decoding has as well."""

ONE_IN_GRAPHS = "only one ran with CUDA graphs"

FROM_MEDIANS = "the step is the median from first op to first op of the slowest rank, recorder included"


def what_if(
    recordings: Sequence[Recording],
    request: Request,
    rules: Rules | None = None,
    nvlink: Collection[str] = (),
) -> WhatIf:
    """Re-play each recording with what is asked, each lever alone and all together; with nothing asked, each there is.

    ``nvlink`` names the recordings whose GPUs talked to each other over NVLink.
    """
    found = [case_of(one, attribute(one.trace, rules), nvlink) for one in recordings]
    cases = [case for case in found if isinstance(case, Case)]
    answers = [
        _answer(case, request, cases) if isinstance(case, Case) else _unknown(one, case)
        for one, case in zip(recordings, found, strict=True)
    ]
    return WhatIf(SCHEMA, tuple(one.name for one in request.each()), tuple(answers))


def _answer(case: Case, request: Request, cases: Sequence[Case]) -> RecordingWhatIf:
    plain = _plain_beside(case, cases)
    now = _economics(case, (), plain, Request(), cases)
    alone, refused = _alone(case, list(request.each()) or _every_lever(case), plain, cases, now)
    if not request.levers:
        alone.sort(key=lambda one: one.surely_us)
    left_out = _refused(case, request, cases) if len(request.levers) > 1 else []
    carried = request.without(*(one.lever for one in left_out))
    combined = _outcome(case, carried, plain, cases, now) if len(carried.levers) > 1 else None
    shown = combined or next((one for one in alone if one.levers == carried.levers), None)
    return RecordingWhatIf(
        name=case.name,
        path=case.path,
        kind=case.cycle.kind,
        batch_size=case.cycle.batch_size,
        block_size=case.attribution.trace.run.block_size if case.speculative else None,
        recorded_ns=case.recorded_ns,
        now=now,
        baseline=plain.name if plain else None,
        alone=tuple(alone),
        combined=combined,
        refused=tuple(dict.fromkeys([*refused, *left_out])),
        text=summary(now, shown, left_out) if request.levers else surest(now, alone),
        assumptions=(FROM_MEDIANS, *_unlike(case, plain), *case.model.assumptions),
        left_out=tuple(left_out),
        unrecorded=unrecorded(case, plain),
        baseline_unlike=ONE_IN_GRAPHS if plain and plain.in_graphs != case.in_graphs else "",
        only_together=_only_together(case, carried, refused, cases) if combined else (),
    )


def _only_together(
    case: Case, carried: Request, refused: Sequence[Refusal], cases: Sequence[Case]
) -> tuple[OnlyTogether, ...]:
    """What the combination uses although it is refused alone: a longer accept length, given a larger block."""
    alone = [one.lever for one in refused if one.lever in carried.levers]
    if not alone:
        return ()
    changes = _changes(case, carried, cases)
    return tuple(
        OnlyTogether(lever, carried.only(lever).name, change.assumptions, change.beyond, change.not_in_bounds)
        for lever, change in changes.items()
        if lever in alone
    )


def _unlike(case: Case, plain: Case | None) -> tuple[str, ...]:
    if plain is None or plain.in_graphs == case.in_graphs:
        return ()
    ran, beside = ("with", "without") if case.in_graphs else ("without", "with")
    return (f"{case.name} ran {ran} CUDA graphs, and {plain.name}, plain decoding beside it, {beside} them",)


def _unknown(recording: Recording, reason: str) -> RecordingWhatIf:
    return RecordingWhatIf(
        recording.name, recording.path, None, None, None, None, None, None, (), None, (), f"No answer: {reason}.",
        unknown=reason,
    )  # fmt: skip


def _alone(
    case: Case, requests: Sequence[Request], plain: Case | None, cases: Sequence[Case], now: Economics
) -> tuple[list[Outcome], list[Refusal]]:
    outcomes, refused = [], []
    for request in requests:
        try:
            outcomes.append(_outcome(case, request, plain, cases, now))
        except RefusedError as error:
            refused.append(Refusal(request.levers[0], request.name, str(error)))
    return outcomes, refused


def _refused(case: Case, request: Request, cases: Sequence[Case]) -> list[Refusal]:
    """What cannot be carried of a combined request: a lever may depend on another one's figure, or on its refusal."""
    refused: list[Refusal] = []
    for lever in request.levers:
        try:
            LEVERS[lever](case, request, cases)
        except RefusedError as error:
            refused.append(Refusal(lever, request.only(lever).name, str(error)))
    others = request.without(*(one.lever for one in refused))
    return [*refused, *_refused(case, others, cases)] if refused else []


def _changes(case: Case, request: Request, cases: Sequence[Case]) -> dict[str, Change]:
    """The change of each lever, in the order in which they are applied."""
    return {lever: make(case, request, cases) for lever, make in LEVERS.items() if lever in request.levers}


def _outcome(case: Case, request: Request, plain: Case | None, cases: Sequence[Case], now: Economics) -> Outcome:
    changes = _changes(case, request, cases)
    then = _economics(case, list(changes.values()), plain, request, cases)
    saved = [now.step_ns.usual - ns for ns in (then.step_ns.high, then.step_ns.usual, then.step_ns.low)]
    said = [said for change in changes.values() for said in change.assumptions]
    if plain is not None and request.only(*OF_SERVING).levers:
        said.append("plain decoding is given the same, as far as its recording carries it")
    bounds = tuple(request.only(lever).name for lever, change in changes.items() if change.bound)
    return Outcome(
        levers=request.levers,
        name=request.name,
        then=then,
        saved_ns=Span(*saved),
        bound=bool(bounds),
        assumptions=tuple(dict.fromkeys(said)),
        bound_by=bounds,
        held_back=fastest_host(case).said if held_back(case, list(changes.values())) else "",
        beyond=_joined(change.beyond for change in changes.values()),
        not_in_bounds=_joined(change.not_in_bounds for change in changes.values()),
    )


def _joined(said: Iterable[str]) -> str:
    return "; ".join(text for text in said if text)


def _economics(
    case: Case, changes: Sequence[Change], plain: Case | None, request: Request, cases: Sequence[Case]
) -> Economics:
    beside = None
    if plain is not None:
        beside = step_with(plain, _carried(plain, request.only(*OF_SERVING), cases))
    return economics(case, step_with(case, changes), accepted(case, changes), beside)


def _carried(case: Case, request: Request, cases: Sequence[Case]) -> Sequence[Change]:
    """The changes that plain decoding can carry; it has graphs already where they are refused."""
    carried = request.without(*(one.lever for one in _refused(case, request, cases)))
    return list(_changes(case, carried, cases).values())


def _plain_beside(case: Case, cases: Sequence[Case]) -> Case | None:
    """Plain decoding of the same model and batch size on as many GPUs of the same kind; of several, that most alike."""
    if not case.speculative or not case.cycle.batch_size:
        return None

    def nearness(other: Case) -> tuple[bool, bool, bool]:
        return case.target == other.target, case.in_graphs == other.in_graphs, case.config.startswith(other.config)

    same = [
        one
        for one in cases
        if one.cycle.kind == "plain" and one.cycle.batch_size == case.cycle.batch_size and one.machine == case.machine
    ]
    return max(of_its_model(case, same), key=nearness, default=None)


def _every_lever(case: Case) -> list[Request]:
    """Each lever as far as it might go."""
    block, now = case.attribution.trace.run.block_size, case.cycle.accept_len
    longer = [min(now + 1, float(block or now + 1))] if now else []
    return [
        *(Request(accept_len=length) for length in longer),
        *(Request(block_size=size) for size in _other_blocks(block)),
        Request(drafter=0.0),
        Request(link=LINKS["nvlink4"]),
        Request(collective="one-shot"),
        Request(graphs=True),
        Request(align_launches=True),
        Request(overlap_draft=True),
    ]


def _other_blocks(size: int | None) -> list[int]:
    return [size // 2, size * 2] if size and size > 3 else [8]
