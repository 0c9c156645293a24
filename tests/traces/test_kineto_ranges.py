"""The plugin's ranges in the PyTorch profiler's files, which know no domains: the name says whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.analyzers import Recording, analyze
from tests.traces.kineto_files import event, kernel, launch, read


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])
def test_the_prefix_becomes_the_domain(category: str, tmp_path: Path) -> None:
    """Either interface of torch is one of these categories."""
    trace = read(
        tmp_path,
        event(category, "profkit|step:decode bs=1", 10, 90),
        event(category, "profkit|draft", 20, 30),
        event("cpu_op", "aten::mm", 22, 5),
        event("cpu_op", "my profkit|draft", 25, 5),
        event("user_annotation", "step[DECODE bs=1]", 9, 95),
        event("gpu_user_annotation", "profkit|draft", 40, 5),
    )
    domains, texts = ([trace.strings[one] for one in own] for own in (trace.ranges.domain, trace.ranges.text))
    assert list(zip(domains, texts, trace.ranges.start.tolist(), trace.ranges.depth.tolist(), strict=True)) == [
        ("", "step[DECODE bs=1]", 9_000, 0),
        ("profkit", "step:decode bs=1", 10_000, 1),
        ("profkit", "draft", 20_000, 2),
    ]


def test_a_range_of_nothing_but_the_prefix(tmp_path: Path) -> None:
    trace = read(tmp_path, event("cpu_op", "profkit|", 10, 90))
    assert [trace.strings[text] for text in trace.ranges.text] == [""]


def test_phases_come_from_these_ranges(tmp_path: Path) -> None:
    """A recording of the profiler is attributed like any other: nothing of it is inferred."""
    events = []
    for number in range(4):
        at = 1_000 * number
        events += [
            event("cpu_op", "profkit|step:decode bs=1", at, 500),
            event("cpu_op", "profkit|draft", at + 1, 20),
            launch(at + 5, 5, 2 * number + 1),
            kernel(at + 30, 100, 2 * number + 1),
            event("cpu_op", "profkit|target", at + 30, 20),
            launch(at + 35, 5, 2 * number + 2),
            kernel(at + 140, 200, 2 * number + 2),
        ]
    (analysed,) = analyze([Recording("torch", "", read(tmp_path, *events))])[0].traces
    phases = analysed.devices["0"].phases
    assert {name: (phase.ops, phase.sum_ns, phase.inferred) for name, phase in phases.items() if phase.ops} == {
        "draft": (4, 400_000, False),
        "verify": (4, 800_000, False),
    }
    assert analysed.cycle.kind == "speculative"
