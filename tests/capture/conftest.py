"""A place for whole captures."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.capture import places


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if shutil.which("nsys") is None:
        reason = "nsys is not installed"
        pytest.fail(reason) if os.environ.get("PROFKIT_REQUIRE_ALL") == "1" else pytest.skip(reason)
    places.write_package(tmp_path)
    with tempfile.TemporaryDirectory(prefix="pk") as scratch:
        monkeypatch.setenv("TMPDIR", scratch)
        yield tmp_path
        assert places.survivors(tmp_path) == []
        assert list(Path(scratch).iterdir()) == [], "raw recordings hold the environment and have to go"
