"""Does DFlash pay? The study that profkit began with, as an analyzer of this workspace.

A speculative cycle costs as much time as so many plain steps, and yields as many tokens as the accept length. It pays
where the accept length is above that cost, the break-even accept length; the difference is the headroom. Of recordings
the verdict says so already: asked here is what accept length it would take.
"""

from collections.abc import Iterable, Sequence

from profkit.analyzer import (
    PEAK,
    Answer,
    Cell,
    Column,
    Economics,
    EconomicsRow,
    Lines,
    Recordings,
    Series,
    Table,
    analyzer,
    listed,
    outcome,
    outcomes_in_words,
)
from profkit.analyzer import ThroughputRun as Run
from profkit.analyzer import ThroughputTable as Rates


@analyzer("What accept length would DFlash need?")
def from_recordings(recordings: Recordings) -> Answer | None:
    """What each pair of configurations needs to break even, what it has, and what its blocks can yield at most."""
    pairs = recordings.analysis.economics
    if not pairs:
        return None
    blocks = {trace.name: trace.provenance.block_size for trace in recordings.analysis.traces}
    rows = [_row(pair, row, blocks[row.speculative.trace]) for pair in pairs for row in pair.rows]
    names = ("accept length", "needed: measured", "by steps")
    numbers = [Column("concurrency", digits=0), *map(Column, names), Column("block", digits=0)]
    title = "Accept length; the one needed to break even, by measured throughput and by steps; tokens in a block"
    table = Table(title, [Column("recordings"), *numbers, Column("DFlash")], rows)
    said = [_needs(pair, blocks) for pair in pairs]
    swept = [pair for pair in pairs if len(pair.rows) > 1]
    return Answer(said, [table], [_needed_figure(swept)] if len(swept) > 1 else [])


def needed(pair: Economics, row: EconomicsRow) -> float:
    """The break-even accept length on the basis of the pair's verdict."""
    measured = row.measured_break_even if pair.decided_by == "measured" else None
    return row.break_even if measured is None else measured


def _name(pair: Economics) -> str:
    return f"{pair.speculative} against {pair.baseline}{'' if pair.graphs else ', without CUDA graphs'}"


def _beyond(pair: Economics, row: EconomicsRow, block: int | None) -> bool:
    """Whether a cycle would have to yield more tokens than it drafts and checks."""
    return row.outcome == "loses" and block is not None and needed(pair, row) > block


def _row(pair: Economics, row: EconomicsRow, block: int | None) -> tuple[Cell, ...]:
    word = f"{row.outcome} (> block)" if _beyond(pair, row, block) else row.outcome
    costs = row.measured_break_even, row.break_even
    return _name(pair), row.batch_size, row.speculative.accept_len, *costs, block, word


def _needs(pair: Economics, blocks: dict[str, int | None]) -> str:
    costs = listed([f"{needed(pair, row):.2f} at {row.batch_size}" for row in pair.rows])
    lengths = [row.speculative.accept_len for row in pair.rows]
    known = [f"{length:.2f}" for length in lengths if length is not None]
    has = f"has {listed(known)}" if len(known) == len(lengths) else "its accept length is unknown"
    source = "by measured throughput" if pair.decided_by == "measured" else "predicted from steps"
    text = f"{_name(pair)} needs an accept length of {costs}, {source}; {'it ' if known else ''}{has}."
    beyond = [str(row.batch_size) for row in pair.rows if _beyond(pair, row, blocks[row.speculative.trace])]
    if not beyond:
        return text
    block = blocks[pair.rows[-1].speculative.trace]
    return f"{text} At {listed(beyond)} that is more than blocks of {block} tokens can yield, whatever the drafter."


def _needed_figure(pairs: Sequence[Economics]) -> Lines:
    sizes = sorted({row.batch_size for pair in pairs for row in pair.rows})
    series = []
    for pair in pairs:
        rows = {row.batch_size: row for row in pair.rows}
        costs = [needed(pair, rows[size]) if size in rows else None for size in sizes]
        lengths = [rows[size].speculative.accept_len if size in rows else None for size in sizes]
        series.append(Series(f"{_name(pair)}: needed", costs))
        series.append(Series(f"{_name(pair)}: accept length", lengths, reference=True))
    return Lines("Accept length needed and reached", sizes, series, "concurrency", "tokens per cycle", log2=True)


@analyzer("Does DFlash pay, by throughput alone?", takes=Rates)
def from_throughput(rates: Rates) -> Answer | None:
    """Implied cost of a cycle and headroom of each speculative run against each plain one, at each concurrency."""
    plain = [run for run in rates.runs if run.accept_len is None]
    drafting = [run for run in rates.runs if run.accept_len is not None]
    if not plain or not drafting:
        return None
    said = [sentence for run in drafting for sentence in _sentences(run, plain, rates.concurrencies)]
    tables = [table for run in drafting for table in _tables(run, plain, rates.concurrencies)]
    return Answer(said, tables, [_figure(run, plain, rates.concurrencies) for run in drafting])


