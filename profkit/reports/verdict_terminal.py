"""The verdict of a sweep on a terminal: rows per concurrency, three sentences, how far to trust them, and the parts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, JustifyMethod
from rich.table import Table

from profkit.analyzers.economics.growth import CLOSE, is_straight
from profkit.analyzers.economics.outcome import VERBS
from profkit.analyzers.economics.result import Economics, Growth, Row
from profkit.analyzers.result import Analysis
from profkit.analyzers.unpaired import in_one_line
from profkit.analyzers.words import duration, off, phase_name, ranges, share
from profkit.traces import printable

from .prose import say
from .verdict import MINOR, major_growth, outcome_of, sweeps_of, title_of, untold_comparisons, untold_gains

UNKNOWN = "unknown"
NARROW = 112
"""Below this width of the terminal the interval, the headroom and the error stand in the table below."""

COLUMNS = (
    "batch", "plain step", "cycle", "break-even", "spread", "accept", "headroom", "predicted", "measured", "error",
    "outcome",
)  # fmt: skip
PROOF = ("spread", "headroom", "error")
RATES = ("µs per accepted token", "tokens/s")

BESIDE_SIZES, SIZE = 52, 7
"""Characters of the other columns of the table of parts, and of a concurrency's."""


def print_verdicts(console: Console, analysis: Analysis) -> None:
    """Print each pair of configurations that was compared over several concurrencies."""
    for found in sweeps_of(analysis):
        console.print()
        console.print(_table(found, console.width))
        console.print()
        console.print(_rates(found, console.width))
        console.print()
        print_sentences(console, found)
        if found.growth:
            _print_parts(console, found)
    console.print()


def print_untold(console: Console, analysis: Analysis) -> None:
    """Print what comparing says of pairs that have no verdict, a line for each, and of what has no partner, in one."""
    for one in untold_comparisons(analysis):
        word = outcome_of(analysis, one)
        said = f"it {VERBS[word]}: {one.text}" if word else one.text
        say(console, f"{one.baseline} → {one.speculative}: {said}.")
    for gain in untold_gains(analysis):
        say(console, f"{gain.baseline} → {gain.speculative}: {gain.text}.")
    if unpaired := in_one_line(analysis.unpaired):
        say(console, unpaired)


def print_notes(console: Console, analysis: Analysis) -> None:
    """Print what sweeps note of themselves, such as that a capture did not come to its end: a line for each."""
    noted = {(trace.name.rpartition("/")[0] or trace.name, trace.provenance.note) for trace in analysis.traces}
    for name, note in sorted(noted):
        if note:
            say(console, f"Note of {name}: {note.rstrip('.')}.")


def print_answers(console: Console, analysis: Analysis) -> None:
    """Print only what there is to say in sentences: verdicts, pairs without one, and without any pair each trace.

    Of further sweeps of a pair of configurations that has been told, only where it pays.
    """
    for first, *others in _by_configurations(analysis):
        say(console, f"Does speculation pay? {title_of(first)}", "bold")
        print_sentences(console, first)
        console.print()
        for found in others:
            say(console, found.sentences[0])
        if others:
            console.print()
    print_untold(console, analysis)
    for trace in analysis.traces if not analysis.comparisons else ():
        say(console, f"{trace.name}: {trace.summary}")
    print_notes(console, analysis)


def _by_configurations(analysis: Analysis) -> list[list[Economics]]:
    """The verdicts, those of one model and the same two configurations, alike in graphs, together; in the order met."""
    runs = {trace.name: trace.provenance for trace in analysis.traces}
    groups: dict[tuple[str, str, str, bool], list[Economics]] = {}
    for found in sweeps_of(analysis):
        plain, speculative = runs[found.rows[0].plain.trace], runs[found.rows[0].speculative.trace]
        key = speculative.model or plain.model, found.baseline, speculative.config, found.graphs
        groups.setdefault(key, []).append(found)
    return list(groups.values())


def print_sentences(console: Console, found: Economics) -> None:
    """The verdict in three sentences, and how far to trust it."""
    for sentence in found.sentences:
        say(console, sentence, "bold")
    console.print()
    say(console, found.prediction)
    if found.intervals:
        say(console, found.intervals)


def _print_parts(console: Console, found: Economics) -> None:
    console.print()
    grows = ", and how its time grows with the batch" if found.growth[0].r2 is not None else ""
    console.print(f"Where a cycle goes, in plain steps{grows}", style="bold")
    say(console, f"as recorded; parts of at least {100 * MINOR:.0f} % of a step")
    if said := _unlike_recorded(found):
        say(console, said)
    if grows:
        say(console, f"worst: how far a time lies off its line at most; straight is up to {share(CLOSE)}")
    console.print(_parts(found, console.width))


