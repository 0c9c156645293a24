"""``profkit analyze``."""

from __future__ import annotations

from pathlib import Path

import click

from profkit.analyzers import Analysis, analyze, load_rules

from .common import INCONCLUSIVE, AcceptLength, recordings_at


@click.command("analyze")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON (schema profkit.analysis/1).")
@click.option("--rules", type=click.Path(path_type=Path), help="TOML file with rules of your own; see docs/rules.md.")
@click.option("--accept-len", type=AcceptLength(), help="Tokens accepted per cycle, as the server reports it.")
def command(paths: tuple[Path, ...], as_json: bool, rules: Path | None, accept_len: float | None) -> int:
    """Say where the time of each decode step went, and what holds it back.

    PATH is a bundle, a sweep, an Nsight Systems report (.nsys-rep) or export (SQLite, Parquet folder), or PyTorch
    profiler JSON (a file, or a folder with one file per rank). Exit status 3 if a recording cannot answer.
    """
    analysis, _ = analyze(recordings_at(paths), load_rules(rules), accept_len)
    click.echo(_as_json(analysis) if as_json else _as_text(analysis))
    return INCONCLUSIVE if any(trace.health.status == "abstain" for trace in analysis.traces) else 0


def _as_json(analysis: Analysis) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(analysis), indent=1).decode()


def _as_text(analysis: Analysis) -> str:
    from profkit.reports.terminal import render_terminal

    return render_terminal(analysis)
