"""``profkit whatif``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from profkit.analyzers import load_rules
from profkit.analyzers.whatif import ALGORITHMS, LINKS, Link, Request, WhatIf, parse_drafter, parse_link, what_if
from profkit.traces import sweep_of

from .common import INCONCLUSIVE, AcceptLength, recordings_at

MOST_TOKENS = 1024


Callback = Callable[[click.Context, click.Parameter, str | None], Any]


def _parsed(parse: Callable[[str], Any], wanted: str) -> Callback:
    """A callback for what ``parse`` makes of a text; ``wanted`` says what it should be."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(f"'{value}' is no {wanted}.") from error

    return callback


DRAFTER = _parsed(parse_drafter, "factor: give one from 0 to 100 such as 0.5, or 'free'")
LINK = _parsed(
    parse_link,
    f"link: give {', '.join(LINKS)}, or GB/s of one direction such as 50, or with µs of latency such as 50,8",
)


LINK_HELP = f"Link between GPUs: {', '.join(LINKS)}, or GB/s of one direction[,µs of latency], such as 50 or 50,8."


@click.command("whatif")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--accept-len", type=AcceptLength(), help="Tokens accepted per cycle.")
@click.option("--block-size", type=click.IntRange(1, MOST_TOKENS), help="Tokens that the target verifies per request.")
@click.option(
    "--drafter",
    metavar="FACTOR|free",
    callback=DRAFTER,
    help="What drafting costs, relative to the recording; 'free' is 0.",
)
@click.option("--link", metavar="LINK", callback=LINK, help=LINK_HELP)
@click.option("--collective", type=click.Choice(ALGORITHMS), help="Algorithm of all-reduces.")
@click.option("--graphs", is_flag=True, help="Drafter and target in CUDA graphs.")
@click.option("--align-launches", is_flag=True, help="No rank's host later than the others'.")
@click.option("--overlap-draft", is_flag=True, help="The next block drafted while this one is verified: a bound.")
@click.option("--rules", type=click.Path(path_type=Path), help="TOML file with rules of your own; see docs/rules.md.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON (schema profkit.whatif/1).")
def command(
    paths: tuple[Path, ...],
    accept_len: float | None,
    block_size: int | None,
    drafter: float | None,
    link: Link | None,
    collective: str | None,
    graphs: bool,
    align_launches: bool,
    overlap_draft: bool,
    rules: Path | None,
    as_json: bool,
) -> int:
    """Say what a step would take with another accept length, block, drafter, link, algorithm or host.

    Each recording is re-played over the dependencies of all its ranks: with each option alone, and with all together;
    without any, with each lever that it carries. Name the whole sweep: several concurrencies say how time grows with
    tokens, and one of plain decoding where speculation pays. Exit status 3 if nothing can be said.
    """
    request = Request(accept_len, block_size, drafter, link, collective, graphs, align_launches, overlap_draft)
    recordings = recordings_at(paths)
    nvlink = {one.name for one in recordings if _over_nvlink(Path(one.path))}
    found = what_if(recordings, request, load_rules(rules), nvlink)
    click.echo(_as_json(found) if as_json else _as_text(found))
    return 0 if found.answers else INCONCLUSIVE


def _over_nvlink(path: Path) -> bool:
    """Whether the record of its sweep says that the GPUs of a recording talked over NVLink."""
    sweep = sweep_of(path)
    hardware = sweep.hardware if sweep else {}
    topology = hardware.get("topology")
    linked: Sequence[Any] = topology if isinstance(topology, list) else []
    return any(isinstance(one, dict) and one.get("nvlink") for one in linked) and not hardware.get("p2p_disabled")


def _as_json(found: WhatIf) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode()


def _as_text(found: WhatIf) -> str:
    from profkit.reports.whatif import render_what_if

    return render_what_if(found)