def _unlike_recorded(found: Economics) -> str:
    """Where the recorded cycle differs most from the one above, which was timed without a recorder; or nothing."""
    whole = next((one for one in found.growth if one.phase is None and one.decoding == "speculative"), None)
    rows = list(zip(found.rows, whole.ns, strict=True)) if whole else []
    timed = [(row, ns) for row, ns in rows if row.speculative.unrecorded_ns]
    if not timed:
        return ""
    row, ns = max(timed, key=lambda one: abs(one[1] / one[0].speculative.step_ns - 1))
    recorded, step = duration(ns), duration(row.speculative.step_ns)
    if recorded == step:
        return ""
    return f"at {row.batch_size} a cycle took {recorded} as recorded, {step} without a recorder (above)"


def _parts(found: Economics, width: int) -> Table:
    """The cycle by phase and part in plain steps, and the line that its time follows over the batch."""
    fitted = found.growth[0].r2 is not None
    sizes = _spread([row.batch_size for row in found.rows], max(2, (width - BESIDE_SIZES) // SIZE))
    table = _blank()
    table.add_column("", no_wrap=True)
    for place in sizes:
        table.add_column(f"at {found.rows[place].batch_size}", justify="right", no_wrap=True)
    for name in ("base + per request", "R²", "worst") if fitted else ():
        table.add_column(name, justify="right", no_wrap=True)
    for one in major_growth(found):
        line = (_line(one), f"{one.r2:.2f}", _worst(one)) if one.r2 is not None else ()
        table.add_row(_name(one), *(f"{one.plain_steps[place]:.2f}" for place in sizes), *line)
    return table


def _spread(items: Sequence[int], most: int) -> list[int]:
    """Places of at most so many items, the first and the last among them."""
    if len(items) <= most:
        return list(range(len(items)))
    return [round(place * (len(items) - 1) / (most - 1)) for place in range(most)]


def _name(one: Growth) -> str:
    if one.phase is None:
        return "cycle" if one.decoding == "speculative" else "plain step"
    return f"    {one.group}" if one.group else f"  {phase_name(one.phase)}"


def _line(one: Growth) -> str:
    if one.base_ns is None or one.per_request_ns is None or not is_straight(one):
        return "no straight line"
    sign = "−" if one.per_request_ns < 0 else "+"
    return f"{duration(one.base_ns)} {sign} {duration(abs(one.per_request_ns))}"


def _worst(one: Growth) -> str:
    if one.largest_residual is None:
        return UNKNOWN
    return off(one.largest_residual)


def _blank(title: str | None = None) -> Table:
    shown = printable(title).replace("[", r"\[") if title else None
    return Table(title=shown, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _table(found: Economics, width: int) -> Table:
    table = _blank(f"Does speculation pay? {title_of(found)}")
    shown = [place for place, name in enumerate(COLUMNS) if width >= NARROW or name not in PROOF]
    for place in shown:
        justify: JustifyMethod = "left" if COLUMNS[place] == "outcome" else "right"
        table.add_column(COLUMNS[place], justify=justify, no_wrap=True)
    for cells in _rows(found):
        table.add_row(*(cells[place] for place in shown))
    return table


def _rates(found: Economics, width: int) -> Table:
    """What a token costs and how many there are, plain and speculative, behind what the table above had no room for."""
    shown = PROOF if width < NARROW else ()
    table = _blank("Rates, plain → speculative" + ("; error: predicted over measured speed-up" if shown else ""))
    for name in ("batch", *shown, *RATES):
        table.add_column(name, justify="right", no_wrap=True)
    for row, written in zip(found.rows, _rows(found), strict=True):
        cells = dict(zip(COLUMNS, written, strict=True))
        plain, drafting = row.plain, row.speculative
        costs = _pair(plain.us_per_token, drafting.us_per_token), _pair(plain.tokens_per_s, drafting.tokens_per_s)
        table.add_row(cells["batch"], *(cells[name] for name in shown), *costs)
    return table


def _pair(plain: float | None, speculative: float | None) -> str:
    if plain is None and speculative is None:
        return UNKNOWN
    return f"{_known(plain, ',.0f')} → {_known(speculative, ',.0f')}"


def _rows(found: Economics) -> list[list[str]]:
    spreads = ranges([row.break_even_ci95 for row in found.rows])
    return [_cells(row, spread) for row, spread in zip(found.rows, spreads, strict=True)]


def _cells(row: Row, spread: str) -> list[str]:
    return [
        str(row.batch_size),
        duration(row.plain.step_ns),
        duration(row.speculative.step_ns),
        f"{row.break_even:.2f}",
        spread or UNKNOWN,
        _known(row.speculative.accept_len, ".2f"),
        _change(row.headroom_share),
        _known(row.predicted_speedup, ".2f"),
        _known(row.measured_speedup, ".2f"),
        _error(row.prediction_error),
        row.outcome or UNKNOWN,
    ]


def _known(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _error(value: float | None) -> str:
    """With the digit that tells 10.4 % from the 10 % up to which prediction and measurement agree."""
    return UNKNOWN if value is None else f"{100 * value:+.1f} %".replace("-", "−")


def _change(value: float | None) -> str:
    return UNKNOWN if value is None else share(value, signed=True)
