"""The sentence that a comparison ends in: what changed, by how much, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.analyzers.words import duration, interval, listed, tokens

from .result import Change, Per, Recorded, StoryChange

MOST = 3
NOTABLE = 0.1
"""A change smaller than this share of the total's is not named in the sentence."""

HARDLY = 0.1
"""A change of less than this share of what was hardly is one, if it is little of the whole change too."""

GONE = 0.02
"""What keeps less than this share of its time is said to have gone."""

NAMES = {
    "host": "host gaps",
    "graph_launch": "gaps before launches of CUDA graphs",
    "collectives": "collectives (waiting and transfer)",
    "transfer": "transfers in collectives",
    "graph_gaps": "gaps inside CUDA graphs",
    "queue": "gaps in queues",
    "copies": "memory copies",
}
PHASE_NAMES = {"draft": "drafter kernels", "kv_append": "KV append kernels", "step_other": "other kernels of the step",
               "rest": "kernels that follow the forwards", "outside": "kernels outside steps"}  # fmt: skip


def summary(
    per: Per, total: Change, stories: Sequence[StoryChange], sides: tuple[Recorded, Recorded], ranks: Sequence[int]
) -> str:
    """One true sentence about two recordings with decode steps; ``ranks`` are those that both have."""
    head = _head(per, total, sides)
    if total.ci95_ns is None:
        head += ", and too few steps were recorded to tell that from noise"
    elif not total.significant:
        head += f", which is within noise (95 %: {interval(*total.ci95_ns)})"
    else:
        head += f": {_factor(total)} (95 %: {interval(*total.ci95_ns)})"
    parts = (head, _causes(total, stories, ranks), _per_token(per, total, sides))
    return f"{'; '.join(part for part in parts if part)}."


def _head(per: Per, total: Change, sides: tuple[Recorded, Recorded]) -> str:
    a, b = duration(total.a_ns), duration(total.b_ns)
    if per == "token":
        return f"An accepted token takes {b} instead of {a}"
    names = {"plain": "plain step", "speculative": "speculative cycle"}
    first, second = (names.get(side.kind or "", "step") for side in sides)
    return f"A step takes {b} instead of {a}" if first == second else f"A {second} takes {b}, a {first} {a}"


def signed(ns: int) -> str:
    """A duration with its sign: ``+65 ns``, ``−7.42 ms``."""
    return f"{'+' if ns > 0 else '−' if ns < 0 else ''}{duration(abs(ns))}"


def _factor(total: Change) -> str:
    ratio = total.a_ns / max(total.b_ns, 1)
    if ratio >= 2 or ratio <= 0.5:
        return f"{ratio:.1f} times as fast" if ratio > 1 else f"{1 / ratio:.1f} times as slow"
    percent = 100 * total.delta_ns / max(total.a_ns, 1)
    return f"{abs(percent):.2g} % {'longer' if percent > 0 else 'shorter'}"


def _causes(total: Change, stories: Sequence[StoryChange], ranks: Sequence[int]) -> str:
    """The significant changes that matter, largest first, and what became of transfers if waiting is told."""
    least = NOTABLE * abs(total.delta_ns)
    named = [story for story in stories if story.change.significant and abs(story.change.delta_ns) >= least][:MOST]
    if any(story.about in ("waiting", "host") for story in named):
        named += [one for one in stories if one.about == "transfer" and one.change.ci95_ns and one not in named]
    effect = next((story for story in named if story.follows is not None), None)
    cause = next((story for story in named if effect is not None and _brought(story, effect)), None)
    said = []
    for story in named:
        if effect is not None and story is cause:
            waiting = f"rank {effect.a_rank}'s {_waiting(effect, ranks, cause)} {_times(effect)}"
            said.append(f"{_said(story, ranks, least)}, and with them {waiting}")
        elif story is not effect or cause is None:
            said.append(_said(story, ranks, least))
    if cause is not None:
        return "; ".join(said)
    return listed(said) if said else ""


def _brought(cause: StoryChange, effect: StoryChange) -> bool:
    """Whether ``effect`` is the waiting of another rank for the one on which ``cause`` changed."""
    shrank = cause.change.delta_ns < 0
    owner = cause.a_rank if shrank else cause.b_rank
    return (effect.follows, effect.cause) == (owner, cause.about) and (effect.change.delta_ns < 0) == shrank


