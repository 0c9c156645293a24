"""Running command lines in this process."""

from __future__ import annotations

from tests.cli.conftest import command

__all__ = ["command"]
