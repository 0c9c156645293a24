"""The change of a step's wall time, cut into phase, part and class: exact to the nanosecond."""

from __future__ import annotations

import numpy as np

from .grid import Grid, change, interval
from .result import Change, PartChange
from .side import cell_words


def part_changes(grid: Grid) -> tuple[Change, tuple[PartChange, ...]]:
    """The total's change and those of the cells, largest first; cells sum to the total.

    Cells and total are one family: the chance that any of them is called significant without a change is 5 %.
    """
    a, b, total_a, total_b = grid.totals()
    count = len(grid.codes)
    noise = grid.noise(np.hstack([np.eye(count), np.ones((count, 1))]))
    significant = noise.significant()
    rows = [
        PartChange(
            *cell_words(int(code)),
            int(a[place]),
            int(b[place]),
            int(b[place] - a[place]),
            interval(noise, place),
            bool(significant[place]),
        )
        for place, code in enumerate(grid.codes)
    ]
    rows.sort(key=lambda row: (-abs(row.delta_ns), row.phase, row.part, row.kernel_class or ""))
    return change(total_a, total_b, noise, count, significant), tuple(rows)
