"""``profkit report``."""

from __future__ import annotations

from pathlib import Path

import click

from profkit.analyzers import analyze, load_rules
from profkit.analyzers.custom import Recordings
from profkit.traces import printable

from .common import AcceptLength, recordings_at, write_whole
from .workspace import ask_workspace, split_tables


@click.command("report")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The page [reports/NAME.html].")
@click.option("--rules", type=click.Path(path_type=Path), help="TOML file with rules of your own; see docs/rules.md.")
@click.option("--accept-len", type=AcceptLength(), help="Tokens accepted per cycle, as the server reports it.")
def command(paths: tuple[Path, ...], output: Path | None, rules: Path | None, accept_len: float | None) -> None:
    """Draw recordings as one HTML page: verdict, budget, flame graphs, timeline, collectives, graphs.

    The page needs no network and no other file. Several recordings stand side by side in it. Analyzers in the folder
    analyzers/ of this directory are asked too, also about throughput tables (TOML): see docs/analyzers.md.
    Exit status 3, and no page, if none has an answer to tables alone.
    """
    click.echo(printable(str(write_report(paths, output, rules, accept_len))))


def write_report(paths: tuple[Path, ...], output: Path | None, rules: Path | None, accept_len: float | None) -> Path:
    """Write the page of ``paths`` and return where it is."""
    from profkit.reports.custom import render_answers
    from profkit.reports.html import render_report

    traced, tables = split_tables(paths)
    recordings = recordings_at(traced)
    analysis, attributions = analyze(recordings, load_rules(rules), accept_len)
    answers = ask_workspace(Recordings(analysis, attributions), tables)
    name = recordings[0].name if len(recordings) == 1 else paths[0].resolve().name.split(".")[0]
    target = output or Path("reports") / f"{name.replace('/', '-').strip('.-') or 'report'}.html"
    results = list(zip(analysis.traces, attributions, strict=True))
    write_whole(target, render_report(results, analysis, answers) if results else render_answers(answers))
    return target
