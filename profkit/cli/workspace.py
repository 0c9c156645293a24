"""Analyzers of the workspace that profkit runs in: the files of its folder ``analyzers``, found like plugins.

Only files that import ``profkit.analyzer`` are run, and only from that folder of the current directory.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import click

from profkit.analyzers.custom import Analyzer, Answered, Recordings
from profkit.traces import InconclusiveError, UsageError, printable
from profkit.traces.throughput import ThroughputTable, is_throughput_table, read_throughput

FOLDER = Path("analyzers")
PACKAGE = "profkit_workspace"
_USES = re.compile(
    rb"^[ \t]*((from|import)[ \t]+profkit\.analyzer\b|from[ \t]+profkit[ \t]+import\b.*\banalyzer\b)", re.MULTILINE
)

Tables = dict[Path, ThroughputTable]


@dataclass(frozen=True, slots=True)
class Found:
    """An analyzer and the file that holds it."""

    file: Path
    analyzer: Analyzer


def split_tables(paths: Sequence[Path]) -> tuple[list[Path], Tables]:
    """The paths of recordings, and the throughput tables, as the contents say."""
    tables = {path: read_throughput(path) for path in paths if is_throughput_table(path)}
    return [path for path in paths if path not in tables], tables


def ask_workspace(recordings: Recordings, tables: Tables) -> list[Answered]:
    """What the analyzers of the workspace say of recordings and throughput tables.

    One that fails is named on stderr, with what to do, and the others are still asked; so is a table that none has an
    answer to. Raises ``UsageError`` where there is a table that no analyzer takes, ``InconclusiveError`` where there is
    nothing to show.
    """
    found = list(_analyzers())
    takers = [one for one in found if one.analyzer.takes is ThroughputTable]
    if tables and not takers:
        title = next(iter(tables.values())).title
        raise UsageError(
            f"no analyzer of this directory takes the throughput table '{title}'; run where analyzers/ holds one, "
            "such as dflash_verdict.py in a workspace that `profkit init DIR` made"
        )
    others = [one for one in found if one not in takers] if recordings.attributions else []
    told = {path: _answers(takers, table) for path, table in tables.items()}
    answers = [*_answers(others, recordings), *(answer for own in told.values() for answer in own)]
    silent = [
        f"{path}: no analyzer has an answer to it; {_lacks(tables[path])}" for path, own in told.items() if not own
    ]
    if silent and not (answers or recordings.attributions):
        raise InconclusiveError(". ".join(silent))
    for line in silent:
        _tell(line)
    return answers


def _answers(asked: Sequence[Found], given: Recordings | ThroughputTable) -> list[Answered]:
    return [answer for one in asked if (answer := _ask(one, given)) is not None]


def _lacks(table: ThroughputTable) -> str:
    """What most likely keeps an analyzer from an answer: runs of one kind alone."""
    drafting = [run for run in table.runs if run.accept_len is not None]
    if not drafting:
        return "none of its runs is a speculative one, with `accept_len`, to set against the plain ones"
    if len(drafting) == len(table.runs):
        return "all of its runs have `accept_len`, and none is a plain one to set them against"
    return "see in analyzers/ what they need of a table"


def _ask(found: Found, given: Recordings | ThroughputTable) -> Answered | None:
    # What an analyzer prints would stand in the middle of the command's own answer.
    try:
        with redirect_stdout(sys.stderr):
            answer = found.analyzer(given)
    except (Exception, SystemExit) as error:
        _complain(found.file, error)
        return None
    if answer is None:
        return None
    asked = Answered(printable(str(found.file)), printable(found.analyzer.title), answer)
    if isinstance(given, ThroughputTable):
        own, source, note = (printable(text) for text in (given.title, " ".join(given.source.split()), given.notes))
        return replace(asked, of=own, source=source, note=note or None)
    return asked


def _analyzers() -> Iterator[Found]:
    """All analyzers of the workspace, by file and by place in it."""
    files = sorted(file for file in FOLDER.glob("*.py") if not file.name.startswith("_") and _is_ours(file))
    if files:
        _fresh_package()
    for file in files:
        try:
            with redirect_stdout(sys.stderr):
                module = importlib.import_module(f"{PACKAGE}.{file.stem}")
        except (Exception, SystemExit) as error:
            _complain(file, error)
            continue
        own = [value for value in vars(module).values() if _is_own(value, module)]
        if not own:
            _say(file, "holds no analyzer", "mark a function with @analyzer, or let the file's name begin with _")
        yield from (Found(file, analyzer) for analyzer in own)


def _is_ours(file: Path) -> bool:
    """Whether ``file`` lies in the folder, wherever links lead, and uses profkit's interface for analyzers."""
    try:
        if not (file.is_file() and file.resolve().is_relative_to(FOLDER.resolve())):
            return False
        return _USES.search(file.read_bytes()) is not None
    except OSError as error:
        _complain(file, error)
        return False


def _is_own(value: object, module: ModuleType) -> bool:
    """Whether ``value`` is an analyzer that ``module`` defines, and does not only import."""
    return isinstance(value, Analyzer) and value.ask.__module__ == module.__name__


def _fresh_package() -> None:
    """A package over the folder, so that its files can import each other; nothing of another folder stays."""
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    package = ModuleType(PACKAGE)
    package.__path__ = [str(FOLDER.resolve())]
    sys.modules[PACKAGE] = package
    importlib.invalidate_caches()


def _complain(file: Path, error: BaseException) -> None:
    said = str(error) or "no message"
    _say(file, f"{type(error).__name__}{_line_in(file, error)}: {said}", "mend it, or move it out of analyzers/")


def _line_in(file: Path, error: BaseException) -> str:
    """The line of ``file`` at which it failed, if it is known; a syntax error names its own."""
    if isinstance(error, SyntaxError):
        return ""
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file.resolve()]
    return f" in line {inside[-1].lineno}" if inside else ""


def _say(file: Path, fault: str, advice: str) -> None:
    _tell(f"{file}: {fault}; {advice}")


def _tell(line: str) -> None:
    click.echo(printable(" ".join(f"profkit: {line}".split())), err=True)
