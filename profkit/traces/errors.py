"""The errors that a user can meet.

    ProfkitError                 one line for the user, and the exit status of the command
    ├── InputError          2    a file that cannot be read as what it should be
    ├── UsageError          2    a command or a rule file that says something impossible
    ├── OutputError         2    a result that could not be written
    └── InconclusiveError   3    input that is as it should be, but does not tell

The commands print ``str(error)`` and nothing else; it names the file, the fault and what to do.
"""

from __future__ import annotations

from pathlib import Path


class ProfkitError(Exception):
    """An error that a user can mend; ``exit_status`` is what a command returns."""

    exit_status = 2


class InputError(ProfkitError):
    """A recording that cannot be read: ``path: fault; advice``."""

    def __init__(self, path: Path | str, fault: str, advice: str) -> None:
        super().__init__(f"{path}: {fault}; {advice}")
        self.path = Path(path)
        self.fault = fault
        self.advice = advice


class UsageError(ProfkitError):
    """A command line, rule file or setting that cannot be followed."""


class OutputError(ProfkitError):
    """A result that could not be written: ``path: fault; advice``."""

    def __init__(self, path: Path | str, fault: str, advice: str) -> None:
        super().__init__(f"{path}: {fault}; {advice}")


class InconclusiveError(ProfkitError):
    """Input that can be read, of which there is nothing to say."""

    exit_status = 3
