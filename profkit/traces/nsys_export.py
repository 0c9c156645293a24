"""Turning ``.nsys-rep`` and ``.qdstrm`` files into exports with the user's own Nsight Systems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from .errors import InputError

STREAM_MAGIC = b"NVIDIA Nsight Systems Stream"
OLDEST = (2022, 2)
"""The first release whose exports (schema 2.9) are known to be read right."""

TIMEOUT_S = 1800
PLACES = ("/opt/nvidia/nsight-systems/*", "/opt/nvidia/nsight-compute/*/host", "/usr/local/cuda*", "/usr/lib")


def find_nsys() -> Path | None:
    """The user's ``nsys``: ``$NSYS``, the one on PATH, or one beside an installed Nsight Compute or CUDA toolkit."""
    named = os.environ.get("NSYS")
    if named:
        return Path(named) if Path(named).is_file() else None
    on_path = shutil.which("nsys")
    if on_path:
        return Path(on_path)
    found = [
        file
        for place in PLACES
        for pattern in ("target-linux-x64/nsys", "bin/nsys", "target-linux-sbsa-armv8/nsys")
        for file in Path("/").glob(f"{place[1:]}/{pattern}")
    ]
    return sorted(found)[-1] if found else None


def nsys_version(nsys: Path) -> tuple[int, ...]:
    """The version that ``nsys --version`` prints, such as ``(2025, 3, 2)``; empty if it prints none."""
    try:
        shown = subprocess.run([nsys, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"(\d{4})\.(\d+)(?:\.(\d+))?", shown)
    return tuple(int(part) for part in found.groups() if part) if found else ()


def find_importer(nsys: Path) -> Path | None:
    """``QdstrmImporter``, wherever one lies beside ``nsys``; some packages ship an ``nsys`` that does not find it."""
    roots = [nsys.resolve().parent.parent, nsys.resolve().parent.parent.parent, Path("/usr/lib/nsight-systems")]
    return next((file for root in roots for file in sorted(root.glob("*/QdstrmImporter"))), None)


def export_report(report: Path, folder: Path) -> Path:
    """Export ``report`` (``.nsys-rep`` or ``.qdstrm``) as SQLite into ``folder``; the report is not changed.

    Raises ``InputError`` where nsys is missing, too old or fails.
    """
    nsys = find_nsys()
    if nsys is None:
        raise InputError(
            report,
            "a report of Nsight Systems, and nsys is not installed here",
            "install Nsight Systems, set $NSYS to it, or export elsewhere with `nsys export --type sqlite`",
        )
    version = nsys_version(nsys)
    if version and version[:2] < OLDEST:
        shown, oldest = ".".join(map(str, version)), ".".join(map(str, OLDEST))
        raise InputError(report, f"nsys {shown} is too old to export it", f"install nsys {oldest} or newer")
    if is_stream(report):
        report = import_stream(report, folder, nsys)
    target = folder / "export.sqlite"
    _run([str(nsys), "export", "--type", "sqlite", "--force-overwrite", "true", "-o", str(target), str(report)], report)
    if not target.is_file():
        raise InputError(
            report,
            f"nsys {'.'.join(map(str, version))} wrote no export",
            "export it with the nsys release that recorded it, or a newer one",
        )
    return target


def is_stream(path: Path) -> bool:
    """Whether ``path`` is a raw stream, whatever it is called: some packages of nsys leave no report but only that."""
    with path.open("rb") as file:
        return STREAM_MAGIC in file.read(64)


def import_stream(stream: Path, folder: Path, nsys: Path) -> Path:
    """Turn a raw ``.qdstrm`` stream into a report in ``folder``."""
    importer = find_importer(nsys)
    if importer is None:
        raise InputError(
            stream,
            "a raw stream of Nsight Systems, and there is no QdstrmImporter beside nsys",
            "install the full Nsight Systems package, or import it where it was recorded",
        )
    target = folder / f"{stream.stem}.nsys-rep"
    _run([str(importer), "-i", str(stream), "-o", str(target)], stream)
    return target


def _run(command: list[str], report: Path) -> None:
    try:
        # In a group of its own: a Ctrl-C that a capture answers by going on must not end the export.
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            process_group=0,
        )
    except OSError as error:
        raise InputError(report, f"cannot run {command[0]} ({error.strerror})", "check $NSYS") from error
    except subprocess.TimeoutExpired as error:
        raise InputError(report, f"{command[0]} took over {TIMEOUT_S} s", "export it by hand first") from error
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        said = lines[-1].strip()[:200] if lines else f"exit status {done.returncode}"
        raise InputError(report, f"nsys could not read it ({said})", "use the nsys that recorded it, or a newer one")
