"""``profkit init``."""

from __future__ import annotations

from pathlib import Path

import click

from profkit.traces import OutputError, printable

FOLDERS = {
    "traces": "Recordings: one folder per capture, with `sweep.json` and one bundle per concurrency.",
    "analyzers": "Analyzers of your own: `profkit analyze` and `profkit report` ask them when they run in this "
    "workspace.\n`dflash_verdict.py` is one to begin with; `data/` holds a throughput table for it:\n\n"
    "    profkit analyze analyzers/data/kimi-k26-8gpu.toml",
    "reports": "Pages that `profkit report` wrote.",
}
EXAMPLE = ("dflash_verdict.py", "data/kimi-k26-8gpu.toml")
"""Files of this project's own workspace that a new one begins with."""


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def command(folder: Path) -> None:
    """Make a workspace: a folder with traces/, analyzers/ and reports/. What is there already is kept.

    analyzers/ gets an example, which says whether speculative decoding pays; see docs/analyzers.md.
    """
    try:
        for name, text in FOLDERS.items():
            _write_new(folder / name / "README.md", f"# {name}\n\n{text}\n")
        for name in EXAMPLE:
            _write_new(folder / "analyzers" / name, (_examples() / name).read_text("utf-8"))
    except OSError as error:
        raise OutputError(folder, f"cannot make a workspace ({error.strerror})", "choose another folder") from error
    click.echo(f"{printable(str(folder))}: a workspace with {', '.join(FOLDERS)}")


def _write_new(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        file.write_text(text, "utf-8")


def _examples() -> Path:
    """Where the example is: in the package as the wheel holds it, else in the checkout that the package is part of."""
    packed = Path(__file__).with_name("example")
    return packed if packed.is_dir() else Path(__file__).parents[2] / "analyzers"
