"""Sentences on a terminal: lines break between words, and never between a figure and its unit."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from profkit.traces import printable

from .units import TOGETHER

HELD = "\ue000"
"""Stands for a space that holds while lines are broken: Rich would break at U+00A0 too."""


def say(console: Console, text: str, style: str = "") -> None:
    """Print ``text`` as prose, without markup."""
    held = Text(TOGETHER.sub(HELD, printable(text)))
    for line in held.wrap(console, console.width):
        shown = line.plain.replace(HELD, " ").rstrip()
        console.print(shown, style=style or None, markup=False, soft_wrap=True)


def in_folder(names: Sequence[str]) -> str:
    """Names of recordings, their sweep once where all are of one: ``c1, c1-cupti, c1-torch of SWEEP``."""
    parts = [name.rpartition("/") for name in names]
    folders = {folder for folder, _, _ in parts}
    if len(folders) > 1 or "" in folders:
        return ", ".join(names)
    return f"{', '.join(own for _, _, own in parts)} of {parts[0][0]}"
