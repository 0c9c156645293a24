"""Does DFlash pay? The study that profkit began with, as an analyzer of this workspace.

A speculative cycle costs as much time as so many plain steps, and yields as many tokens as the accept length. It pays
where the accept length is above that cost, the break-even accept length; the difference is the headroom.
"""

from collections.abc import Iterable, Sequence

from profkit.analyzer import PEAK, Answer, Cell, Column, Comparison, Lines, Recordings, Series, Table, analyzer, listed
from profkit.analyzer import ThroughputRun as Run
from profkit.analyzer import ThroughputTable as Rates

EVEN = 0.02
"""Speed-ups this close to 1 count as even: the rates of one server differ by as much from run to run."""


def verdict(speedup: float | None) -> str | None:
    """Whether drafting ``wins``, ``loses`` or is ``even``."""
    if speedup is None:
        return None
    return "even" if abs(speedup - 1) < EVEN else "wins" if speedup > 1 else "loses"


def in_words(speedups: Iterable[tuple[object, float | None]]) -> str:
    """Where drafting wins and where it loses: ``wins at 1 (1.32×) and loses at 128 (0.78×)``."""
    known = [(verdict(value), f"{at} ({value:.2f}×)") for at, value in speedups if value is not None]
    places = {word: [at for other, at in known if other == word] for word in ("wins", "even", "loses")}
    said = [f"{'is even' if word == 'even' else word} at {listed(found)}" for word, found in places.items() if found]
    return listed(said) if said else "cannot be compared"


@analyzer("Does DFlash pay?")
def from_recordings(recordings: Recordings) -> Answer | None:
    """Break-even and headroom of speculative recordings that have a plain one of the same batch size beside them."""
    lengths = {trace.name: trace.cycle.accept_len for trace in recordings.analysis.traces}
    groups: dict[str, dict[int, Comparison]] = {}
    for pair in recordings.analysis.comparisons:
        sweeps = [name.rpartition("/")[0] or name for name in (pair.speculative, pair.baseline)]
        groups.setdefault(" against ".join(sweeps), {}).setdefault(pair.batch_size, pair)
    if not groups:
        return None
    batches = sorted({batch for own in groups.values() for batch in own})
    rows: list[tuple[Cell, ...]] = []
    said, series = [], []
    for name, own in groups.items():
        found = [own[batch] for batch in batches if batch in own]
        rows += [_row(name, pair, lengths[pair.speculative]) for pair in found]
        said.append(f"{name}: drafting {in_words((f'batch {pair.batch_size}', _speedup(pair)) for pair in found)}.")
        costs = {pair.batch_size: pair.break_even_accept_len for pair in found}
        accepted = {pair.batch_size: lengths[pair.speculative] for pair in found}
        series.append(Series(f"{name}: break-even", [costs.get(batch) for batch in batches]))
        series.append(Series(f"{name}: accept length", [accepted.get(batch) for batch in batches], reference=True))
    names = ("break-even", "accept length", "headroom", "predicted", "measured", "DFlash")
    columns = [Column("recordings"), Column("batch", digits=0), *map(Column, names)]
    title = "Break-even accept length (a cycle in plain steps), headroom, and speed-up predicted and measured"
    table = Table(title, columns, rows)
    said.append("Rates measured without a recorder, where there are any, decide.")
    figure = Lines("Break-even and accept length", batches, series, "batch size", "tokens per cycle")
    return Answer(said, [table], [figure])


def _speedup(pair: Comparison) -> float | None:
    return pair.predicted_speedup if pair.measured_speedup is None else pair.measured_speedup


def _row(name: str, pair: Comparison, accept_len: float | None) -> tuple[Cell, ...]:
    unlike = "" if pair.same_graphs else ", of which one ran without CUDA graphs"
    headroom = None if accept_len is None else accept_len - pair.break_even_accept_len
    speedups = pair.predicted_speedup, pair.measured_speedup, verdict(_speedup(pair))
    return f"{name}{unlike}", pair.batch_size, pair.break_even_accept_len, accept_len, headroom, *speedups


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


def _tables(run: Run, plain: Sequence[Run], places: Sequence[str]) -> Iterable[Table]:
    columns = [Column("against"), *(Column(f"at {at}") for at in places), Column("differs also in")]
    costs = {base.name: [break_even(run, base, at) for at in places] for base in plain}
    left = {name: [cost and (run.accept_len or 1) - cost for cost in own] for name, own in costs.items()}
    unlike = {base.name: ", ".join(differences(run, base)) or "nothing" for base in plain}
    for title, values in (
        (f"{run.name}: a cycle in plain steps, which is the break-even accept length", costs),
        (f"Headroom of accept length {run.accept_len}: drafting loses where it is below 0", left),
    ):
        yield Table(title, columns, [(name, *own, unlike[name]) for name, own in values.items()])


def _figure(run: Run, plain: Sequence[Run], places: Sequence[str]) -> Lines:
    known = [at for at in places if at != PEAK]
    series = [Series(base.name, [break_even(run, base, at) for at in known]) for base in plain]
    series.append(Series(f"accept length {run.accept_len}", [run.accept_len] * len(known), reference=True))
    return Lines(f"{run.name}: break-even accept length", known, series, "concurrency", "tokens per cycle")


def _sentences(run: Run, plain: Sequence[Run], places: Sequence[str]) -> Iterable[str]:
    certain = {base.name: [what for what in differences(run, base) if "unknown" not in what] for base in plain}
    fair = min(plain, key=lambda base: (len(certain[base.name]), len(differences(run, base))))
    costs = [(at, cost) for at in places if at != PEAK and (cost := break_even(run, fair, at)) is not None]
    gains = [(at, (run.accept_len or 1) / cost) for at, cost in costs]
    yield f"{run.name} against {fair.name}, the plain run most like it: drafting {in_words(gains)}."
    if costs:
        steps = listed([f"{cost:.2f} at {at}" for at, cost in costs])
        yield f"At accept length {run.accept_len}, a cycle costs {steps} plain steps: it pays above that length."
    unlike = [base.name for base in plain if "graphs" in certain[base.name]]
    if unlike:
        yield f"Graphs against no graphs is no fair comparison of drafting: not against {listed(unlike)}."
    if unknown := [one.name for one in (fair, run) if one.graphs is None]:
        yield f"Whether {listed(unknown)} ran with CUDA graphs is unknown: they may be a part of the difference."
    if run.accept_len_range:
        low, high = run.accept_len_range
        yield f"The accept length was measured as {low} to {high}: costs scale with it, and verdicts do not."
    if PEAK in places:
        yield "The concurrency at peak is unknown, and may differ between runs: that column compares their best rates."
