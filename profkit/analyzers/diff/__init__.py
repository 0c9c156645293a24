"""What changed between two recordings, in numbers that add up, and whether it is real."""

from .compare import diff
from .limits import Limit, parse_limit
from .pairing import pair_recordings, pair_up
from .result import Change, Comparable, Diff, Judgement, KernelChange, PairDiff, PartChange, Per
from .side import Context, Side

__all__ = [
    "Change",
    "Comparable",
    "Context",
    "Diff",
    "Judgement",
    "KernelChange",
    "Limit",
    "PairDiff",
    "PartChange",
    "Per",
    "Side",
    "diff",
    "pair_recordings",
    "pair_up",
    "parse_limit",
]
