"""What a host can record: one finding per thing that a capture needs, with what to do where it is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from profkit.traces.nsys_export import OLDEST, find_importer, find_nsys, nsys_version

from .backends import BACKENDS
from .checks import NEEDED_BYTES
from .cupti import PACKAGE, SAMPLES_FROM, cupti_library, cupti_version, sampling_lacks
from .machine import nvml
from .nvtx import nvtx_lack, nvtx_version
from .plugin import GROUP, NAME, TARGET, is_installed
from .served_plugin import is_left_out, loads_plugins, served_plugin
from .sglang_source import find_sglang, sglang_version

Status = Literal["ok", "missing", "limited"]
DRIVER_SETTINGS = Path("/proc/driver/nvidia/params")
ADMIN_ONLY = "RmProfilingAdminOnly: 1"
EXTRA = "pip install 'profkit[capture]'"
CAPTURE = "capture"
COUNTED = "hardware counters of PCIe, DRAM, SMs and active NVLinks"
BACKEND = "--backend "
NSYS, CUPTI, TORCH = (f"{BACKEND}{name}" for name in BACKENDS)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a capture needs. ``for_`` names what cannot be done without it, ``remedy`` what to do.

    ``limited`` costs a part of what could be recorded, ``missing`` all of what ``for_`` names: ``capture``, or
    recorders (``--backend nsys``, ``--backend nsys,cupti``).
    """

    what: str
    status: Status
    found: str
    for_: str = ""
    remedy: str = ""


def examine() -> list[Finding]:
    """All findings of this host, in the order in which a capture needs them."""
    nsys = find_nsys()
    release = nsys_version(nsys) if nsys else ()
    found = [*_gpus(), _sglang(), _nsys(nsys, release), _cupti(), _torch()]
    return [*found, _nvtx(release), _plugin(), _counters(), _pm_sampling(), *_disk()]


def recorders_of(findings: Sequence[Finding]) -> list[str]:
    """The recorders with which ``profkit capture`` would run."""
    missing = {finding.for_ for finding in findings if finding.status == "missing"}
    lost = {name for for_ in missing for name in for_.removeprefix(BACKEND).split(",")}
    return [] if CAPTURE in missing else [name for name in BACKENDS if name not in lost]


def _gpus() -> Iterator[Finding]:
    """Driver and GPUs, as NVML tells."""
    with nvml() as library:
        if library is None:
            missing = importlib.util.find_spec("pynvml") is None
            remedy = EXTRA if missing else "install the NVIDIA driver, and check that nvidia-smi lists the GPUs"
            said = "NVML's Python binding is not installed" if missing else "no NVIDIA driver answers"
            yield Finding("GPUs and driver", "missing", said, CAPTURE, remedy)
            return
        count = library.nvmlDeviceGetCount()
        names = [_text(library.nvmlDeviceGetName(library.nvmlDeviceGetHandleByIndex(n))) for n in range(count)]
        driver = _text(library.nvmlSystemGetDriverVersion())
    if not names:
        remedy = "check nvidia-smi, and that the container was started with its GPUs"
        yield Finding("GPUs and driver", "missing", f"driver {driver}, no GPU", CAPTURE, remedy)
        return
    shown = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    yield Finding("GPUs and driver", "ok", f"{shown}, driver {driver}")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _nsys(nsys: Path | None, version: tuple[int, ...]) -> Finding:
    what = "Nsight Systems"
    if nsys is None:
        remedy = "install Nsight Systems, or set $NSYS to the nsys beside an installed Nsight Compute"
        return Finding(what, "missing", "nsys is not on PATH, in $NSYS, or beside Nsight Compute", NSYS, remedy)
    shown = ".".join(map(str, version)) or "unknown version"
    if version[: len(OLDEST)] < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return Finding(what, "missing", f"{shown} at {nsys}", NSYS, f"install nsys {needed} or newer")
    if find_importer(nsys) is None:
        remedy = "install the whole of Nsight Systems: its host tools turn an interrupted recording into a report"
        return Finding(what, "limited", f"{shown} at {nsys}, without QdstrmImporter", "interrupted recordings", remedy)
    return Finding(what, "ok", f"{shown} at {nsys}")


def _sglang() -> Finding:
    package = find_sglang()
    if package is None:
        remedy = "run profkit with the Python that serves (`pip install sglang` there), or set PYTHONPATH to it"
        return Finding("SGLang", "missing", "not installed for this Python", CAPTURE, remedy)
    return Finding("SGLang", "ok", sglang_version(package))


