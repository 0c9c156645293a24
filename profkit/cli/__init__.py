"""The command line. One file per command; a command is a few lines over the library."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from typing import TextIO

import click

from profkit.traces import ProfkitError, printable

COMMANDS = {
    "capture": "capture",
    "doctor": "doctor",
    "analyze": "analyze",
    "report": "report",
    "diff": "diff",
    "whatif": "whatif",
    "import": "import_",
    "export": "export",
    "demo": "demo",
    "init": "init",
}
"""Command names and the module of this package that holds each; loaded when used, for a quick start."""


APART_S = 1.0


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{COMMANDS[cmd_name]}").command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="profkit", message="profkit %(version)s")
def cli() -> None:
    """Where every nanosecond of an LLM decode step went, on every GPU, and what would make it shorter.

    Exit status: 0 fine, 1 a --fail-on limit exceeded, 2 bad input or usage, 3 inconclusive. A traceback of an
    unexpected error is shown with --debug.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; errors are one line on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        status = cli.main(arguments, prog_name="profkit", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        return _fail(f"{error.format_message()} (see `profkit --help`)", 2)
    except (click.Abort, KeyboardInterrupt):
        return _stopped()
    except BrokenPipeError:
        # The reader of our output went away, as `head` does; nothing more can be said to it.
        sys.stderr.close()
        return 0
    except ProfkitError as error:
        if debug:
            traceback.print_exc()
        return _fail(str(error), error.exit_status)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            return _unexpected(error, debug)
        _silence(sys.stdout)
        return _fail(f"cannot write the answer ({error.strerror}); free some space", 2)
    except Exception as error:  # the one place where any failure becomes a line for the user
        return _unexpected(error, debug)


def _unexpected(error: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    return _fail(f"unexpected {type(error).__name__}: {error}; run again with --debug and report it", 2)


def _silence(stream: TextIO) -> None:
    """What is still waiting to be written would fail once more when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _fail(message: str, status: int) -> int:
    line = printable(" ".join(message.split()))
    print(f"profkit: {line}", file=sys.stderr)
    return status


def entry() -> None:
    """The console script. Ctrl-C pressed once more on the way out changes nothing."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _Pressed())
    try:
        status = main()
    except KeyboardInterrupt:
        status = _stopped()
    sys.exit(status)


class _Pressed:
    """Raises ``KeyboardInterrupt``, but not for a signal within a second of another: a held key repeats."""

    def __init__(self) -> None:
        self._last = -APART_S

    def __call__(self, *_: object) -> None:
        now = time.monotonic()
        quiet_s, self._last = now - self._last, now
        if quiet_s >= APART_S:
            raise KeyboardInterrupt


def _stopped() -> int:
    if isinstance(signal.getsignal(signal.SIGINT), _Pressed):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _fail("stopped", 130)
