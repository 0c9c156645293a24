"""``profkit doctor``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from profkit.traces import printable

from .common import INCONCLUSIVE

if TYPE_CHECKING:
    from profkit.capture.doctor import Finding

SCHEMA = "profkit.doctor/1"
DEFAULT = "nsys"
MARKS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}


@click.command("doctor")
@click.option(
    "--backend", default=DEFAULT, show_default=True, help="Recorder that this host is to have, or several with commas."
)
@click.option("--json", "as_json", is_flag=True, help=f"Print the findings as JSON (schema {SCHEMA}).")
def command(backend: str, as_json: bool) -> int:
    """Say what this host can record, and what to do about what it cannot.

    Exit status 0 if `profkit capture` would run with the recorders of --backend: by default nsys, as that of capture
    is. 3 if not, though it may run with others: the last line names them.
    """
    try:
        from profkit.capture.backends import check_names
        from profkit.capture.doctor import examine, recorders_of
    except ModuleNotFoundError as error:
        return _without_extra(error.name or "", as_json)
    asked = check_names([name.strip() for name in backend.split(",")])
    findings = examine()
    recorders = recorders_of(findings)
    if as_json:
        click.echo(_as_json([_entry(finding) for finding in findings], asked, recorders))
    else:
        _print(findings)
        click.echo(_verdict(asked, recorders))
    return 0 if set(asked) <= set(recorders) else INCONCLUSIVE


def _without_extra(module: str, as_json: bool) -> int:
    what, found, remedy = "profkit's extra", f"{module} is not installed", "pip install 'profkit[capture]'"
    if as_json:
        entry = {"what": what, "status": "missing", "found": found, "for": "capture", "remedy": remedy}
        click.echo(_as_json([entry], [], []))
    else:
        click.echo(f"{MARKS['missing']}  {what}  {found}: {remedy}")
    return INCONCLUSIVE


def _entry(finding: Finding) -> dict[str, Any]:
    return {
        "what": finding.what,
        "status": finding.status,
        "found": finding.found,
        "for": finding.for_ or None,
        "remedy": finding.remedy or None,
    }


def _as_json(findings: Sequence[dict[str, Any]], asked: Sequence[str], recorders: Sequence[str]) -> str:
    runs = bool(asked) and set(asked) <= set(recorders)
    content = {"schema": SCHEMA, "asked": asked, "can_capture": runs, "recorders": recorders, "findings": findings}
    return json.dumps(content, indent=1, ensure_ascii=False)


def _print(findings: Sequence[Finding]) -> None:
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        click.echo(printable(f"{MARKS[finding.status]}  {finding.what:{width}}  {finding.found}"))
        if finding.remedy:
            lost = f"without it: no {finding.for_}; " if finding.for_ else ""
            click.echo(printable(f"{'':9}{'':{width}}  {lost}{finding.remedy}"))


def _verdict(asked: Sequence[str], recorders: Sequence[str]) -> str:
    call = "profkit capture" if list(asked) == [DEFAULT] else f"profkit capture --backend {','.join(asked)}"
    others = " or ".join(name for name in recorders if name not in asked)
    lacking = [name for name in asked if name not in recorders]
    if not lacking:
        return f"`{call}` can run here{f', also with --backend {others}' if others else ''}."
    if not recorders:
        return f"`{call}` cannot run here yet."
    named = f"{' and '.join(lacking)}{', its default' if call == 'profkit capture' else ''}"
    usable = " or ".join(recorders)
    return f"`{call}` cannot run here with {named}; it can with --backend {usable}."
