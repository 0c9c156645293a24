"""``profkit init``."""

from __future__ import annotations

from pathlib import Path

import click

from profkit.traces import OutputError, printable

FOLDERS = {
    "traces": "Recordings: one folder per capture, with `sweep.json` and one bundle per concurrency.",
    "analyzers": "Analyzers of your own, found by profkit when it runs in this workspace.",
    "reports": "Pages that `profkit report` wrote.",
}


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def command(folder: Path) -> None:
    """Make a workspace: a folder with traces/, analyzers/ and reports/. What is there already is kept."""
    try:
        for name, text in FOLDERS.items():
            place = folder / name
            place.mkdir(parents=True, exist_ok=True)
            readme = place / "README.md"
            if not readme.exists():
                readme.write_text(f"# {name}\n\n{text}\n", "utf-8")
    except OSError as error:
        raise OutputError(folder, f"cannot make a workspace ({error.strerror})", "choose another folder") from error
    click.echo(f"{printable(str(folder))}: a workspace with {', '.join(FOLDERS)}")
