"""The folder of recordings that are too large for the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared(path: str) -> Path:
    """``path`` in the shared folder: ``PROFKIT_SHARED``, or ``shared`` beside the checkout. Skips without it."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    found = Path(os.environ.get("PROFKIT_SHARED") or beside) / path
    if not found.exists():
        pytest.skip(f"no {path} in the shared folder; set PROFKIT_SHARED")
    return found
