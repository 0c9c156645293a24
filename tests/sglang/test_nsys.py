"""Ranges of the plugin as the real Nsight Systems records them, read back by profkit's own reader."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from profkit.traces import Trace, open_trace
from profkit.traces.nsys_export import export_report, find_nsys
from tests.sglang import fake_server

PLAIN = """
worker = TpModelWorker(ModelRunner())
worker.forward_batch_generation(batch('EXTEND', 2))
worker.forward_batch_generation(batch('DECODE', 32))
"""

DFLASH = """
worker = dflash(graphs=False)
worker.forward_batch_generation(batch('EXTEND', 1))
worker.forward_batch_generation(batch('DECODE', 3))
worker.target_worker.model_runner.broken = True
try:
    worker.forward_batch_generation(batch('DECODE', 2))
except MemoryError as error:
    print(error)
worker.target_worker.model_runner.broken = False
worker.graphs = True
worker.forward_batch_generation(batch('DECODE', 3))
"""

WARY = """
class Wary(list):
    failed = False
    def __len__(self):
        if not self.failed:
            self.failed = True
            raise KeyError("only once")
        return 2
odd = batch('DECODE', 2)
odd.reqs = Wary()
print("served", TpModelWorker(ModelRunner()).forward_batch_generation(odd))
"""

CYCLE = ["prepare", "draft", "target", "accept", ["accept_sim"], "kv_append"]


@pytest.fixture
def nsys() -> Path:
    found = find_nsys()
    if found is None:
        pytest.skip("no nsys; install Nsight Systems or set $NSYS")
    try:
        nvtx = version("nvtx")
    except PackageNotFoundError:
        pytest.skip("no nvtx; pip install nvtx==0.2.11")
    if nvtx != "0.2.11":
        pytest.skip(f"nsys 2022.4 sees ranges of nvtx up to 0.2.11, and {nvtx} is installed")
    assert found is not None
    return found


def record(nsys: Path, root: Path, script: str) -> tuple[Trace, str]:
    """What nsys records of ``script`` in a fake server, and what the script printed."""
    fake_server.build(root)
    report = root / "report"
    flags = ["profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", str(report)]
    done = subprocess.run(
        [str(nsys), *flags, *fake_server.command(script)],
        env=fake_server.environment(root),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    written = sorted(root.glob("report.*"))
    assert written, done.stderr
    return open_trace(written[0]), done.stdout


def nesting(trace: Trace) -> list[object]:
    """The ranges of the domain ``profkit`` as nested lists of names, in the order of their starts."""
    tree: list[object] = []
    inside: dict[int, list[object]] = {-1: tree}
    for row, (parent, domain, text) in enumerate(
        zip(trace.ranges.parent.tolist(), trace.ranges.domain.tolist(), trace.ranges.text.tolist(), strict=True)
    ):
        assert trace.strings[domain] == "profkit"
        inside[row] = []
        inside[parent].append(trace.strings[text])
        inside[parent].append(inside[row])
    return _pruned(tree)


def _pruned(tree: list[object]) -> list[object]:
    return [_pruned(item) if isinstance(item, list) else item for item in tree if item != []]


def test_plain_steps(nsys: Path, tmp_path: Path) -> None:
    trace, _ = record(nsys, tmp_path, PLAIN)
    assert nesting(trace) == ["step:prefill bs=2", ["target"], "step:decode bs=32", ["target"]]


def test_dflash_steps_around_an_error_of_the_server(nsys: Path, tmp_path: Path) -> None:
    trace, printed = record(nsys, tmp_path, DFLASH)
    assert "the server's own" in printed
    eager = [*CYCLE[:2], "draft_sample", *CYCLE[2:]]
    assert nesting(trace) == [
        "step:prefill bs=1",
        ["target", "kv_append"],
        "step:decode bs=3",
        eager,
        "step:decode bs=2",
        eager[:5],
        "step:decode bs=3",
        CYCLE,
    ]
    trace.check()


def test_hooks_that_fail_do_not_reach_the_server(nsys: Path, tmp_path: Path) -> None:
    trace, printed = record(nsys, tmp_path, WARY + PLAIN)
    assert "served 4" in printed
    assert nesting(trace) == ["step:prefill bs=2", ["target"], "step:decode bs=32", ["target"]]
    (written,) = (tmp_path / "out").glob("plugin-*.json")
    assert json.loads(written.read_text())["faults"] == [{"where": "step", "error": "KeyError: 'only once'"}]


def test_marks_tie_the_monotonic_clock_to_the_time_of_nsys(nsys: Path, tmp_path: Path) -> None:
    script = "from time import monotonic_ns as now; before = now()" + PLAIN + "print('clock', before, now())"
    trace, printed = record(nsys, tmp_path, script)
    before, after = map(int, re.findall(r"clock (\d+) (\d+)", printed)[0])
    report = export_report(next(tmp_path.glob("report.*")), tmp_path)
    with closing(sqlite3.connect(report)) as tables:
        marks = tables.execute("SELECT start, int64Value FROM NVTX_EVENTS WHERE eventType = 34").fetchall()
    offset = min(start - monotonic for start, monotonic in marks)
    starts = trace.ranges.start - offset
    assert before <= starts.min() <= starts.max() <= after
