"""``profkit diff``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace as replace_fields

from profkit.analyzers import Recording, Rules, attribute, load_rules
from profkit.analyzers.accept_length import check_accept_len
from profkit.analyzers.borrowed import with_borrowed_modules
from profkit.analyzers.diff import Context, Diff, Per, Side, diff, pair_recordings, pair_up, parse_limit
from profkit.traces import UsageError, printable, sweep_of
from profkit.traces.sweep import Sweep, SweepRun

from .baselines import find_baseline, keep_baseline
from .common import INCONCLUSIVE, AcceptLength, recordings_at, write_whole

EXCEEDED = 1
PLACES = frozenset({"host", "port", "model_path", "tokenizer_path", "speculative_draft_model_path", "seed", "prompts"})
"""Settings that say where a server was, not what it did."""

RESOLVED = ("attention_backend",)
"""Settings that matter also where the server was left to choose them."""


@click.command("diff")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="A B")
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON (schema profkit.diff/1).")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Also draw the changes as an HTML page.")
@click.option("--per", type=click.Choice(["step", "token"]), default="step", help="Per step, or per accepted token.")
@click.option(
    "--fail-on",
    "limits",
    multiple=True,
    metavar="LIMIT",
    help="Exit 1 where 'verify>5%', 'gap_host>10us', 'total>2s', …",
)
@click.option("--baseline", metavar="NAME", help="A is the baseline of this name; give B alone.")
@click.option("--keep", metavar="NAME", help="Keep B under this name, if the exit status is 0.")
@click.option("--rules", type=click.Path(path_type=Path), help="TOML file with rules of your own; see docs/rules.md.")
@click.option("--accept-len", type=AcceptLength(), help="Tokens accepted per cycle, where a recording drafts.")
def command(
    paths: tuple[Path, ...],
    as_json: bool,
    output: Path | None,
    per: Per,
    limits: tuple[str, ...],
    baseline: str | None,
    keep: str | None,
    rules: Path | None,
    accept_len: float | None,
) -> int:
    """Say what changed from A to B, in numbers that add up, and whether it is more than noise.

    A and B are recordings or sweeps; sweeps are compared by concurrency. A LIMIT is NAME>NUMBER with %, ns, us, ms or
    s, and NAME total, target (decode and verify), a phase, a part, a class, or several joined by colons. Exit status 1
    if a limit is exceeded by a significant change, 3 if A and B cannot be compared, noise is unknown where a limit is
    passed, or neither has what a limit is about. --keep with B alone keeps it; beside a comparison it keeps B if the
    exit status is 0, and says so if not.
    """
    if keep is not None and baseline is None and len(paths) == 1:
        click.echo(f"{keep_baseline(keep, paths[0])}: kept as a baseline")
        return 0
    a, b = _two(paths, baseline)
    asked = [parse_limit(text) for text in limits]
    known = load_rules(rules)
    recordings = [recordings_at([path]) for path in (a, b)]
    pairs, unpaired = pair_recordings(*recordings)
    if output is None:
        # Those without a partner only lend modules to the page: not worth the time that it takes to attribute them.
        recordings = [[pair[side] for pair in pairs] for side in (0, 1)]
    first, second = (_sides(path, some, known, accept_len) for path, some in zip((a, b), recordings, strict=True))
    sides = _sharing_modules(first, second) if output is not None else (first, second)
    found = replace_fields(diff(*sides, per, asked), unpaired=unpaired)
    if output is not None:
        _write_page(output, found, *sides)
    click.echo(_as_json(found) if as_json else _as_text(found))
    status = _status(found)
    if keep is not None:
        kept = f"{keep_baseline(keep, b)}: kept as a baseline" if status == 0 else _not_kept(keep, found, status)
        click.echo(kept, err=True)
    return status


def _not_kept(name: str, found: Diff, status: int) -> str:
    """Why B does not become the baseline ``name``."""
    if status == EXCEEDED:
        why = "a limit is exceeded"
    elif any(pair.comparable.status == "no" for pair in found.pairs):
        why = "A and B cannot be compared"
    else:
        why = "a limit is not known to hold"
    return f"baseline '{name}' is left as it was: {why}; to keep B all the same, run profkit diff --keep {name} B alone"


def _two(paths: Sequence[Path], baseline: str | None) -> tuple[Path, Path]:
    """A and B; raises ``UsageError`` where they are not two."""
    every = list(paths) if baseline is None else [find_baseline(baseline), *paths]
    if len(every) != 2:
        wanted = "give A and B" if baseline is None else "give B alone beside --baseline"
        raise UsageError(f"diff compares two recordings or sweeps, not {len(every)}; {wanted}")
    return every[0], every[1]


def _sides(path: Path, recordings: Sequence[Recording], rules: Rules, accept_len: float | None) -> list[Side]:
    check_accept_len(((one.name, one.trace.run) for one in recordings), accept_len)
    sweep = sweep_of(path)
    return [
        Side.of(one.name, one.path, attribute(one.trace, rules), _context(sweep, Path(one.path)), accept_len)
        for one in recordings
    ]


def _sharing_modules(a: list[Side], b: list[Side]) -> tuple[list[Side], list[Side]]:
    """The sides; an eager one takes the modules of its kernels from one with graphs on the other side."""
    known = with_borrowed_modules([side.attribution for side in (*a, *b)])
    every = [replace(side, attribution=own) for side, own in zip((*a, *b), known, strict=True)]
    return every[: len(a)], every[len(a) :]


def _context(sweep: Sweep | None, recording: Path) -> Context:
    """What the sweep's record says of its ``recording``."""
    if sweep is None:
        return Context()
    link = sweep.hardware.get("link")
    settings = _comparable_settings(sweep.settings) | ({"link": str(link)} if link else {})
    run = next((run for run in sweep.runs if run.trace == recording.resolve().name), None)
    # Records of imported recordings name a few settings; those of captured ones name all that were set.
    complete = "configuration" in sweep.settings
    return Context(settings, dict(sweep.versions), _slowdown(run) if run else None, complete)


