"""Running command lines in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.cli import main
from tests.cli.answers import Answer, Command
from tests.nsys_files import small_step


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line in this process."""

    def run(*arguments: object) -> Answer:
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        return Answer(status, *capfd.readouterr())

    return run


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """An export with one decode step."""
    return small_step().write(tmp_path / "step.sqlite")
