"""What the real cupti-python has: asked in a process of its own, since its modules would shadow the stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.sglang.wheels import fetched

ROOT = Path(__file__).parents[2]
THIS, ANY = f"*cp{sys.version_info.major}{sys.version_info.minor}-*", "*any"
NEEDED = (("cuda-bindings", "13.0.3", THIS), ("cuda-pathfinder", "1.9.1", ANY), ("pyelftools", "0.33", ANY))
ENUMERATIONS = ("CallbackDomain", "CallbackIdResource", "runtime_api_trace_cbid", "driver_api_trace_cbid")


@cache
def facts_of(release: str) -> dict[str, Any]:
    """``names`` of its module, ``numbers`` of its enumerations, and ``fields`` of each layout that profkit takes."""
    wanted = [("cupti-python", release, THIS), *NEEDED]
    wheels = [fetched(name, version, pattern=pattern) for name, version, pattern in wanted]
    with TemporaryDirectory() as folder:
        for wheel in wheels:
            zipfile.ZipFile(wheel).extractall(folder)
        command = [sys.executable, "-c", "from tests.sglang.real_cupti import tell; tell()"]
        paths = os.pathsep.join([folder, str(ROOT)])
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def tell() -> None:
    """Print the facts about the package that is importable here."""
    from cupti import cupti  # type: ignore[import-not-found]

    from profkit.sglang.cupti_records import layouts_of

    numbers = {name: {one.name: int(one) for one in getattr(cupti, name)} for name in ENUMERATIONS}
    fields = {kind: [layout.itemsize, flat(layout)] for kind, layout in layouts_of(cupti, {}).items()}
    is_error = issubclass(cupti.cuptiError, Exception)
    print(json.dumps({"names": dir(cupti), "numbers": numbers, "fields": fields, "cuptiError_is_one": is_error}))


def flat(layout: np.dtype[Any], name: str = "", place: int = 0) -> list[tuple[str, str, int]]:
    """Each field of ``layout``: its name, type, and the byte at which it begins."""
    if layout.names is None:
        return [(name, layout.str if layout.subdtype is None else str(layout.subdtype), place)]
    fields: Any = layout.fields
    inner = [flat(fields[one][0], f"{name}.{one}", place + fields[one][1]) for one in layout.names]
    return [field for part in inner for field in part]
