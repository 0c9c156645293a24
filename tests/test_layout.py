"""How the package is put together: imports run one way, the surface is small, and the JSON contract holds."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

import profkit
from profkit import Recording, analyze
from profkit.analyzers.vocabulary import CLASSES, PARTS, PHASES
from tests.analyzers.engine import Plan, run
from tests.builders import TraceBuilder

PACKAGE = Path(profkit.__file__).parent

MAY_IMPORT = {
    "traces": set(),
    "analyzers": {"traces"},
    "reports": {"analyzers", "traces"},
    "capture": {"sglang", "traces"},
    "sglang": {"traces"},
    "analyzer": {"analyzers", "traces"},
    "cli": {"reports", "analyzers", "capture", "traces"},
    "__init__": {"analyzers", "traces"},
    "__main__": {"cli"},
}
"""design.md, section 2: cli -> reports -> analyzers -> traces, and cli -> capture -> traces; capture shares names with
the plugin that it starts."""

HEAVY = ("pandas", "torch", "sglang", "plotly", "jinja2", "hypothesis", "nvtx", "pynvml", "cupti", "httpx", "psutil")


@cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text("utf-8")) for file in sorted(PACKAGE.rglob("*.py"))}


def part_of(file: Path) -> str:
    """The part of the package that ``file`` belongs to: its first folder, or its own name at the top."""
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(file: Path, tree: ast.Module) -> Iterator[str]:
    """Full names of the modules that ``file`` imports, anywhere in it."""
    package = ["profkit", *file.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_every_part_has_its_place() -> None:
    assert {part_of(file) for file in trees()} <= set(MAY_IMPORT)


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_run_one_way(part: str) -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for file, tree in trees().items()
        if part_of(file) == part
        for name in imported(file, tree)
        if name.startswith("profkit.")
        and name.split(".")[1] in MAY_IMPORT
        and name.split(".")[1] not in MAY_IMPORT[part] | {part}
    ]
    assert wrong == []


def calls_of(name: str, parts: set[str]) -> list[str]:
    return [
        f"{file.relative_to(PACKAGE)}:{node.lineno}"
        for file, tree in trees().items()
        if part_of(file) in parts
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def test_the_library_never_prints() -> None:
    assert calls_of("print", {"traces", "analyzers", "reports", "__init__"}) == []


def test_analyzers_read_and_draw_nothing() -> None:
    """Rules are the one thing that is read: the built-in ones, and a user's."""
    drawing = [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for file, tree in trees().items()
        if part_of(file) == "analyzers"
        for name in imported(file, tree)
        if name.split(".")[0] in ("plotly", "jinja2", "rich", "click", "pyarrow", "sqlite3")
        or (name.startswith("pathlib") and "rules" not in file.parts)
    ]
    assert drawing == [] and calls_of("open", {"analyzers"}) == []


def test_no_exception_is_swallowed() -> None:
    """No bare ``except``, and none that does nothing."""
    silent = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}"
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (ast.unparse(node.type) in ("Exception", "BaseException") and _passes(node)))
    ]
    assert silent == []


def _passes(handler: ast.ExceptHandler) -> bool:
    return all(isinstance(statement, ast.Pass) for statement in handler.body)


