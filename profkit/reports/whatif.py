"""What-ifs as compact tables for a terminal, each ending in one sentence."""

from __future__ import annotations

import io
import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from profkit.analyzers.whatif.result import Economics, Outcome, RecordingWhatIf, Unrecorded, WhatIf
from profkit.analyzers.words import duration, listed, tokens
from profkit.traces import printable

from .whatif_rows import COLUMNS, micros, notes_on, row_now, row_of

FIXED = "\u00a0"
UNNAMED = ("lever", "change")
OF_PLAIN = ("× plain", "pays above")
SPARE = ("tokens/s", "pays above", "× plain", "change")
"""Columns that go one after the other where there is no room for all."""

UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|µs|ns|GB/s|%|–|times)(?:\W|$))|(?<=–) (?=\d)")
"""Spaces at which a figure is not broken over two lines."""

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

READING = (
    "bounds: what the lever itself leaves open, of the steps that were recorded; a dash where it leaves nothing open. "
    "What another server, other contexts or chance change is not in them: recorded steps may lie outside"
)
OF_TOKENS = (
    "per token: step / (batch size × accept length); from – to where the accept length then is not known, and the "
    "other columns are for the one now"
)
BESIDE_PLAIN = (
    "× plain: tokens/s over those of plain decoding of the same batch size; pays above: the accept length at which the "
    "two are as fast"
)


def render_what_if(found: WhatIf, width: int | None = None) -> str:
    """All recordings one after the other, and what was assumed. ``width`` in characters, else the terminal's."""
    out = io.StringIO()
    columns = width or min(max(shutil.get_terminal_size((110, 24)).columns, 80), 140)
    console = Console(file=out, width=columns, highlight=False)
    for recording in found.recordings:
        _recording(console, recording, bool(found.asked))
    _assumptions(console, found.recordings)
    answered = [recording for recording in found.recordings if recording.answers]
    if len(found.recordings) > 1 and answered:
        console.print()
        for recording in answered:
            _line(console, f"{recording.name}: {recording.text}")
    return out.getvalue().rstrip()


def _line(console: Console, text: str, style: str = "") -> None:
    """Broken into lines between words, but not between a figure and its unit."""
    kept = UNIT.sub(FIXED, printable(text))
    lines = textwrap.wrap(kept, console.width, break_long_words=False, break_on_hyphens=False)
    console.print("\n".join(lines).replace(FIXED, " "), markup=False, style=style)


def _recording(console: Console, recording: RecordingWhatIf, asked: bool) -> None:
    console.rule(f"[bold]{_plain(recording.name)}", align="left")
    if recording.now is None:
        _line(console, f"✗ {recording.text}")
        console.print()
        return
    _line(console, " · ".join(item.replace(" ", FIXED) for item in _headline(recording, recording.now)))
    _line(console, _basis(recording.unrecorded))
    if recording.answers:
        console.print()
        console.print(_table(recording, recording.now, asked, console.width))
        for note in notes_on(_outcomes(recording), recording.only_together):
            _line(console, note)
    _refusals(console, recording)
    console.print()
    if recording.answers:
        _line(console, recording.text, "bold")
        console.print()


def _refusals(console: Console, recording: RecordingWhatIf) -> None:
    """Each reason once; what is refused only alone is in the last row of the table all the same."""
    if recording.refused:
        console.print()
    used = [one.lever for one in recording.only_together]
    lines: dict[tuple[str, bool], list[str]] = {}
    for refusal in recording.refused:
        lines.setdefault((refusal.reason, refusal.lever in used), []).append(refusal.name)
    for (reason, alone), names in lines.items():
        said = f" alone: {reason}; “{_together(recording)}” uses it" if alone else f": {reason}"
        _line(console, f"! {', '.join(names)}{said}")


def _outcomes(recording: RecordingWhatIf) -> list[Outcome]:
    return [*recording.alone, *([recording.combined] if recording.combined else [])]


def _plain(text: str) -> str:
    return printable(text).replace("[", r"\[")


def _headline(recording: RecordingWhatIf, now: Economics) -> list[str]:
    said = [f"{recording.kind} decoding"]
    if recording.batch_size:
        said.append(f"batch {recording.batch_size}")
    if recording.block_size:
        said.append(f"block {recording.block_size}")
    if recording.kind == "speculative" and now.accept_len:
        said.append(f"accept length {tokens(now.accept_len.usual)}")
    step, recorded = duration(now.step_ns.usual), duration(recording.recorded_ns or 0)
    said.append(f"step {step}" if step == recorded else f"step {step} as replayed, {recorded} recorded")
    if now.us_per_token and now.tokens_per_s:
        said.append(f"{micros(now.us_per_token.usual)} per token, {now.tokens_per_s.usual:,.0f} tokens/s")
    if now.speedup and now.break_even_accept_len:
        beside = "; ".join(filter(None, (recording.baseline, recording.baseline_unlike)))
        said.append(f"{now.speedup.usual:.2f} × plain decoding ({beside})")
        said.append(f"pays above accept length {now.break_even_accept_len.usual:.2f}")
    return said


