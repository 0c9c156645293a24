"""``profkit demo``."""

from __future__ import annotations

from pathlib import Path

import click

from profkit.analyzers import analyze, load_rules
from profkit.traces import InputError, printable

from .common import recordings_at
from .report import write_report


@click.command("demo")
@click.option("--traces", default="traces", type=click.Path(path_type=Path), help="Folder of recordings.")
@click.option("--reports", default="reports", type=click.Path(path_type=Path), help="Folder for the pages.")
def command(traces: Path, reports: Path) -> None:
    """Analyse every recording of this workspace, say what comes of it, and write one page of them all and one of each.

    `profkit analyze PATH` shows the tables of a recording.
    """
    from profkit.reports.terminal import render_answers

    paths = tuple(sorted(path for path in traces.glob("*") if path.is_dir() and not path.name.startswith(".")))
    if not paths:
        advice = "record one with `profkit capture`, or name another folder with --traces"
        raise InputError(traces, "holds no recording" if traces.is_dir() else "no such folder", advice)
    analysis, _ = analyze(recordings_at(paths), load_rules())
    click.echo(f"{render_answers(analysis)}\n")
    pages = [write_report(paths, reports / "all.html", None, None)]
    pages += [write_report((path,), reports / f"{path.name}.html", None, None) for path in paths]
    click.echo("Pages (open them in a browser):")
    for page in pages:
        click.echo(f"  {printable(str(page))}")
