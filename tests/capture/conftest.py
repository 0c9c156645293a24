"""A place for whole captures."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.capture import places


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not installed")
    places.write_package(tmp_path)
    with tempfile.TemporaryDirectory(prefix="pk") as scratch:
        monkeypatch.setenv("TMPDIR", scratch)
        yield tmp_path
        assert places.survivors(tmp_path) == []
        assert list(Path(scratch).iterdir()) == [], "raw recordings hold the environment and have to go"
