"""``profkit capture``."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.traces import ProfkitError, Sweep, SweepRun, UsageError
from profkit.traces.sweep import failures_in_words, is_sweep, load_sweep

from .common import INCONCLUSIVE

if TYPE_CHECKING:
    from profkit.capture import Plan
    from profkit.capture.plan import Pass
    from profkit.capture.settings import GraphMode


@click.command("capture")
@click.option("--config", help="Name of a configuration (see --list), or a TOML file; see docs/capture.md.")
@click.option("--conc", default="1,32,128", show_default=True, help="Concurrencies: requests in flight, in this order.")
@click.option(
    "--backend", default="nsys", show_default=True, help="Recorder: nsys, cupti or torch; or several: nsys,cupti."
)
@click.option("--graphs", type=click.Choice(["on", "off", "both"]), help="CUDA graphs [the configuration's; else on].")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting: server.tp_size=2.")
@click.option(
    "--without-weights", metavar="SHAPE[:LAYERS]", help="A generated model in place of the configuration's own."
)
@click.option("--steps", type=click.IntRange(min=3), help="Decode steps in each recording [8].")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder of the sweep [traces/NAME-STAMP].")
@click.option(
    "--keep-raw",
    is_flag=True,
    help="Keep reports that cannot be imported, in raw/. Those of nsys hold the server's whole environment.",
)
@click.option("--dry-run", is_flag=True, help="Show the exact plan, say if a recorder is missing, and start nothing.")
@click.option("--list", "list_only", is_flag=True, help="Show the configurations that come with profkit.")
def command(
    config: str | None,
    conc: str,
    backend: str,
    graphs: GraphMode | None,
    overrides: tuple[str, ...],
    without_weights: str | None,
    steps: int | None,
    output: Path | None,
    keep_raw: bool,
    dry_run: bool,
    list_only: bool,
) -> int:
    """Start SGLang, load it, and record a steady window at each concurrency, as a sweep that the other commands read.

    Needs the extra `profkit[capture]`, an installed SGLang, and what the recorder needs: Nsight Systems for nsys, CUPTI
    for cupti, nothing more for torch; `profkit doctor` tells what this host has. Ctrl-C stops cleanly and keeps what is
    recorded. Exit status 2 if the server failed (the sweep then holds how), 3 if nothing could be recorded. The table
    at the end names windows that failed and concurrencies that were not tried.
    """
    try:
        from profkit import capture
    except ModuleNotFoundError as error:
        raise UsageError(f"capture needs {error.name}, which is missing: pip install 'profkit[capture]'") from error
    if list_only:
        for name in capture.preset_names():
            click.echo(f"{name:<12} {capture.load_settings(name).description}")
        return 0
    if config is None:
        raise UsageError("give --config NAME or FILE.toml; `profkit capture --list` shows the names")
    settings = capture.load_settings(config, overrides, steps, without_weights)
    folder = (output or Path("traces") / f"{settings.name}-{time.strftime('%Y%m%d-%H%M%S')}").absolute()
    backends = [name.strip() for name in backend.split(",")]
    plan = capture.make_plan(
        settings, _concurrencies(conc), folder, graphs=graphs, backends=backends, keep_raw=keep_raw
    )
    if dry_run:
        click.echo(capture.dry_run(plan))
        capture.check_recorders(plan)
        return 0
    try:
        command_line = _command_line(settings.env)
        record = capture.capture(plan, command_line, lambda line: click.echo(line, err=True), ends_program=True)
    except (ProfkitError, KeyboardInterrupt):
        if is_sweep(folder):
            click.echo(_summary(output or folder, load_sweep(folder), plan))
        raise
    click.echo(_summary(output or folder, record.sweep, plan))
    return 0 if any(run.trace for run in record.sweep.runs) else INCONCLUSIVE


def _concurrencies(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--conc {text}: give numbers with commas, such as 1,32,128") from error


def _command_line(variables: Mapping[str, str]) -> str:
    """The command as given, without secrets; ``variables`` are those of the configuration."""
    from profkit.capture.secrets import Scrubber, shown_word

    scrub = Scrubber({**os.environ, **variables})
    return scrub(shlex.join(["profkit", *map(shown_word, sys.argv[1:])]))


def _summary(folder: Path, sweep: Sweep, plan: Plan) -> str:
    """What came of each window of the plan: also of those that failed, and of those that were not reached."""
    lines = [f"{folder}: {sweep.config}, {sweep.engine}{f'; {sweep.note}' if sweep.note else ''}"]
    ran = {(run.concurrency, run.graphs, run.recorder): run for run in sweep.runs}
    wanted = [(concurrency, one) for one in plan.passes for concurrency in plan.concurrencies]
    several = len(plan.backends) > 1
    lines += [
        f"{_name(concurrency, one, several)} {_fate(ran.get((concurrency, one.graphs, one.recorder)))}"
        for concurrency, one in wanted
    ]
    lines += [f"  server failed: {failure}" for failure in failures_in_words(sweep)]
    recorded = sum(1 for run in sweep.runs if run.trace)
    lines.append(f"{recorded} of {len(wanted)} windows recorded")
    return "\n".join([*lines, f"next: profkit report {folder}"] if recorded else lines)


def _name(concurrency: int, one: Pass, several: bool) -> str:
    """The columns that tell a window; the recorder's only where there are ``several``."""
    recorder = f" {one.recorder:<5}" if several else ""
    return f"  c{concurrency:<4} {'graphs' if one.graphs else 'eager':<7}{recorder}"


def _fate(run: SweepRun | None) -> str:
    if run is None:
        return "not tried"
    rate = f"{run.tokens_per_s:,.0f} tok/s" if run.tokens_per_s is not None else "not measured"
    accepted = f", accept length {run.accept_len:.2f}" if run.accept_len is not None else ""
    fault = "" if run.trace and not run.failure else f"; {run.failure or 'not recorded'}"
    return f"{rate}{accepted}{fault}"
