"""The economics in plain words: where it wins and loses, why, and what would move the line.

Each sentence says whether it speaks of measured throughput or of what steps predict.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..comparison_result import Gain
from ..words import duration, listed, part_name, share
from .outcome import VERBS, outcome_of, outcomes_in_words, speedup_of
from .result import Crossing, Crossover, Decided, Lever, Outcome, Range, Row

FROM_STEPS = "predicted from steps, "
SOURCES: dict[Decided, str] = {"measured": "measured without a recorder", "predicted": "predicted from steps"}


def where(speculative: str, rows: Sequence[Row], crossover: Crossover, basis: Decided | None) -> str:
    """Which concurrencies it wins and loses at, by the measured throughput where all are measured."""
    if basis is None:
        costs = listed([f"{row.break_even:.2f} plain steps at {row.batch_size}" for row in rows])
        return f"Whether {speculative} pays is unknown without its accept length; {FROM_STEPS}a cycle costs {costs}."
    found = [(row.batch_size, speedup_of(row, basis), row.outcome) for row in rows]
    ranges: dict[object, Range] = {row.batch_size: row.measured_range for row in rows if row.measured_range}
    said = f"{speculative} {outcomes_in_words(found, 'concurrency', ranges if basis == 'measured' else {})}"
    if basis == "predicted":
        return f"{FROM_STEPS.capitalize()}{said}; {crossover.text.removeprefix(FROM_STEPS)}."
    meet = crossover.measured.at
    meeting = f", which meets plain decoding's at {batch(meet)}" if meet else ""
    return f"{said}, by throughput {SOURCES[basis]}{meeting}{_by_steps_alone(rows)}; {crossover.text}."


def _by_steps_alone(rows: Sequence[Row]) -> str:
    """Where the steps give another word than the measured throughput."""
    words = [(row, outcome_of(row, "predicted")) for row in rows]
    unlike = [(row, word) for row, word in words if word is not None and word != row.outcome]
    said = [f"at {row.batch_size} its steps alone say that it {_verb(row, word)}" for row, word in unlike]
    return f", though {listed(said)}" if said else ""


def _verb(row: Row, word: Outcome) -> str:
    """``loses by 2.3 %``; of ``even`` no figure."""
    return VERBS[word] if word == "even" else f"{VERBS[word]} by {share(abs((row.predicted_speedup or 1.0) - 1))}"


def recorded_steps(rows: Sequence[Row]) -> str:
    """How many steps the intervals rest on: ``8 recorded steps``, ``8 to 16 recorded steps``."""
    return f"{_count([side.steps for row in rows for side in (row.plain, row.speculative)])} recorded steps"


def unrecorded_steps(rows: Sequence[Row]) -> str:
    """How many unrecorded steps the break-even rests on: ``113 to 1,873``; empty where no side has any."""
    counts = [side.unrecorded_steps for row in rows for side in (row.plain, row.speculative)]
    known = [count for count in counts if count]
    return _count(known) if known else ""


def _count(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def crossover_text(
    batch_sizes: Sequence[int], estimate: Crossing, spread: tuple[Crossing, Crossing, str], again: Sequence[int]
) -> str:
    """Up to which concurrency it pays, by step times and accept length, and at which recorded ones ``again``.

    ``spread`` is from where to where the spread of so many recorded steps moves that.
    """
    low, high, steps = spread
    first, last = batch_sizes[0], batch_sizes[-1]
    if estimate.state == "unknown":
        return f"{FROM_STEPS}up to which concurrency it pays is unknown"
    if estimate.state == "above":
        said = f"{FROM_STEPS}the concurrency up to which it pays lies above {last}, the highest recorded"
    elif estimate.state == "below" and again:
        return f"{FROM_STEPS}it pays only at {batches(again)} of the recorded concurrencies"
    elif estimate.state == "below":
        said = f"{FROM_STEPS}the concurrency up to which it pays lies below {first}, the lowest recorded"
    else:
        beyond = f" and again at {batches(again)}" if again else ""
        said = f"{FROM_STEPS}it pays up to concurrency {batch(estimate.at or 0)}{beyond}"
    if "unknown" in (low.state, high.state) or low.state == high.state != "between":
        return said
    return f"{said} (spread of the {steps}: {_end(low, first, last)} to {_end(high, first, last)})"


def _end(end: Crossing, first: int, last: int) -> str:
    return {"above": f"above {last}", "below": f"below {first}"}.get(end.state) or batch(end.at or 0)


def batch(at: float) -> str:
    """A batch size that lies between recorded ones."""
    return f"{at:.0f}" if at >= 10 else f"{at:.1f}"


def batches(batch_sizes: Sequence[int]) -> str:
    """Recorded batch sizes."""
    return listed([str(one) for one in batch_sizes])


def why(rows: Sequence[Row], gain: Gain | None, basis: Decided | None) -> str:
    """Which parts make the speed-up shrink or grow: speed-ups on the verdict's basis, and always the steps' costs."""
    low, high = rows[0], rows[-1]
    if gain is None:
        cost = f"by its steps a cycle costs {low.break_even:.2f} plain steps"
        return f"Why it changes is unknown from one concurrency; {cost}."
    before, after = (speedup_of(row, basis) if basis else None for row in (low, high))
    if basis is None or before is None or after is None:
        return f"By its steps, {gain.cost}."
    way = "shrinks" if after < before else "grows"
    because = "because" if (after < before) == (high.break_even > low.break_even) else "though"
    change = f"{way} from {before:.2f} at concurrency {low.batch_size} to {after:.2f} at {high.batch_size}"
    return f"The speed-up {SOURCES[basis]} {change}, {because} by its steps {gain.cost}."


def what_moves(lever: Lever | None) -> str:
    """The largest lever, and how far it would have to move."""
    if lever is None:
        return "What would move the line is unknown without the accept length: give one with --accept-len."
    source = "By measured throughput" if lever.basis == "measured" else "Predicted from steps"
    return f"{source}, {_needed(lever)}{_by_part(lever)}."


def _needed(lever: Lever) -> str:
    change = share(abs(lever.excess_ns), lever.cycle_ns)
    takes = f"(it takes {duration(lever.cycle_ns)}{_prefills(lever)})"
    if lever.outcome == "even":
        way = "shorter" if lever.excess_ns > 0 else "longer"
        return (
            f"at concurrency {lever.batch_size}, where it is even, exactly even would be an accept length of "
            f"{lever.accept_len_needed:.2f} (it is {lever.accept_len:.2f}) or a cycle {change} {way} {takes}"
        )
    if lever.excess_ns > 0:
        return (
            f"to break even at concurrency {lever.batch_size} the accept length would have to be "
            f"{lever.accept_len_needed:.2f} (it is {lever.accept_len:.2f}{_beyond(lever)}), or the cycle {change} "
            f"shorter {takes}"
        )
    return (
        f"at concurrency {lever.batch_size}, where it is nearest to losing, it pays until the accept length falls to "
        f"{lever.accept_len_needed:.2f} (it is {lever.accept_len:.2f}) or the cycle gets {change} longer {takes}"
    )


def _prefills(lever: Lever) -> str:
    """That throughput has prefills in it; steps that take longer all the same were others than most of the run's."""
    if lever.basis != "measured":
        return ""
    if lever.steps_ns is None or lever.cycle_ns >= lever.steps_ns:
        return ", prefills included"
    which = "recorded" if lever.recorded else "timed"
    return f", prefills included; the {which} steps take {duration(lever.steps_ns)} and were not typical of the run"


def _beyond(lever: Lever) -> str:
    """That no drafter reaches an accept length of more than the block."""
    if lever.block_size is None or lever.accept_len_needed <= lever.block_size:
        return ""
    return f", and with blocks of {lever.block_size} tokens never more than {lever.block_size}"


def _by_part(lever: Lever) -> str:
    """What that asks of the cycle's largest part, whose share of the cycle is that of the recorded steps."""
    if not lever.part_ns or lever.phase is None or lever.group is None:
        return "; which part that would have to come from is unknown"
    part = f"{part_name(lever.phase, lever.group)}, {share(lever.part_ns, lever.cycle_ns)} of it as recorded,"
    change = share(abs(lever.excess_ns), lever.part_ns)
    if lever.outcome == "even":
        return f"; the largest part is {part.removesuffix(',')}"
    if lever.excess_ns <= 0:
        return f"; {part} could alone be {change} longer"
    if lever.excess_ns > lever.part_ns:
        return f"; no part could do that alone: the largest is {part.removesuffix(',')}"
    return f"; {part} would alone have to be {change} shorter"
