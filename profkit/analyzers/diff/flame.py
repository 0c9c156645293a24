"""Two flame graphs as one: every frame with its time in A and in B."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analyzers.flame import KERNEL, PHASE_LEVEL, Flame, gpu_flame
from profkit.traces import F64, I8, I64

from .names import kernel_key
from .side import Side, one_rank


@dataclass(frozen=True, slots=True, eq=False)
class DiffFlame:
    """A call tree as columns, as ``Flame`` has it; times and counts of A and B are per step (or token).

    Frames of both are one where their paths are equal: kernels by what builds of them have in common, and if only one
    side drafts, plain decoding and verifying are one phase.
    """

    parent: I64
    label: I64
    name: I64
    level: I8
    a_ns: F64
    b_ns: F64
    a_count: F64
    b_count: F64
    strings: tuple[str, ...]

    def check(self) -> None:
        """Raise ``ValueError`` where children take longer than their parent."""
        for total in (self.a_ns, self.b_ns):
            children = np.zeros(len(total))
            np.add.at(children, self.parent[1:], total[1:])
            if np.any(children > total * (1 + 1e-9) + 1e-6):
                raise ValueError("frames take longer than the frame around them")


@dataclass(frozen=True, slots=True)
class _Frame:
    parent: int
    level: int
    key: str


def diff_flame(a: Side, b: Side, tokens: tuple[float, float]) -> DiffFlame:
    """GPU time in steps of the rank that is slowest in B, or in the whole recordings without steps."""
    flames = [
        gpu_flame(side.attribution, device, window=bool(side.steps))
        for side, device in zip((a, b), one_rank(a, b), strict=True)
    ]
    frames: dict[_Frame, int] = {}
    same = {"decode": "verify"} if a.cycle.kind != b.cycle.kind else {}
    rows = [_placed(frames, flame, same) for flame in flames]
    texts: dict[str, int] = {}
    label, name = np.zeros(len(frames), np.int64), np.zeros(len(frames), np.int64)
    # B's names are shown where both have the frame.
    for flame, row in zip(flames, rows, strict=True):
        known = np.array([texts.setdefault(text, len(texts)) for text in flame.strings], np.int64)
        label[row], name[row] = known[flame.label], known[flame.name]
    columns = []
    for flame, row, each in zip(flames, rows, tokens, strict=True):
        for values in (flame.total_ns, flame.count):
            columns.append(np.bincount(row, weights=values, minlength=len(frames)) / max(flame.steps, 1) / each)
    return DiffFlame(
        parent=np.array([frame.parent for frame in frames], np.int64),
        label=label,
        name=name,
        level=np.array([frame.level for frame in frames], np.int8),
        a_ns=columns[0],
        b_ns=columns[2],
        a_count=columns[1],
        b_count=columns[3],
        strings=tuple(texts),
    )


def _placed(frames: dict[_Frame, int], flame: Flame, same: dict[str, str]) -> I64:
    """The frame of each row of ``flame``, new ones added behind their parents; ``same`` names phases that are one."""
    row = np.zeros(len(flame.parent), np.int64)
    keys = [kernel_key(text) for text in flame.strings]
    for at, (parent, level) in enumerate(zip(flame.parent.tolist(), flame.level.tolist(), strict=True)):
        text = keys[flame.name[at]] if level == KERNEL else flame.strings[flame.label[at]]
        if level == PHASE_LEVEL:
            text = same.get(text, text)
        frame = _Frame(int(row[parent]) if parent >= 0 else -1, level, text)
        row[at] = frames.setdefault(frame, len(frames))
    return row
