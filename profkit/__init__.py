"""profkit: where every nanosecond of an LLM decode step went, on every GPU, and what would make it shorter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.analyzers import Analysis, Recording, analyze, load_rules
    from profkit.traces import InputError, ProfkitError, Trace, load_bundle, open_trace, save_bundle

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "InputError",
    "ProfkitError",
    "Recording",
    "Trace",
    "__version__",
    "analyze",
    "load_bundle",
    "load_rules",
    "open_trace",
    "save_bundle",
]

_ANALYZERS = {"Analysis", "Recording", "analyze", "load_rules"}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: an engine that loads the plugin needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'profkit' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module("profkit.analyzers" if name in _ANALYZERS else "profkit.traces"), name)
