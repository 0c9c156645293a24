"""Runs the tests of the page's JavaScript under Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.reports.chromium import require


def test_pure_functions_of_the_page() -> None:
    node = require(shutil.which("node"), "Node")
    script = Path(__file__).with_name("test_page.mjs")
    done = subprocess.run([node, "--test", str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
