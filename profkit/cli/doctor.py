"""``profkit doctor``."""

from __future__ import annotations

import click

from profkit.traces import printable

from .common import INCONCLUSIVE

DEFAULT = "nsys"
MARKS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}


@click.command("doctor")
def command() -> int:
    """Say what this host can record, and what to do about what it cannot.

    Exit status 0 if `profkit capture` would run, with its default recorder or with the ones that the last line names;
    3 if not.
    """
    try:
        from profkit.capture.doctor import can_capture, examine, recorders_of
    except ModuleNotFoundError as error:
        click.echo(
            f"{MARKS['missing']}  profkit's extra  {error.name} is not installed: pip install 'profkit[capture]'"
        )
        return INCONCLUSIVE
    findings = examine()
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        click.echo(printable(f"{MARKS[finding.status]}  {finding.what:{width}}  {finding.found}"))
        if finding.remedy:
            lost = f"without it: no {finding.for_}; " if finding.for_ else ""
            click.echo(printable(f"{'':9}{'':{width}}  {lost}{finding.remedy}"))
    click.echo(_verdict(recorders_of(findings)))
    return 0 if can_capture(findings) else INCONCLUSIVE


def _verdict(recorders: list[str]) -> str:
    if not recorders:
        return "`profkit capture` cannot run here yet."
    if DEFAULT in recorders:
        also = f", also with --backend {' or '.join(recorders[1:])}" if recorders[1:] else ""
        return f"`profkit capture` can run here{also}."
    return f"`profkit capture` can run here with --backend {' or '.join(recorders)}; not with {DEFAULT}, its default."