def _comparable_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings that shape a step: the server's arguments, environment and load, as plain names and values.

    What ``profkit capture`` records beside them (the command, most resolved arguments, remarks) names places and times
    of one run, and differs always.
    """
    configuration = settings.get("configuration")
    if not isinstance(configuration, dict):
        return {str(name): str(value) for name, value in settings.items() if not isinstance(value, dict | list)}
    groups = [configuration.get(group) for group in ("server", "env", "load")]
    named = {str(name): value for group in groups if isinstance(group, dict) for name, value in group.items()}
    resolved = settings.get("resolved")
    if isinstance(resolved, dict):
        # What the server chose itself where it was not told.
        named = {name: resolved[name] for name in RESOLVED if name in resolved} | named
    return {name: str(value) for name, value in named.items() if value is not None and name not in PLACES}


def _slowdown(run: SweepRun) -> float | None:
    """How many times slower the recorder made the run."""
    if not run.tokens_per_s or not run.tokens_per_s_recorded:
        return None
    return run.tokens_per_s / run.tokens_per_s_recorded


def _status(found: Diff) -> int:
    judged = [judgement.status for pair in found.pairs for judgement in pair.limits]
    if "exceeded" in judged:
        return EXCEEDED
    unsure = any(pair.comparable.status == "no" for pair in found.pairs)
    return INCONCLUSIVE if unsure or "unknown" in judged else 0


def _write_page(output: Path, found: Diff, a: list[Side], b: list[Side]) -> None:
    from profkit.reports.diff_html import render_diff_page

    write_whole(output, render_diff_page(found, pair_up(a, b)[0]))
    click.echo(printable(str(output)), err=True)


def _as_json(found: Diff) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode()


def _as_text(found: Diff) -> str:
    from profkit.reports.diff_terminal import render_diff

    return render_diff(found)
