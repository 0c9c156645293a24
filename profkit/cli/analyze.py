"""``profkit analyze``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from profkit.analyzers import Analysis, analyze, load_rules
from profkit.analyzers.custom import Answered, Recordings

from .common import INCONCLUSIVE, AcceptLength, recordings_at
from .workspace import ask_workspace, split_tables


@click.command("analyze")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON (schema profkit.analysis/1).")
@click.option("--rules", type=click.Path(path_type=Path), help="TOML file with rules of your own; see docs/rules.md.")
@click.option("--accept-len", type=AcceptLength(), help="Tokens accepted per cycle, as the server reports it.")
def command(paths: tuple[Path, ...], as_json: bool, rules: Path | None, accept_len: float | None) -> int:
    """Say where the time of each decode step went, and what holds it back.

    PATH is a bundle, a sweep, an Nsight Systems report (.nsys-rep) or export (SQLite, Parquet folder), or PyTorch
    profiler JSON (a file, or a folder with one file per rank). Analyzers in the folder analyzers/ of this directory
    are asked too; some take a throughput table (TOML) as PATH: see docs/analyzers.md. Exit status 3 if a recording
    cannot answer, or no analyzer has an answer to the tables alone.
    """
    traced, tables = split_tables(paths)
    analysis, attributions = analyze(recordings_at(traced), load_rules(rules), accept_len)
    answers = ask_workspace(Recordings(analysis, attributions), tables)
    click.echo(_as_json(analysis, answers) if as_json else _as_text(analysis, answers))
    return INCONCLUSIVE if any(trace.health.status == "abstain" for trace in analysis.traces) else 0


def _as_json(analysis: Analysis, answers: Sequence[Answered]) -> str:
    import msgspec

    whole = {**msgspec.structs.asdict(analysis), "answers": answers}
    return msgspec.json.format(msgspec.json.encode(whole), indent=1).decode()


def _as_text(analysis: Analysis, answers: Sequence[Answered]) -> str:
    from profkit.reports.terminal import render_terminal

    return render_terminal(analysis, answers=answers)