def _said(story: StoryChange, ranks: Sequence[int], least: float) -> str:
    """What became of it; a change below ``least``, and small beside what it was, hardly is one."""
    change = story.change
    name = _waiting(story, ranks) if story.about == "waiting" else NAMES.get(story.about) or _kernels(story.phase)
    if len(ranks) > 1 and story.a_rank == story.b_rank:
        name = f"rank {story.a_rank}'s {name}"
    are = "is" if story.about == "waiting" else "are"
    if not change.significant:
        return f"{name} did not change beyond noise {_times(story)}"
    if abs(change.delta_ns) < min(least, HARDLY * change.a_ns):
        return f"{name} hardly changed {_times(story)}"
    if not change.a_ns:
        return f"{name} {are} new {_times(story)}"
    if change.b_ns < GONE * change.a_ns:
        return f"{name} went {_times(story)}"
    return f"{name} {'grew' if change.delta_ns > 0 else 'shrank'} {_times(story)}"


def _kernels(phase: str | None) -> str:
    return PHASE_NAMES.get(phase or "", f"{phase} kernels")


def _waiting(story: StoryChange, ranks: Sequence[int], cause: StoryChange | None = None) -> str:
    """For whom a rank waits; ``cause`` is what was told just before."""
    if cause is not None and cause.a_rank == cause.b_rank:
        return "waiting for it"
    others = [rank for rank in ranks if rank != story.a_rank]
    return f"waiting for rank {others[0]}" if len(others) == 1 else "waiting for other ranks"


def _times(story: StoryChange) -> str:
    """``(3.08 µs on rank 0 to 2.11 ms on rank 1)``; ranks only where they differ."""
    known = ((story.change.a_ns, story.a_rank), (story.change.b_ns, story.b_rank))
    where = [f" on rank {rank}" if story.a_rank != story.b_rank else "" for _, rank in known]
    times = [f"{duration(ns)}{place}" for (ns, _), place in zip(known, where, strict=True)]
    return f"({' to '.join(times if story.change.a_ns else times[1:])})"


def _per_token(per: Per, total: Change, sides: tuple[Recorded, Recorded]) -> str:
    """What the steps mean per token where they yield different numbers of tokens."""
    known = [side.tokens_per_step for side in sides if side.tokens_per_step is not None]
    if len(known) < len(sides):
        return ""
    yields = [float(each) for each in known]
    if per == "token":
        lengths = [tokens(side.accept_len or 1) for side in sides]
        each = [tokens(count) for count in yields]
        told = _tokens(yields[0]) if each[0] == each[1] else f"{each[0]} and {_tokens(yields[1])}"
        return f"steps yield {told} (accept length {lengths[0] if lengths[0] == lengths[1] else listed(lengths)})"
    if yields[0] == yields[1]:
        return ""
    each = [duration(ns / count) for ns, count in zip((total.a_ns, total.b_ns), yields, strict=True)]
    given = f"steps yield {_tokens(yields[1])}, not {tokens(yields[0])}"
    return f"per accepted token it is {each[1]} instead of {each[0]}, as {given}"


def _tokens(count: float) -> str:
    """A number of tokens with its noun."""
    return f"{tokens(count)} token{'' if tokens(count) == '1' else 's'}"


def whole_summary(sides: tuple[Recorded, Recorded]) -> str:
    """One true sentence about two recordings without decode steps; the reasons say what that means."""
    a, b = sides
    wall, work = b.wall_ns - a.wall_ns, b.ops_sum_ns - a.ops_sum_ns
    joint = "although" if (wall < 0) != (work < 0) else "and"
    return (
        f"Of the whole recordings, the second is {duration(abs(wall))} {'shorter' if wall < 0 else 'longer'} "
        f"({duration(a.wall_ns)} and {duration(b.wall_ns)}), {joint} its GPU activities sum to {duration(abs(work))} "
        f"{'less' if work < 0 else 'more'} ({duration(a.ops_sum_ns)} and {duration(b.ops_sum_ns)}, {a.ops:,} and "
        f"{b.ops:,} of them)."
    )
