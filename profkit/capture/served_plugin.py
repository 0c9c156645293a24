"""Whether SGLang finds profkit's plugin: asked of a process like the server's, since only that one's paths count."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .plugin import GROUP, NAME, plugin_environment
from .surroundings import scratch_folder

TIMEOUT_S = 60.0
PROBE = """
import importlib.metadata, json, sys

def entry(point):
    try:
        point.load()
    except Exception as error:
        return {"value": point.value, "fault": f"{type(error).__name__}: {error}"}
    return {"value": point.value}

group, name = sys.argv[1:]
print(json.dumps([entry(point) for point in importlib.metadata.entry_points(group=group) if point.name == name]))
"""


class EntryPoint(msgspec.Struct, frozen=True):
    """An entry point called ``profkit``: what it names, and why that cannot be loaded."""

    value: str
    fault: str | None = None


def served_plugin(environment: Mapping[str, str]) -> list[EntryPoint]:
    """The entry points that a server started by capture would find, from a shell with ``environment``.

    Raises ``OSError`` with words where that process does not answer.
    """
    with scratch_folder() as scratch:
        given = {**environment, **plugin_environment(environment, scratch, scratch)}
        command = [sys.executable, "-c", PROBE, GROUP, NAME]
        try:
            done = subprocess.run(command, env=given, capture_output=True, timeout=TIMEOUT_S, check=True)
            return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[EntryPoint])
        except (subprocess.SubprocessError, msgspec.MsgspecError, IndexError) as error:
            raise OSError(f"this Python does not say what is installed ({type(error).__name__})") from error


def loads_plugins(package: Path) -> bool:
    """Whether the SGLang in ``package`` is new enough to load any plugin."""
    return (package / "srt" / "plugins" / "__init__.py").is_file()


def is_left_out(environment: Mapping[str, str]) -> bool:
    """Whether ``SGLANG_PLUGINS`` names plugins, and profkit's is none of them."""
    named = {name.strip() for name in environment.get("SGLANG_PLUGINS", "").split(",")} - {""}
    return bool(named) and NAME not in named
