"""``profkit import``."""

from __future__ import annotations

from pathlib import Path

import click

from profkit.traces import open_ranks, open_recordings, printable, save_bundle


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder of the bundle [traces/NAME].")
def command(paths: tuple[Path, ...], output: Path | None) -> None:
    """Turn a recording into a bundle: small, quick to open, and without environment, command lines or output.

    Several PATHs are the PyTorch profiler's files of the ranks of one recording. The input is not changed.
    """
    name = open_recordings(paths[0])[0].name if len(paths) == 1 and output is None else paths[0].name.split(".")[0]
    target = output or Path("traces") / name
    trace = open_ranks(paths)
    save_bundle(trace, target)
    click.echo(f"{printable(str(target))}: {len(trace.ops):,} GPU activities of {len(trace.devices)} devices")
