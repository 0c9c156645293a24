"""profkit: where every nanosecond of an LLM decode step went, on every GPU, and what would make it shorter."""

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
