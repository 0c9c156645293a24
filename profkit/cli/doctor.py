"""``profkit doctor``."""

from __future__ import annotations

import click

from profkit.traces import printable

from .common import INCONCLUSIVE

MARKS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}


@click.command("doctor")
def command() -> int:
    """Say what this host can record, and what to do about what it cannot.

    Exit status 0 if `profkit capture` would run, 3 if not.
    """
    try:
        from profkit.capture.doctor import can_capture, examine
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
    ready = can_capture(findings)
    click.echo("`profkit capture` can run here." if ready else "`profkit capture` cannot run here yet.")
    return 0 if ready else INCONCLUSIVE
