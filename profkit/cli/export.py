"""``profkit export``."""

from __future__ import annotations

from pathlib import Path

import click

from profkit.analyzers import Attribution, attribute, load_rules
from profkit.traces import InputError, UsageError, open_recordings, printable

from .common import whole_file, write_whole

SUFFIXES = {"perfetto": "json", "speedscope": "speedscope.json", "folded": "folded", "csv": "csv", "parquet": "parquet"}

FLAMES = ("speedscope", "folded")


@click.command("export")
@click.argument("form", type=click.Choice(list(SUFFIXES)), metavar="FORMAT")
@click.argument("path", type=click.Path(path_type=Path), metavar="PATH")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file [NAME.SUFFIX].")
@click.option("--rules", type=click.Path(path_type=Path), help="TOML file with rules of your own; see docs/rules.md.")
def command(form: str, path: Path, output: Path | None, rules: Path | None) -> None:
    """Write a recording for another tool, with phases, classes and gaps attributed.

    FORMAT is perfetto (timeline), speedscope or folded (flame graphs of GPU time), csv or parquet (one row per GPU
    activity).
    """
    opened = open_recordings(path)
    if len(opened) > 1:
        raise UsageError(f"{path}: a sweep with {len(opened)} recordings; name one, such as {opened[0].path}")
    target = output or Path(f"{opened[0].name.replace('/', '-')}.{SUFFIXES[form]}")
    attribution = attribute(opened[0].trace, load_rules(rules))
    if form in FLAMES:
        _refuse_without_steps(path, attribution)
    if form == "parquet":
        _write_parquet(attribution, target)
    else:
        write_whole(target, _text(form, attribution, opened[0].name))
    click.echo(printable(str(target)))


def _refuse_without_steps(path: Path, attribution: Attribution) -> None:
    """A flame graph shows the GPU work of decode steps; raises ``InputError`` where there is none."""
    if not len(attribution.trace.ops):
        raise InputError(path, "no GPU activity was recorded, so there is no flame graph", "record with CUDA tracing")
    if not attribution.in_decode.any():
        advice = "name the engine's ranges with --rules, or export csv, parquet or perfetto"
        raise InputError(path, "no decode step was found, so there is no flame graph", advice)


def _text(form: str, attribution: Attribution, name: str) -> str:
    from profkit.reports import exports

    if form == "perfetto":
        return exports.perfetto_json(attribution)
    if form == "speedscope":
        return exports.speedscope_json(attribution, name)
    if form == "folded":
        return exports.folded(attribution)
    return exports.ops_frame(attribution).to_csv(index=False)


def _write_parquet(attribution: Attribution, target: Path) -> None:
    from profkit.reports import exports

    with whole_file(target) as part:
        exports.ops_frame(attribution).to_parquet(part, index=False)
