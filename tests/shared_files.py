"""The folder of recordings that are too large for the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared(path: str) -> Path:
    """``path`` in the shared folder: ``PROFKIT_SHARED``, or ``shared`` beside the checkout.

    Skips the test where it is missing; with ``PROFKIT_REQUIRE_ALL=1`` the test fails instead.
    """
    beside = Path(__file__).resolve().parents[2] / "shared"
    found = Path(os.environ.get("PROFKIT_SHARED") or beside) / path
    if not found.exists():
        reason = f"no {path} in the shared folder; set PROFKIT_SHARED"
        if os.environ.get("PROFKIT_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