def _cupti() -> Finding:
    """CUPTI's library, and the package that records with it in the server's processes."""
    version, library = cupti_version(), cupti_library()
    if not version:
        return Finding("CUPTI", "missing", "the package cupti is not installed", CUPTI, EXTRA)
    if library is None:
        remedy = "pip install nvidia-cuda-cupti, or set $CUDA_HOME to a CUDA toolkit"
        return Finding("CUPTI", "missing", f"{PACKAGE} {version}, but no libcupti.so", CUPTI, remedy)
    return Finding("CUPTI", "ok", f"{PACKAGE} {version}, {library}")


def _torch() -> Finding:
    """PyTorch, whose profiler records as well."""
    if not _has("torch"):
        return Finding(
            "PyTorch", "missing", "not installed for this Python", TORCH, "pip install torch; it comes with SGLang"
        )
    return Finding("PyTorch", "ok", _version("torch"))


def _nvtx(nsys: tuple[int, ...]) -> Finding:
    """The package that annotates steps; older recorders do not see what newer releases of it push."""
    version = nvtx_version()
    if lack := nvtx_lack(version, nsys):
        return Finding("NVTX", "missing", lack.found, f"{BACKEND}{','.join(lack.recorders)}", lack.remedy)
    return Finding("NVTX", "ok", version)


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "installed, version unknown"


def _plugin() -> Finding:
    """Whether SGLang will find profkit's entry point, as a server that capture starts would look for it."""
    what, lost, package = "profkit's plugin", "names of steps and phases", find_sglang()
    if package is not None and not loads_plugins(package):
        return Finding(what, "limited", "this SGLang loads no plugins", lost, "install SGLang 0.5.12 or newer")
    try:
        found = served_plugin(os.environ)
    except OSError as error:
        return Finding(what, "limited", str(error), lost, f"check that {sys.executable} runs")
    if not found:
        return Finding(what, "limited", f"no entry point {NAME} of {GROUP} is found", lost, "pip install profkit")
    for entry in found:
        if entry.value != TARGET:
            remedy = f"pip install the profkit that runs here, or uninstall the package that names {entry.value}"
            return Finding(what, "limited", f"the entry point {NAME} is {entry.value}, not {TARGET}", lost, remedy)
        if entry.fault:
            return Finding(what, "limited", f"it cannot be loaded ({entry.fault})", lost, EXTRA)
    return _named_plugin(what)


def _named_plugin(what: str) -> Finding:
    """The shell may name the plugins that servers load; capture adds profkit's for the ones that it starts."""
    if is_left_out(os.environ):
        named = os.environ["SGLANG_PLUGINS"]
        remedy = f"export SGLANG_PLUGINS={named},{NAME}; `profkit capture` does that for its own"
        found = f"$SGLANG_PLUGINS is {named}, without {NAME}"
        return Finding(what, "limited", found, "names of steps in servers that you start", remedy)
    if is_installed():
        return Finding(what, "ok", f"entry point {NAME} of {GROUP}")
    return Finding(what, "ok", "no package is installed; capture hands it to SGLang on PYTHONPATH")


def _counters() -> Finding:
    """Whether this user may read the GPUs' hardware counters."""
    what = "GPU counters"
    try:
        admin_only = ADMIN_ONLY in DRIVER_SETTINGS.read_text()
    except OSError:
        remedy = "check that /proc/driver/nvidia/params can be read, also inside a container"
        return Finding(what, "limited", "the driver does not say who may read them", COUNTED, remedy)
    if admin_only and os.geteuid() != 0:
        remedy = "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
        return Finding(what, "limited", "for administrators only", COUNTED, remedy)
    return Finding(what, "ok", "this user may read them")


def _pm_sampling() -> Finding:
    """Whether CUPTI's package can sample those counters during a window."""
    what, lacks = "PM sampling", sampling_lacks()
    if lacks:
        release = ".".join(map(str, SAMPLES_FROM))
        remedy = f"pip install '{PACKAGE}>={release}' cuda-bindings"
        return Finding(what, "limited", lacks, COUNTED, remedy)
    return Finding(what, "ok", f"{PACKAGE} {cupti_version()}")


def _disk() -> Iterator[Finding]:
    for place in dict.fromkeys((Path.cwd(), Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(place).free
        room = f"{free / 2**30:,.0f} GiB free in {place}"
        if free < NEEDED_BYTES:
            remedy = f"free {NEEDED_BYTES / 2**30:.0f} GiB, or use -o and $TMPDIR"
            yield Finding("disk", "missing", room, CAPTURE, remedy)
        else:
            yield Finding("disk", "ok", room)
