"""What the steps of one pass share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .backends import Backend
from .importing import Window
from .interrupts import Interrupts
from .plan import Pass, Plan
from .pm_sampling import PmSampling
from .record import Record
from .secrets import Scrubber
from .surroundings import Say


@dataclass(slots=True)
class Context:
    """A pass of a plan, its recorders, the record of the capture, and the windows that there have been."""

    plan: Plan
    one: Pass
    backend: Backend
    record: Record
    scrub: Scrubber
    interrupts: Interrupts
    say: Say
    counters: PmSampling
    windows: list[Window] = field(default_factory=list)

    @property
    def plugin_folder(self) -> Path:
        """Where the plugin leaves its records of this pass."""
        return self.plan.folder / f"plugin{self.one.suffix}"
