"""``profkit capture``."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.traces import UsageError

from .common import INCONCLUSIVE

if TYPE_CHECKING:
    from profkit.capture.settings import GraphMode
    from profkit.traces import Sweep


@click.command("capture")
@click.option("--config", help="Name of a configuration (see --list), or a TOML file; see docs/capture.md.")
@click.option("--conc", default="1,32,128", show_default=True, help="Concurrencies: requests in flight, in this order.")
@click.option("--backend", type=click.Choice(["nsys"]), default="nsys", show_default=True, help="The recorder.")
@click.option("--graphs", type=click.Choice(["on", "off", "both"]), help="CUDA graphs [the configuration's; else on].")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting: server.tp_size=2.")
@click.option("--steps", type=click.IntRange(min=3), help="Decode steps in each recording [8].")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder of the sweep [traces/NAME-STAMP].")
@click.option("--dry-run", is_flag=True, help="Show the exact plan, and start nothing.")
@click.option("--list", "list_only", is_flag=True, help="Show the configurations that come with profkit.")
def command(
    config: str | None,
    conc: str,
    backend: str,
    graphs: GraphMode | None,
    overrides: tuple[str, ...],
    steps: int | None,
    output: Path | None,
    dry_run: bool,
    list_only: bool,
) -> int:
    """Start SGLang, load it, and record a steady window at each concurrency, as a sweep that the other commands read.

    Needs the extra `profkit[capture]`, an installed SGLang, and Nsight Systems. Ctrl-C stops cleanly and keeps what is
    recorded. Exit status 2 if the server failed (the sweep then holds how), 3 if nothing could be recorded.
    """
    from profkit import capture

    if list_only:
        for name in capture.preset_names():
            click.echo(f"{name:<12} {capture.load_settings(name).description}")
        return 0
    if config is None:
        raise UsageError("give --config NAME or FILE.toml; `profkit capture --list` shows the names")
    settings = capture.load_settings(config, overrides, steps)
    folder = output or Path("traces") / f"{settings.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    plan = capture.make_plan(settings, _concurrencies(conc), folder.absolute(), graphs=graphs, backend=backend)
    if dry_run:
        click.echo(capture.dry_run(plan))
        return 0
    record = capture.capture(plan, _command_line(), lambda line: click.echo(line, err=True))
    click.echo(_summary(folder, record.sweep))
    return 0 if any(run.trace for run in record.sweep.runs) else INCONCLUSIVE


def _concurrencies(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--conc {text}: give numbers with commas, such as 1,32,128") from error


def _command_line() -> str:
    """The command as given, without the values of what may be a secret."""
    from profkit.capture.secrets import shown

    def word(text: str) -> str:
        name, separator, value = text.partition("=")
        return f"{name}={shown(name.rpartition('.')[2], value)}" if separator else text

    return shlex.join(["profkit", *map(word, sys.argv[1:])])


def _summary(folder: Path, sweep: Sweep) -> str:
    lines = [f"{folder}: {sweep.config}, {sweep.engine}"]
    for run in sweep.runs:
        graphs = "graphs" if run.graphs else "eager"
        rate = f"{run.tokens_per_s:,.0f} tok/s" if run.tokens_per_s is not None else "not measured"
        accepted = f", accept length {run.accept_len:.2f}" if run.accept_len is not None else ""
        lines.append(f"  c{run.concurrency:<4} {graphs:<7} {rate}{accepted}{f'; {run.failure}' if run.failure else ''}")
    return "\n".join([*lines, f"next: profkit report {folder}"])
