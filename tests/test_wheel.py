"""The wheel holds all that the commands need, and works where the repository is not."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot build a wheel here: {done.stderr.strip().splitlines()[-1:]}")
    (built,) = folder.glob("profkit-*.whl")
    return built


def test_wheel_holds_rules_assets_and_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "profkit/analyzers/rules/default.toml" in names
    assert any(name.startswith("profkit/reports/assets/") for name in names)
    assert any(name.endswith("LICENSE") for name in names)
    assert "profkit/cli/example/dflash_verdict.py" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"profkit"}


def test_installed_wheel_analyses_and_reports(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    page = tmp_path / "page.html"
    commands = (
        ["analyze", str(ROOT / "traces/ep2")],
        ["report", str(ROOT / "traces/ep2"), "-o", str(page)],
        ["init", "."],
        ["analyze", "analyzers/data/kimi-k26-8gpu.toml"],
    )
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "profkit", *command],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert page.read_text("utf-8").rstrip().endswith("</html>")
