"""Recording a server: configurations, its life cycle, load, the recorder, and the sweep that comes of it."""

from .configuration import load_settings, preset_names
from .cupti import cupti_library
from .plan import Plan, make_plan
from .run import capture, check_recorders, dry_run
from .settings import Settings

__all__ = [
    "Plan",
    "Settings",
    "capture",
    "check_recorders",
    "cupti_library",
    "dry_run",
    "load_settings",
    "make_plan",
    "preset_names",
]
