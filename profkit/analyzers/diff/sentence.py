"""The sentence that a comparison ends in: what changed, by how much, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.analyzers.words import duration, listed, tokens

from .result import Change, Per, Recorded, StoryChange

MOST = 3
NOTABLE = 0.1
"""A change smaller than this share of the total's is not named in the sentence."""

GONE = 0.02
"""What keeps less than this share of its time is said to have gone."""

NAMES = {
    "host": "gaps in which the GPU waits for its host",
    "waiting": "waiting in collectives for other ranks",
    "transfer": "the transfers of collectives",
    "graph_gaps": "gaps inside CUDA graphs",
    "queue": "gaps in queues",
    "copies": "memory copies",
}


PHASE_NAMES = {"target": "the target's kernels", "verify": "verify's kernels", "draft": "the drafter's kernels"}


def summary(
    per: Per, total: Change, stories: Sequence[StoryChange], sides: tuple[Recorded, Recorded], identical: bool
) -> str:
    """One true sentence about two recordings with decode steps."""
    if identical:
        return "A and B are the same recording, so nothing changed."
    head = _head(per, total, sides)
    if total.ci95_ns is None:
        head += ", and too few steps were recorded to tell that from noise"
    elif not total.significant:
        head += f", which is within noise ({span(total)})"
    else:
        head += f": {_factor(total)} ({span(total)})"
    parts = (head, _causes(total, stories), _per_token(per, total, sides))
    return f"{'; '.join(part for part in parts if part)}."


def _head(per: Per, total: Change, sides: tuple[Recorded, Recorded]) -> str:
    a, b = duration(total.a_ns), duration(total.b_ns)
    if per == "token":
        return f"An accepted token takes {b} instead of {a}"
    names = {"plain": "plain step", "speculative": "speculative cycle"}
    first, second = (names.get(side.kind or "", "step") for side in sides)
    return f"A step takes {b} instead of {a}" if first == second else f"A {second} takes {b}, a {first} {a}"


def span(change: Change) -> str:
    """The 95 % interval in words: ``95 %: −135 to −109 ms``."""
    low, high = change.ci95_ns or (0, 0)
    return f"95 %: {signed(low)} to {signed(high)}"


def signed(ns: int) -> str:
    """A duration with its sign: ``+65 ns``, ``−7.42 ms``."""
    return f"{'+' if ns > 0 else '−' if ns < 0 else ''}{duration(abs(ns))}"


def _factor(total: Change) -> str:
    ratio = total.a_ns / max(total.b_ns, 1)
    if ratio >= 2 or ratio <= 0.5:
        return f"{ratio:.1f} times as fast" if ratio > 1 else f"{1 / ratio:.1f} times as slow"
    percent = 100 * total.delta_ns / max(total.a_ns, 1)
    return f"{abs(percent):.2g} % {'longer' if percent > 0 else 'shorter'}"


def _causes(total: Change, stories: Sequence[StoryChange]) -> str:
    """The significant changes that matter, largest first, and what became of transfers if ranks exchange anything."""
    least = NOTABLE * abs(total.delta_ns)
    named = [story for story in stories if story.change.significant and abs(story.change.delta_ns) >= least][:MOST]
    transfer = next((story for story in stories if story.about == "transfer"), None)
    said = [_said(story) for story in named]
    if transfer is not None and transfer not in named and transfer.change.ci95_ns is not None:
        said.append(_said(transfer))
    return listed(said) if said else ""


def _said(story: StoryChange) -> str:
    name = NAMES.get(story.about) or PHASE_NAMES.get(story.phase or "", f"{story.phase} kernels")
    change = story.change
    where = f" on rank {story.rank}" if story.about in ("waiting", "transfer") else ""
    times = f"{duration(change.a_ns)} to {duration(change.b_ns)}"
    if not change.significant:
        return f"{name} did not change beyond noise ({times})"
    if not change.a_ns:
        return f"{name}{where} came ({duration(change.b_ns)})"
    if change.b_ns < GONE * change.a_ns:
        return f"{name}{where} went ({times})"
    return f"{name}{where} {'grew' if change.delta_ns > 0 else 'shrank'} ({times})"


def _per_token(per: Per, total: Change, sides: tuple[Recorded, Recorded]) -> str:
    """What the steps mean per token where they yield different numbers of tokens."""
    known = [side.tokens_per_step for side in sides if side.tokens_per_step is not None]
    if len(known) < len(sides):
        return ""
    yields = [float(each) for each in known]
    if per == "token":
        lengths = [tokens(side.accept_len or 1) for side in sides]
        return f"steps yield {tokens(yields[0])} and {tokens(yields[1])} tokens (accept length {listed(lengths)})"
    if yields[0] == yields[1]:
        return ""
    each = [duration(ns / count) for ns, count in zip((total.a_ns, total.b_ns), yields, strict=True)]
    given = f"steps yield {tokens(yields[1])} tokens, not {tokens(yields[0])}"
    return f"per accepted token it is {each[1]} instead of {each[0]}, as {given}"


def whole_summary(sides: tuple[Recorded, Recorded], identical: bool) -> str:
    """One true sentence about two recordings without decode steps."""
    if identical:
        return "A and B are the same recording, so nothing changed."
    a, b = sides
    wall, work = b.wall_ns - a.wall_ns, b.ops_sum_ns - a.ops_sum_ns
    joint = "although" if (wall < 0) != (work < 0) else "and"
    return (
        f"Without decode steps only the whole recordings can be compared: the second is {duration(abs(wall))} "
        f"{'shorter' if wall < 0 else 'longer'} ({duration(a.wall_ns)} and {duration(b.wall_ns)}), {joint} its GPU "
        f"activities sum to {duration(abs(work))} {'less' if work < 0 else 'more'} ({duration(a.ops_sum_ns)} and "
        f"{duration(b.ops_sum_ns)}, {a.ops:,} and {b.ops:,} of them); how long recording went on decides both."
    )
