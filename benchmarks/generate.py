"""Writes an Nsight Systems export of a DFlash server, of any size: ``python -m benchmarks.generate OPS FILE.sqlite``.

Whole decode steps (2,462 ops on two ranks) behind a prefill that makes up the rest. The same arguments give the same
rows in the same order.
"""

from __future__ import annotations

import argparse
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from .export import Export
from .play import PROFKIT, RANKS, plan_step, play
from .step import OPS

BEGIN = 100_000_000
STEPS_AT_ONCE = 64
OPS_PER_STEP = RANKS * len(OPS)


def generate(path: Path, ops: int, eager: bool = False) -> int:
    """Write an export with ``ops`` GPU activities to the new file ``path``; returns the number of its decode steps.

    ``eager`` launches every op by a call of its own, as without CUDA graphs. Raises ``ValueError`` for less than
    one step.
    """
    if ops < OPS_PER_STEP:
        raise ValueError(f"a step has {OPS_PER_STEP} ops: ask for as many at least")
    if path.exists():
        raise FileExistsError(path)
    steps, rest = divmod(ops, OPS_PER_STEP)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")
        _write(Export(connection), steps, rest, eager)
        connection.execute("COMMIT")
    return steps


def _write(export: Export, steps: int, rest: int, eager: bool) -> None:
    random = np.random.default_rng(20_260_101)
    export.domains()
    plan = plan_step(eager)
    if not eager:
        export.graphs(plan)
    begin = BEGIN
    if rest:
        begin = _prefill(export, rest, begin, random)
    for first in range(0, steps, STEPS_AT_ONCE):
        times = play(plan, min(STEPS_AT_ONCE, steps - first), begin, random)
        export.steps(plan, times)
        begin = times.stop
    export.finish()


def _prefill(export: Export, ops: int, begin: int, random: np.random.Generator) -> int:
    """Write a prefill of ``ops`` ops; returns when it is over."""
    plan = plan_step(eager=True)
    plan.ranges = [(PROFKIT, "step:prefill bs=1", 0, len(plan.api) - 2)]
    times = play(plan, 1, begin, random)
    export.steps(plan, times, ((ops + 1) // 2, ops // 2))
    return times.stop


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", type=int, help="number of GPU activities")
    parser.add_argument("path", type=Path, help="the file to write")
    parser.add_argument("--eager", action="store_true", help="one launch per op, as without CUDA graphs")
    given = parser.parse_args()
    steps = generate(given.path, given.ops, given.eager)
    print(f"{given.path}: {given.ops:,} ops in {steps:,} decode steps")


if __name__ == "__main__":
    main()