def _basis(without: Unrecorded | None) -> str:
    """What all figures rest on, and what ``analyze`` says without a recorder."""
    said = []
    if without and without.step_ns:
        said.append(f"step {duration(without.step_ns)}")
    if without and without.tokens_per_s:
        said.append(f"{without.tokens_per_s:,.0f} tokens/s with prefills")
    costs = (
        [(without.break_even_accept_len, "by steps"), (without.throughput_break_even, "by throughput")]
        if without
        else []
    )
    if paying := [f"{cost:.2f} {by}" for cost, by in costs if cost]:
        said.append(f"pays above {listed(paying)}")
    return f"steps as recorded; without a recorder analyze says: {', '.join(said)}" if said else "steps as recorded"


def _table(recording: RecordingWhatIf, now: Economics, asked: bool, width: int) -> Table:
    title = "What if" if asked else "What would make a token cheaper, each alone, the surest first"
    rows = [("dim", row_now("now", now))]
    for outcome in _outcomes(recording):
        name = _together(recording) if outcome is recording.combined else _plain(outcome.name)
        rows.append(("bold" if outcome is recording.combined else "", row_of(name, outcome, now)))
    kept, apart = _fitting([cells for _, cells in rows], () if now.speedup else OF_PLAIN, width)
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.padding = 0, apart, 0, 0
    for place, column in enumerate(kept):
        table.add_column("" if column in UNNAMED else column, justify="right" if place else "left", no_wrap=True)
    for style, cells in rows:
        table.add_row(*(cells[COLUMNS.index(column)] for column in kept), style=style)
    return table


def _fitting(rows: Sequence[Sequence[str]], without: Sequence[str], width: int) -> tuple[list[str], int]:
    """The columns that there is room for, and how far apart: space goes first, then what others say as well."""
    kept = [name for name in COLUMNS if name not in without]
    wide = {
        name: max(cell_len(text) for text in ("" if name in UNNAMED else name, *(row[place] for row in rows)))
        for place, name in enumerate(COLUMNS)
    }
    for name in (None, *SPARE):
        kept = [one for one in kept if one != name]
        for apart in (2, 1):
            if sum(wide[one] + apart for one in kept) - apart <= width:
                return kept, apart
    return kept, 1


def _together(recording: RecordingWhatIf) -> str:
    """What the combination is called; what is left out, and why, is said below the table."""
    return f"all but {len(recording.left_out)} refused" if recording.left_out else "all together"


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
    """How to read the columns, and assumptions by lever, each once.

    What is said of one recording only names it where others say something else.
    """
    answered = [one for one in recordings if one.answers]
    if not answered:
        return {}
    beside = any(one.now is not None and one.now.speedup is not None for one in answered)
    general = dict.fromkeys(line for one in answered for line in one.assumptions)
    said = {name: list(lines.items()) for name, lines in _by_lever(answered, list(general)).items()}
    times = Counter(line for lines in said.values() for line, _ in lines)
    found = {"columns": [READING, OF_TOKENS, *([BESIDE_PLAIN] if beside else [])], "replay": list(general)}
    shared = {line: [name for name in said if line in dict(said[name])] for line, count in times.items() if count > 1}
    if shared:
        found["several"] = [f"{listed(names)}: {line}" for line, names in shared.items()]
    for name, lines in said.items():
        found[name] = [_of(line, whose, len(answered)) for line, whose in lines if line not in shared]
    return {name: lines for name, lines in found.items() if lines}


def _by_lever(answered: Sequence[RecordingWhatIf], general: Sequence[str]) -> dict[str, dict[str, str]]:
    """What each lever assumes, and of which recording, if of one only."""
    found: dict[str, dict[str, str]] = {}
    for one in answered:
        assumed = [(outcome.levers[0], outcome.assumptions) for outcome in one.alone]
        assumed += [(lever.lever, lever.assumptions) for lever in one.only_together]
        for name, assumptions in assumed:
            lines = found.setdefault(WORDS.get(name, name), {})
            for line in assumptions:
                if line not in general:
                    lines[line] = one.name if line not in lines or lines[line] == one.name else ""
    return found


def _of(line: str, whose: str, answered: int) -> str:
    return f"{line} ({whose})" if whose and answered > 1 else line
