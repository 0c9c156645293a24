"""What-ifs as compact tables for a terminal, each ending in one sentence."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from profkit.analyzers.whatif.result import Economics, Figure, RecordingWhatIf, Span, WhatIf
from profkit.analyzers.words import duration, tokens
from profkit.traces import printable

NOTHING = "–"
MINUS = "\u2212"
BOUND = " *"
COLUMNS = ("lever", "step", "change", "bounds", "per token", "tokens/s", "× plain", "pays above")
UNNAMED = ("lever", "change")
OF_PLAIN = ("× plain", "pays above")
OF_WIDE = ("tokens/s", "pays above")
WIDE, ROOMY = 96, 108
"""From so many characters on there is room for all columns, and for more space between them."""

WORDS = {
    "accept_len": "accept length",
    "block_size": "block size",
    "link": "link",
    "collective": "all-reduce",
    "graphs": "CUDA graphs",
    "align_launches": "alignment",
    "overlap_draft": "overlap",
}
"""What levers are called beside what they assume."""


def render_what_if(found: WhatIf, width: int | None = None) -> str:
    """All recordings one after the other, and what was assumed. ``width`` in characters, else the terminal's."""
    out = io.StringIO()
    columns = width or min(max(shutil.get_terminal_size((110, 24)).columns, 80), 140)
    console = Console(file=out, width=columns, highlight=False)
    for recording in found.recordings:
        _recording(console, recording, bool(found.asked))
    _assumptions(console, found.recordings)
    if len(found.recordings) > 1:
        console.print()
        for recording in found.recordings:
            _line(console, f"{recording.name}: {recording.text}")
    return out.getvalue().rstrip()


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(printable(text), markup=False, style=style)


def _recording(console: Console, recording: RecordingWhatIf, asked: bool) -> None:
    console.rule(f"[bold]{_plain(recording.name)}", align="left")
    if recording.now is None:
        _line(console, f"✗ {recording.text}")
        console.print()
        return
    _line(console, _headline(recording, recording.now))
    if recording.alone:
        console.print()
        console.print(_table(recording, recording.now, asked, console.width))
        if any(outcome.bound for outcome in recording.alone):
            _line(console, "* a bound, no prediction")
    if recording.refused:
        console.print()
    for reason in dict.fromkeys(refusal.reason for refusal in recording.refused):
        names = [refusal.name for refusal in recording.refused if refusal.reason == reason]
        _line(console, f"! {', '.join(names)}: {reason}")
    console.print()
    _line(console, recording.text, "bold")
    console.print()


def _plain(text: str) -> str:
    return printable(text).replace("[", r"\[")


def _headline(recording: RecordingWhatIf, now: Economics) -> str:
    said = [f"{recording.kind} decoding"]
    if recording.batch_size:
        said.append(f"batch {recording.batch_size}")
    if recording.block_size:
        said.append(f"block {recording.block_size}")
    if recording.kind == "speculative" and now.accept_len:
        said.append(f"accept length {tokens(now.accept_len.usual)}")
    said.append(f"step {duration(now.step_ns.usual)} as replayed, {duration(recording.recorded_ns or 0)} recorded")
    if now.us_per_token and now.tokens_per_s:
        said.append(f"{_micros(now.us_per_token.usual)} per token, {now.tokens_per_s.usual:,.0f} tokens/s")
    if now.speedup and now.break_even_accept_len:
        said.append(
            f"{now.speedup.usual:.2f} × plain decoding ({recording.baseline}), pays above accept length "
            f"{now.break_even_accept_len.usual:.2f}"
        )
    return " · ".join(said)


def _table(recording: RecordingWhatIf, now: Economics, asked: bool, width: int) -> Table:
    combined = recording.combined
    outcomes = [*recording.alone, *([combined] if combined else [])]
    title = "What if" if asked else "What would make a token cheaper, each alone"
    apart = (0, 2 if width >= ROOMY else 1, 0, 0)
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=apart)
    left_out = (*(OF_WIDE if width < WIDE else ()), *(() if now.speedup else OF_PLAIN))
    kept = [name for name in COLUMNS if name not in left_out]
    for place, column in enumerate(kept):
        table.add_column("" if column in UNNAMED else column, justify="right" if place else "left", no_wrap=True)

    def add(style: str, name: str, then: Economics) -> None:
        cells = dict(zip(COLUMNS, _row(name, then, now), strict=True))
        table.add_row(*(cells[column] for column in kept), style=style)

    add("dim", "now", now)
    for outcome in outcomes:
        name = "all together" if outcome is combined else _plain(outcome.name) + (BOUND if outcome.bound else "")
        add("bold" if outcome is combined else "", name, outcome.then)
    return table


def _row(name: str, then: Economics, now: Economics) -> list[str]:
    step = then.step_ns.usual
    return [
        name,
        duration(step),
        "" if then is now else _percent(step / now.step_ns.usual - 1),
        "" if then is now else _bounds(then.step_ns),
        _cost(then),
        f"{then.tokens_per_s.usual:,.0f}" if then.tokens_per_s else NOTHING,
        _figure(then.speedup),
        _figure(then.break_even_accept_len),
    ]


def _cost(then: Economics) -> str:
    """What a token takes; from the least to the most where the accept length is not known."""
    if then.us_per_token is None or then.accept_len is None:
        return NOTHING
    if then.accept_len.low == then.accept_len.high:
        return _micros(then.us_per_token.usual)
    return _between(_micros(then.us_per_token.low), _micros(then.us_per_token.high))


def _figure(figure: Figure | None) -> str:
    return f"{figure.usual:.2f}" if figure else NOTHING


def _bounds(step: Span) -> str:
    """Both bounds; nothing where they are one."""
    low, high = duration(step.low), duration(step.high)
    return NOTHING if low == high else _between(low, high)


def _between(low: str, high: str) -> str:
    """Two figures with their unit, which is written once where it is the same."""
    same = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return f"{low.rpartition(' ')[0] if same else low} – {high}"


def _percent(change: float) -> str:
    if abs(change) < 0.0005:
        return "as now"
    digits = 0 if abs(change) >= 0.0995 else 1
    return f"{100 * change:+.{digits}f} %".replace("-", MINUS)


def _micros(us: float) -> str:
    return duration(us * 1e3)


def _assumptions(console: Console, recordings: Sequence[RecordingWhatIf]) -> None:
    """What the replay and each lever assume, once."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, lines in _assumed(recordings).items():
        for place, line in enumerate(lines):
            table.add_row("" if place else name, _plain(line))
    if table.row_count:
        console.rule("[bold]assumed", align="left")
        console.print(table)


def _assumed(recordings: Sequence[RecordingWhatIf]) -> dict[str, list[str]]:
    """Assumptions by lever; what is said of one recording only names it where others say something else."""
    answered = [one for one in recordings if one.now]
    general = dict.fromkeys(line for one in answered for line in one.assumptions)
    found = {"replay": dict.fromkeys(general, "")}
    for one in answered:
        for outcome in one.alone:
            lines = found.setdefault(WORDS.get(outcome.levers[0], outcome.levers[0]), {})
            for line in outcome.assumptions:
                if line not in general:
                    lines[line] = one.name if line not in lines or lines[line] == one.name else ""
    return {name: [_of(line, whose, len(answered)) for line, whose in lines.items()] for name, lines in found.items()}


def _of(line: str, whose: str, answered: int) -> str:
    return f"{line} ({whose})" if whose and answered > 1 else line
