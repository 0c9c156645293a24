"""Pure functions from a ``Trace`` to small tables: ``analyze`` and the questions behind it."""

from .analysis import Recording, analyze
from .attribution import Attribution, attribute
from .result import Analysis, TraceFigures
from .rules import Rules, load_rules

__all__ = ["Analysis", "Attribution", "Recording", "Rules", "TraceFigures", "analyze", "attribute", "load_rules"]
