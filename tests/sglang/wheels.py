"""Released wheels, fetched with pip and kept between runs; those of SGLang are read and never run."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import pytest

TAGS = ("--python-version=3.11", "--implementation=cp", "--abi=cp311", "--platform=manylinux_2_34_x86_64")


def folder() -> Path:
    """Where wheels are kept: ``PROFKIT_WHEELS``, or a folder in the user's cache."""
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "profkit" / "wheels"
    return Path(os.environ.get("PROFKIT_WHEELS") or cached)


@cache
def _download(requirement: str, tags: tuple[str, ...]) -> str:
    """Fetch a wheel into the folder; what pip said last, where it failed."""
    folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder()) as part:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *tags]
        command += ["--retries=0", "--timeout=15", "--disable-pip-version-check", "-d", part, requirement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        for wheel in Path(part).glob("*.whl"):
            wheel.replace(folder() / wheel.name)
    return (done.stderr.strip().splitlines() or [""])[-1][:200]


@cache
def fetched(package: str, release: str, tags: tuple[str, ...] = (), pattern: str = "*") -> Path:
    """A wheel, for the Python that runs unless ``tags`` name another; ``pattern`` is how its name has to end.

    Skips the test where it cannot be had.
    """
    name = f"{package.replace('-', '_')}-{release}-{pattern}.whl"
    found = sorted(folder().glob(name))
    if not found:
        fault = _download(f"{package}=={release}", tags)
        found = sorted(folder().glob(name))
        if not found:
            pytest.skip(f"pip cannot fetch {package}=={release} ({fault}); put wheels into $PROFKIT_WHEELS")
    return found[0]


@cache
def wheel_of(release: str) -> Wheel:
    """SGLang's wheel of ``release``."""
    return Wheel(fetched("sglang", release, TAGS))


@dataclass(eq=False)
class Wheel:
    """The source in a wheel, as syntax trees; nothing of it is run."""

    path: Path
    _trees: dict[str, ast.Module] = field(default_factory=dict)

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(self.path)

    @cached_property
    def files(self) -> frozenset[str]:
        return frozenset(self._archive.namelist())

    def text(self, file: str) -> str:
        return self._archive.read(file).decode()

    def _tree(self, file: str) -> ast.Module:
        if file not in self._trees:
            self._trees[file] = ast.parse(self.text(file))
        return self._trees[file]

    def find(self, target: str) -> ast.AST | None:
        """The function, class or import that a dotted path names; ``None`` where there is none."""
        parts = target.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            for file in ("/".join(parts[:cut]) + ".py", "/".join(parts[:cut]) + "/__init__.py"):
                if file in self.files:
                    return _inside(self._tree(file), parts[cut:])
        return None


def _inside(scope: ast.AST, names: list[str]) -> ast.AST | None:
    for name in names:
        body = getattr(scope, "body", [])
        found = next((node for node in body if _defines(node, name)), None)
        if found is None:
            return None
        scope = found
    return scope


def _defines(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.ImportFrom):
        return any((alias.asname or alias.name) == name for alias in node.names)
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name