def test_public_surface() -> None:
    assert sorted(profkit.__all__) == [
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
    for name in profkit.__all__:
        assert getattr(profkit, name).__doc__ or name == "__version__"


def modules_after(*arguments: str) -> set[str]:
    """The modules that a command line leaves in ``sys.modules``."""
    script = "import sys; from profkit.cli import main; main(sys.argv[1:]); print('\\n' + ' '.join(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_analyze_stays_light(form: tuple[str, ...], tmp_path: Path) -> None:
    """pandas alone would cost more than the analysis; torch and sglang are never needed to read."""
    profkit.save_bundle(run(Plan(), Plan()), tmp_path / "bundle")
    loaded = modules_after("analyze", str(tmp_path / "bundle"), *form)
    assert loaded & set(HEAVY) == set()
    assert "profkit" in loaded and "numpy" in loaded


def test_help_imports_no_library() -> None:
    assert modules_after("--help") & {"pyarrow", *HEAVY} == set()


# -- The JSON contract, profkit.analysis/1 (design.md, section 6) ------------------------------------------------------

Int, Float, Text, Flag = int, float, str, bool
PARTITION = dict.fromkeys(PARTS, Int)


class Maybe:
    """Unknown is ``null``."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind


class Each:
    """A table from any of ``keys`` to ``kind``."""

    def __init__(self, keys: tuple[str, ...], kind: Any) -> None:
        self.keys, self.kind = keys, kind


DEVICE = {
    "rank": Int, "ops": Int, "ops_without_launch": Int, "steps": Int,
    "window": Maybe({"start_ns": Int, "end_ns": Int, "wall_ns": Int}),
    "busy_union_ns": Maybe(Int), "idle_ns": Maybe(Int),
    "partition_ns": dict.fromkeys(PARTS, Maybe(Int)),
    "phase_partition_ns": Each(PHASES, PARTITION),
    "collectives": {
        "count": Int, "sum_ns": Int, "union_ns": Int, "exposed_ns": Maybe(Int), "skew_ns": Maybe(Int),
        "transfer_ns": Maybe(Int), "unpaired_ns": Maybe(Int),
        "skew_blame_ns": dict.fromkeys(PARTS, Maybe(Int)),
    },
    "phases": Each(
        PHASES,
        {
            "ops": Int, "sum_ns": Int, "union_ns": Int, "span_ns": Int, "collective_union_ns": Int, "graph_ops": Int,
            "inferred": Flag,
        },
    ),
    "classes": Each(CLASSES, {"ops": Int, "sum_ns": Int, "union_ns": Int}),
}  # fmt: skip
GRAPHS = {
    "launches_per_step": Maybe(Float), "nodes_per_launch": Each(PHASES, Int),
    "ops_outside_graphs_per_step": Maybe(Float), "launch_call_ns_median": Maybe(Int),
    "first_op_latency_ns_median": Maybe(Int), "launch_lead_ns_median": Maybe(Int), "run_ahead_share": Maybe(Float),
}  # fmt: skip
CYCLE = {
    "kind": Maybe(Text), "batch_size": Maybe(Int), "steps": Int, "period_ns_median": Maybe(Int),
    "phase_ns_median": Each(PHASES, Int), "accept_len": Maybe(Float), "accept_len_source": Text,
    "us_per_token": Maybe(Float),
}  # fmt: skip
CAUSE = {
    "cause": Text, "rank": Maybe(Int), "phase": Maybe(Text), "part": Maybe(Text), "ns_per_step": Int, "text": Text,
}  # fmt: skip
COMPARISON = {
    "baseline": Text, "speculative": Text, "break_even_accept_len": Float, "predicted_speedup": Maybe(Float),
    "measured_speedup": Maybe(Float),
}  # fmt: skip
TRACE = {
    "name": Text, "source": Text, "path": Text,
    "health": {"status": Text, "checks": [{"id": Text, "status": Text, "detail": Text}]},
    "devices": {}, "graphs": {}, "cycle": CYCLE, "verdict": [CAUSE],
}  # fmt: skip
CAUSES = {
    "host_late", "straggler_host", "straggler_compute", "sync", "link_bound", "link_contended", "padding",
    "eager_fallback", "drafter_cost", "verify_cost", "graph_gaps", "queue", "unexplained",
}  # fmt: skip


def departures(found: Any, kind: Any, where: str) -> list[str]:
    """Where ``found`` is not what the contract says; keys may only be added."""
    if isinstance(kind, Maybe):
        return [] if found is None else departures(found, kind.kind, where)
    if isinstance(kind, Each):
        strange = [f"{where}.{key} is no word of the contract" for key in set(found) - set(kind.keys)]
        return strange + [wrong for key in found for wrong in departures(found[key], kind.kind, f"{where}.{key}")]
    if isinstance(kind, list):
        return [wrong for i, item in enumerate(found) for wrong in departures(item, kind[0], f"{where}[{i}]")]
    if isinstance(kind, dict):
        missing = [f"{where}.{key} is missing" for key in kind if key not in found]
        inner = [departures(found[key], kind[key], f"{where}.{key}") for key in kind if key in found]
        return missing + [wrong for part in inner for wrong in part]
    fits = type(found) is kind or (kind is Float and type(found) is Int)
    return [] if fits else [f"{where}: {found!r} is no {kind.__name__}"]


def contract_of(*recordings: Recording, **more: Any) -> dict[str, Any]:
    analysis = json.loads(msgspec.json.encode(analyze(recordings, **more)[0]))
    assert analysis["schema"] == "profkit.analysis/1"
    for number, trace in enumerate(analysis["traces"]):
        wrong = departures(trace, TRACE, f"traces[{number}]")
        for table, kind in (("devices", DEVICE), ("graphs", GRAPHS)):
            for device, figures in trace[table].items():
                assert device.isdecimal()
                wrong += departures(figures, kind, f"{table}.{device}")
        assert wrong == []
        assert trace["health"]["status"] in ("ok", "warn", "abstain")
        assert {cause["cause"] for cause in trace["verdict"]} <= CAUSES
    return analysis  # type: ignore[no-any-return]


def test_contract_of_a_speculative_run() -> None:
    trace = contract_of(Recording("two ranks", "somewhere", run(Plan(), Plan(late_before_target=4_000_000))))["traces"][
        0
    ]
    assert (trace["name"], trace["path"], trace["source"]) == ("two ranks", "somewhere", "synthetic")
    assert trace["cycle"]["kind"] == "speculative" and trace["verdict"]
    costs = [cause["ns_per_step"] for cause in trace["verdict"]]
    assert all(cost > 0 for cost in costs)


@pytest.mark.parametrize("name", ["nothing", "no steps", "one step", "whole graphs", "orphans", "mismatch"])
def test_contract_where_little_is_known(name: str) -> None:
    builder = TraceBuilder()
    if name in ("one step", "whole graphs", "orphans", "mismatch"):
        builder.range(0, 100, "step:decode")
    if name != "nothing":
        builder.launch(1, 2, "gemm", 10, 20)
    if name == "whole graphs":
        builder.launch(3, 4, "whole_graph", 30, 50)
    if name == "orphans":
        builder.orphan("gemm", 40, 50)
    if name == "mismatch":
        builder.launch(5, 6, "all_reduce", 30, 40).rank(1).range(0, 100, "step:decode").launch(1, 2, "gemm", 10, 20)
    contract_of(Recording(name, "", builder.trace()))


def test_contract_of_a_comparison() -> None:
    plain = TraceBuilder()
    for start in range(0, 5_000_000, 1_000_000):
        plain.range(start, start + 9, "step:decode bs=1").range(start, start + 9, "target")
        plain.launch(start + 1, start + 2, "gemm", start + 10, start + 900_000)
    recordings = [Recording("plain", "", plain.trace()), Recording("speculative", "", run(Plan()))]
    comparison = contract_of(*recordings, accept_len=3.5)["comparison"]
    assert departures(comparison, COMPARISON, "comparison") == []
    assert (comparison["baseline"], comparison["speculative"]) == ("plain", "speculative")
    assert contract_of(recordings[1])["comparison"] is None
