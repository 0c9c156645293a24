"""Workspaces with analyzers to run commands in."""

from __future__ import annotations

from pathlib import Path

from profkit import save_bundle
from profkit.traces import Trace
from tests.builders import TraceBuilder

ROOT = Path(__file__).parents[2]
VERDICT = ROOT / "analyzers" / "dflash_verdict.py"
TABLE = ROOT / "analyzers" / "data" / "kimi-k26-8gpu.toml"

COUNTING = """
from profkit.analyzer import Answer, Bars, Column, Recordings, Series, Table, analyzer

@analyzer("How many recordings?")
def count(recordings: Recordings) -> Answer:
    names = [trace.name for trace in recordings.analysis.traces]
    return Answer(
        [f"There are {len(names)} recordings."],
        [Table("Names", [Column("name"), Column("ops", "k", 1)], [(name, 12.345) for name in names])],
        [Bars("Ops", names, [Series("all", [None] * len(names))], "recording", "ops")],
    )
"""


def steps(period: int, *, drafting: bool = False) -> Trace:
    """Five decode steps of batch 1, one each ``period`` ns."""
    builder = TraceBuilder()
    for start in range(0, 5 * period, period):
        builder.range(start, start + 90, "step:decode bs=1")
        if drafting:
            builder.range(start + 1, start + 9, "draft").launch(start + 2, start + 3, "gemm", start + 10, start + 400)
        builder.range(start + 20, start + 80, "target")
        builder.launch(start + 30, start + 31, "gemm", start + 500, start + period - 100)
    return builder.trace()


def workspace(folder: Path, **analyzers: str) -> Path:
    """A workspace with a plain and a speculative recording, of which a cycle takes 2.5 steps, and ``analyzers``."""
    save_bundle(steps(100_000), folder / "traces" / "plain")
    save_bundle(steps(250_000, drafting=True), folder / "traces" / "drafting")
    (folder / "analyzers").mkdir()
    for name, text in analyzers.items():
        (folder / "analyzers" / f"{name}.py").write_text(text, "utf-8")
    return folder