def break_even(run: Run, base: Run, at: str) -> float | None:
    """Cost of a cycle of ``run`` in steps of ``base``: accept length x plain rate / speculative rate."""
    mine, theirs = run.tokens_per_s.get(at), base.tokens_per_s.get(at)
    return run.accept_len * theirs / mine if run.accept_len and mine and theirs else None


def differences(run: Run, base: Run) -> list[str]:
    """What besides drafting tells ``run`` from ``base``, or may: ``graphs``, ``parallelism unknown``."""
    both = {"parallelism": (run.parallelism, base.parallelism), "graphs": (run.graphs, base.graphs)}
    return [f"{what} unknown" if None in of else what for what, of in both.items() if None in of or of[0] != of[1]]


def speedup(run: Run, base: Run, at: str) -> float | None:
    """Rate of ``run`` over that of ``base``; unknown where one was not noted."""
    mine, theirs = run.tokens_per_s.get(at), base.tokens_per_s.get(at)
    return mine / theirs if mine and theirs else None


def best_plain(run: Run, plain: Sequence[Run], places: Sequence[str]) -> dict[str, Run]:
    """The fastest plain run noted at each known concurrency that ``run`` was noted at too, whatever it differs in."""
    known = {at: [base for base in plain if speedup(run, base, at)] for at in places if at != PEAK}
    return {at: max(bases, key=lambda base: base.tokens_per_s[at]) for at, bases in known.items() if bases}


def _tables(run: Run, plain: Sequence[Run], places: Sequence[str]) -> Iterable[Table]:
    columns = [Column("against"), *(Column(f"at {at}") for at in places), Column("differs also in")]
    costs = {base.name: [break_even(run, base, at) for at in places] for base in plain}
    left = {name: [cost and (run.accept_len or 1) - cost for cost in own] for name, own in costs.items()}
    unlike = {base.name: ", ".join(differences(run, base)) or "nothing" for base in plain}
    for title, values in (
        (f"{run.name}: break-even accept length, or what a cycle costs in plain steps by these rates", costs),
        (f"Headroom: accept length {run.accept_len} minus break-even (above 0 it wins, close to 0 it is even)", left),
    ):
        yield Table(title, columns, [(name, *own, unlike[name]) for name, own in values.items()])


def _figure(run: Run, plain: Sequence[Run], places: Sequence[str]) -> Lines:
    known = [at for at in places if at != PEAK]
    series = [Series(base.name, [break_even(run, base, at) for at in known]) for base in plain]
    series.append(Series(f"accept length {run.accept_len}", [run.accept_len] * len(known), reference=True))
    title = f"{run.name}: break-even accept length"
    return Lines(title, known, series, "concurrency", "tokens per cycle", log2=True)


def _sentences(run: Run, plain: Sequence[Run], places: Sequence[str]) -> Iterable[str]:
    certain = {base.name: [what for what in differences(run, base) if "unknown" not in what] for base in plain}
    fair = min(plain, key=lambda base: (len(certain[base.name]), len(differences(run, base))))
    costs = [(at, cost) for at in places if at != PEAK and (cost := break_even(run, fair, at)) is not None]
    told = _told((at, speedup(run, fair, at)) for at, _ in costs)
    best = best_plain(run, plain, places)
    beside = "" if all(base is fair for base in best.values()) else f"; {_against_best(run, best)}"
    yield f"{run.name} against {fair.name}, the plain run most like it: drafting {told}{beside}."
    if costs:
        steps = listed([f"{cost:.2f} at {at}" for at, cost in costs])
        yield f"At these rates a cycle costs, in plain steps, {steps}, and yields {run.accept_len} tokens a request."
    unlike = [base.name for base in plain if "graphs" in certain[base.name]]
    if unlike:
        yield f"{listed(unlike)} and {run.name} differ in CUDA graphs: what tells them apart is not drafting alone."
    if unknown := [one.name for one in (fair, run) if one.graphs is None]:
        yield f"Whether {listed(unknown)} ran with CUDA graphs is unknown: graphs may be a part of the difference."
    if run.accept_len_range:
        low, high = run.accept_len_range
        yield (
            f"The accept length was measured between {low} and {high}: a longer one raises break-even and headroom "
            "alike, and changes no speed-up, which is one of rates alone."
        )
    if PEAK in places:
        yield "Under “at peak” stand the best rates, each at a concurrency that was not noted and may differ."


def _told(gains: Iterable[tuple[str, float | None]]) -> str:
    return outcomes_in_words((at, gain, outcome(gain)) for at, gain in gains)


def _against_best(run: Run, best: dict[str, Run]) -> str:
    names = dict.fromkeys(base.name for base in best.values())
    which = ", ".join(f"{name} at {listed([at for at, base in best.items() if base.name == name])}" for name in names)
    gains = [(at, speedup(run, base, at)) for at, base in best.items()]
    nowhere = "" if any(outcome(gain) == "wins" for _, gain in gains) else "wins nowhere: it "
    return f"against the best plain run at each concurrency ({which}) it {nowhere}{_told(gains)}"
