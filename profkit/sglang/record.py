"""What the plugin did in one process: ``plugin-PID.json``, and a line in the process's log for each thing amiss."""

from __future__ import annotations

import json
import logging
import operator
import os
import time
from pathlib import Path
from typing import Any

from .probes import Probe

SCHEMA = "profkit.plugin/1"
LONGEST = 200

log = logging.getLogger("profkit.sglang")


def clocks() -> dict[str, int]:
    """One instant on three clocks, in nanoseconds.

    nsys counts from the start of its session, which it gives as an instant of ``realtime_ns``; the marks
    ``clock:monotonic`` in the domain ``profkit`` carry ``monotonic_ns`` as their payload and tie the two exactly.
    """
    return {
        "monotonic_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        "monotonic_raw_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
        "realtime_ns": time.clock_gettime_ns(time.CLOCK_REALTIME),
    }


class ProcessRecord:
    """The record of this process, written again whenever something is added; ``folder`` may be ``None``."""

    def __init__(self, folder: Path | None, sglang: str, attached: bool) -> None:
        self.path = folder / f"plugin-{os.getpid()}.json" if folder else None
        self.content: dict[str, Any] = {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "sglang": sglang,
            "taken_for": None,
            "tool_attached": attached,
            "clocks": clocks(),
            "probes": [],
            "missing": [],
            "faults": [],
            "runners": [],
            "modules_off": None,
            "remarks": [],
        }

    def found(self, probe: Probe) -> None:
        """``probe`` is in place."""
        self.content["probes"].append({"target": probe.target, "kind": probe.kind, "range": probe.name})

    def missing(self, probe: Probe, reason: str) -> None:
        """``probe`` is not in the installed release; everything else goes on."""
        self.content["missing"].append({"target": probe.target, "range": probe.name, "reason": reason[:LONGEST]})
        log.warning(
            "profkit: no probe %s in SGLang %s (%s); its range is missing, the rest is recorded",
            probe.target,
            self.content["sglang"],
            reason[:LONGEST],
        )

    def taken_for(self, release: str) -> None:
        """SGLang's version names no release."""
        self.content["taken_for"] = release
        said = "profkit: SGLang's version %s names no release; its probes are those of %s"
        log.warning(said, self.content["sglang"], release)

    def runner(self, role: str, gpu_id: Any, tp_rank: Any) -> None:
        """A model runner has loaded its model. Its numbers may be of any integer type, or ``None``."""
        self.content["runners"].append({"role": role, "gpu_id": _plain(gpu_id), "tp_rank": _plain(tp_rank)})
        self.write()

    def modules_off(self, reason: str) -> None:
        """Why no modules are noted (any more) during graph capture."""
        self.content["modules_off"] = reason
        self.write()

    def remark(self, text: str) -> None:
        """Something that the user should know of the recording; once each."""
        if text not in self.content["remarks"]:
            self.content["remarks"].append(text[:LONGEST])
            self.write()

    def fault(self, where: str, error: Exception) -> None:
        """A hook failed; the first time at each place it is logged. The server has not seen ``error``."""
        if any(fault["where"] == where for fault in self.content["faults"]):
            return
        text = _words(error)[:LONGEST]
        self.content["faults"].append({"where": where, "error": text})
        log.warning("profkit: the hook of %s failed (%s); the server goes on, ranges may be missing", where, text)
        self.write()

    def write(self) -> None:
        """Write the record whole; where that is impossible, it costs a line in the log and nothing else."""
        if self.path is None:
            return
        part = self.path.with_suffix(".part")
        try:
            part.write_text(json.dumps(self.content, indent=1), "utf-8")
            part.replace(self.path)
        except (OSError, TypeError, ValueError) as error:
            log.warning("profkit: cannot write %s (%s); check the folder in PROFKIT_OUT", self.path, error)
            self.path = None


def _words(error: Exception) -> str:
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception as unspeakable:  # an exception of the server may have words that raise in turn
        return f"{kind}, whose text raises {type(unspeakable).__name__}"


def _plain(number: Any) -> int | None:
    """A whole number of any type, such as numpy's, as one that can be written; ``None`` for anything else."""
    try:
        return operator.index(number)
    except TypeError:
        return None
