"""What a self-contained page is made of: its template, and assets that stand inside of it."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any

from profkit.analyzers.per_step import share
from profkit.analyzers.shortnames import short_name

from . import units
from .payload import packed


@functools.cache
def template(name: str) -> Any:
    """The page template ``name``, with the filters that write figures."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("profkit.reports", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ns=units.ns,
        number=units.number,
        percent=units.percent,
        size=units.size,
        rate=units.rate,
        sentence=lambda text: units.held(units.sentence(text)),
        held=units.held,
        short=short_name,
    )
    environment.globals.update(share=share, unknown_figures=units.unknown_figures)
    return environment.get_template(name)


def asset(name: str) -> str:
    """The text of an asset."""
    return resources.files("profkit.reports").joinpath("assets", name).read_text("utf-8")


@functools.cache
def joined_scripts(names: tuple[str, ...]) -> str:
    """Modules as one: in order of use, without their imports and exports."""
    text = "\n".join(asset(name) for name in names)
    text = re.sub(r"^import .*?;\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^export ", "", text, flags=re.MULTILINE)


@functools.cache
def plotly_script() -> str:
    """Plotly's script as it came with the Python package, compressed."""
    from plotly.offline import get_plotlyjs

    return packed(get_plotlyjs().encode())
