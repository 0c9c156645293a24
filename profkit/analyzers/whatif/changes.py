"""A lever as changes to a model: how they usually are, and at the bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from profkit.traces import F64

from ..replay.model import Model
from .result import Figure


def unchanged(model: Model) -> Model:
    """As recorded."""
    return model


def no_floor(model: Model) -> int:
    """Nothing says how short the step can be."""
    return 0


def _no_margin(periods: F64) -> int:
    return 0


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A change, and below what it cannot bring the step.

    ``floor`` is a step in ns, of the model that the change is applied to. ``least`` stands for the change where the
    floor is the step of the whole combination with as little work as possible.
    """

    change: Callable[[Model], Model] = unchanged
    floor: Callable[[Model], int] = no_floor
    least: Callable[[Model], Model] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A lever that a recording carries.

    ``tokens`` is the accept length then, where the lever changes it. ``margin`` is by how much the bounds are wider, of
    the periods as they would usually be, and ``spread`` the shortest and longest step relative to the middle one, where
    the lever makes other steps be met than were recorded. ``bound`` if the usual figure is itself only a bound.
    ``on_gpu`` unless it changes the host. ``beyond`` says how far from what was recorded the lever goes, and
    ``not_in_bounds`` what is known to be uncertain, but not by how much; empty where neither is so.
    """

    low: Version
    usual: Version
    high: Version
    assumptions: tuple[str, ...] = ()
    tokens: Figure | None = None
    margin: Callable[[F64], int] = _no_margin
    spread: tuple[float, float] = (1.0, 1.0)
    bound: bool = False
    on_gpu: bool = True
    beyond: str = ""
    not_in_bounds: str = ""


class RefusedError(Exception):
    """A recording cannot carry a lever; the message says why."""
