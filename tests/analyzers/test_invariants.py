"""What holds for every trace: parts sum to the time to the nanosecond, and names, order and origin do not matter."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit import Recording, analyze, load_bundle, save_bundle
from profkit.analyzers.analysis import trace_figures
from profkit.analyzers.attribution import Attribution, attribute
from profkit.analyzers.collectives import overlap_totals
from profkit.analyzers.intervals import covered_before, latest_active, merge, union_length
from profkit.analyzers.matching import match_collectives
from profkit.analyzers.owners import launch_of_op
from profkit.analyzers.result import TraceFigures
from profkit.analyzers.vocabulary import PARTS, PHASES
from profkit.traces import Ranges, Trace
from profkit.traces.model import Table
from profkit.traces.ranges import nest
from tests.analyzers.plain import RULES, Plain
from tests.analyzers.random_traces import damaged_traces, lengths, times, traces
from tests.builders import TraceBuilder

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def figures_of(trace: Trace) -> TraceFigures:
    return analyze([Recording("random", "random", trace)], RULES)[0].traces[0]


def as_table(trace: Trace) -> object:
    """All figures, without the times at which the window lies."""
    table = msgspec.to_builtins(figures_of(trace))
    for device in table["devices"].values():
        device["window"] = device["window"] and device["window"]["wall_ns"]
    return table


def cells_of(attribution: Attribution, device: int) -> Counter[tuple[str, str]]:
    totals = attribution.devices[device].window_totals()
    assert totals is not None
    return Counter({(PARTS[p], PHASES[f]): int(totals[p, f]) for p, f in zip(*np.nonzero(totals), strict=True)})


@few
@given(traces())
def test_partition_is_what_the_definitions_say(trace: Trace) -> None:
    plain, attribution = Plain(trace), attribute(trace, RULES)
    attribution.check()
    assert [PHASES[code] for code in attribution.phase] == [op.phase for op in plain.ops]
    for device, timeline in attribution.devices.items():
        window = plain.window(device)
        assert window == (timeline.window_start, timeline.window_end)
        assert cells_of(attribution, device) == plain.cells(device, *window)


def test_check_finds_holes_and_overlaps() -> None:
    trace = TraceBuilder().launch(1, 2, "gemm", 10, 20).launch(3, 4, "gemm", 30, 40).trace()
    line = attribute(trace, RULES).devices[0]
    line.check()
    for start, end in (([10, 21, 30], [20, 30, 40]), ([10, 19, 30], [20, 30, 40]), ([10, 20, 30], [20, 30, 30])):
        broken = replace(line, start=np.array(start), end=np.array(end))
        with pytest.raises(ValueError, match="the segments of device 0 do not tile its time"):
            broken.check()


@few
@given(traces(ranks=3))
def test_sums(trace: Trace) -> None:
    figures = figures_of(trace)
    for device in figures.devices.values():
        assert device.window is not None and device.busy_union_ns is not None
        assert sum(ns or 0 for ns in device.partition_ns.values()) == device.window.wall_ns
        assert device.busy_union_ns + (device.idle_ns or 0) == device.window.wall_ns
        by_part = Counter[str]()
        for parts in device.phase_partition_ns.values():
            by_part.update({name: ns or 0 for name, ns in parts.items()})
        assert {**dict.fromkeys(PARTS, 0), **by_part} == device.partition_ns
        assert sum(phase.ops for phase in device.phases.values()) == device.ops


@few
@given(traces(ranks=3))
def test_collectives_sum(trace: Trace) -> None:
    figures = figures_of(trace)
    for device in figures.devices.values():
        collectives = device.collectives
        if collectives.skew_ns is None:
            continue
        assert collectives.transfer_ns is not None and collectives.unpaired_ns is not None
        assert collectives.skew_ns + collectives.transfer_ns + collectives.unpaired_ns == collectives.sum_ns
        assert sum(ns or 0 for ns in collectives.skew_blame_ns.values()) == collectives.skew_ns
        assert sum(wait.ns for wait in collectives.waits) == collectives.skew_ns


@few
@given(traces(ranks=3))
def test_blame_is_what_the_last_rank_did(trace: Trace) -> None:
    plain, attribution = Plain(trace), attribute(trace, RULES)
    matched = match_collectives(attribution)
    figures = trace_figures(Recording("random", "random", trace), attribution)
    for device, own in matched.instances.items():
        if not matched.known:
            continue
        expected = Counter[str]()
        for start, skew, last in zip(own.start.tolist(), own.skew.tolist(), own.last.tolist(), strict=True):
            for (part, _), ns in plain.cells(last, start, start + skew).items() if skew > 0 else ():
                expected[part] += ns
        blamed = figures.devices[str(device)].collectives.skew_blame_ns
        assert {part: ns for part, ns in blamed.items() if ns} == dict(expected)


@settings(few, max_examples=150)
@given(damaged_traces())
def test_lost_records_never_end_in_an_error(trace: Trace) -> None:
    figures, attribution = figures_of(trace), attribute(trace, RULES)
    attribution.check()
    assert figures.summary
    for device in figures.devices.values():
        known = [ns for ns in device.partition_ns.values() if ns is not None]
        if device.window is not None and len(known) == len(PARTS):
            assert sum(known) == device.window.wall_ns


@few
@given(traces(), st.integers(-(10**15), 10**18))
def test_origin_of_time_does_not_matter(trace: Trace, by: int) -> None:
    assert as_table(shifted(trace, by)) == as_table(trace)


@few
@given(traces(), st.permutations([0, 1, 2]))
def test_names_of_processes_do_not_matter(trace: Trace, order: list[int]) -> None:
    new = {100 + rank: 5_000 - 1_000 * order[rank] for rank in range(3)}
    assert as_table(renamed(trace, new)) == as_table(trace)


@few
@given(traces())
def test_numbers_of_streams_do_not_matter(trace: Trace) -> None:
    other = {**trace.ops.columns(), "stream": 1000 - 3 * trace.ops.stream}
    assert as_table(replace(trace, ops=type(trace.ops)(**other))) == as_table(trace)


@few
@given(traces())
def test_parts_do_not_depend_on_streams(trace: Trace) -> None:
    """Only the verdict looks at them: work behind a collective on its stream waits for its end, begun early or not."""
    split = {**trace.ops.columns(), "stream": np.arange(len(trace.ops)) + 1000}
    ours, theirs = (
        {name: (one.partition_ns, one.phase_partition_ns, one.collectives) for name, one in table.devices.items()}
        for table in (figures_of(replace(trace, ops=type(trace.ops)(**split))), figures_of(trace))
    )
    assert ours == theirs


@few
@given(traces(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(trace: Trace, random: object) -> None:
    order = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    # Ops with the same times stay in order: which of them ends a gap is decided by it.
    ops = trace.ops.take(order.permutation(len(trace.ops)))
    ops = ops.take(np.lexsort((ops.correlation, ops.pid, ops.end)))
    launches = trace.launches.take(order.permutation(len(trace.launches)))
    there = trace.ops.take(np.lexsort((trace.ops.correlation, trace.ops.pid, trace.ops.end)))
    assert as_table(replace(trace, ops=ops, launches=launches)) == as_table(replace(trace, ops=there))


@settings(few, max_examples=10)
@given(traces())
def test_saving_and_loading_changes_nothing(trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_bundle(trace, Path(folder) / "bundle")
        loaded = load_bundle(Path(folder) / "bundle")
    loaded.check()
    assert as_table(loaded) == as_table(trace)


def shifted(trace: Trace, by: int) -> Trace:
    """The trace with ``by`` added to every time."""

    def moved(table: Table) -> Table:
        columns = table.columns()
        return type(table)(**{n: v + by if n in ("start", "end", "created", "time") else v for n, v in columns.items()})

    return replace(trace, **{name: moved(table) for name, table in trace.tables().items()})


def renamed(trace: Trace, pids: dict[int, int]) -> Trace:
    """The trace with other process ids; the ranges are ordered by process again."""

    def told(table: Table) -> Table:
        columns = table.columns()
        if "pid" in columns:
            columns["pid"] = np.array([pids[pid] for pid in columns["pid"].tolist()], np.int64)
        return type(table)(**columns)

    tables = {name: told(table) for name, table in trace.tables().items()}
    ranges = tables["ranges"]
    assert isinstance(ranges, Ranges)
    order, depth, parent = nest(ranges.start, ranges.end, ranges.pid, ranges.tid)
    tables["ranges"] = Ranges(**(ranges.take(order).columns() | {"depth": depth, "parent": parent}))
    processes = tuple(replace(process, pid=pids[process.pid]) for process in trace.processes)
    return replace(trace, **tables, processes=processes)


intervals = st.lists(st.tuples(times, lengths), max_size=12)


def columns(found: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    ordered = sorted((start, start + length) for start, length in found)
    return np.array([s for s, _ in ordered], np.int64), np.array([e for _, e in ordered], np.int64)


@given(intervals)
def test_union(found: list[tuple[int, int]]) -> None:
    start, end = columns(found)
    covered = {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}
    assert union_length(start, end) == len(covered)
    merged = merge(start, end)
    assert {t for a, b in zip(*(m.tolist() for m in merged), strict=True) for t in range(a, b)} == covered
    assert np.all(merged[0][1:] > merged[1][:-1])


@given(intervals, st.lists(st.integers(-5, 80), max_size=8))
def test_covered_before(found: list[tuple[int, int]], asked: list[int]) -> None:
    start, end = columns(found)
    covered = {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}
    expected = [sum(t < time for t in covered) for time in asked]
    assert covered_before(*merge(start, end), np.array(asked, np.int64)).tolist() == expected


@given(intervals, st.lists(st.integers(-5, 80), max_size=8))
def test_latest_active(found: list[tuple[int, int]], asked: list[int]) -> None:
    start, end = columns(found)
    pairs = list(zip(start.tolist(), end.tolist(), strict=True))
    expected = [max((row for row, (a, b) in enumerate(pairs) if a <= t < b), default=-1) for t in asked]
    assert latest_active(start, end, np.array(asked, np.int64)).tolist() == expected


@few
@given(traces(), st.lists(st.tuples(times, lengths), max_size=6))
def test_time_of_any_interval(trace: Trace, found: list[tuple[int, int]]) -> None:
    plain, attribution = Plain(trace), attribute(trace, RULES)
    start, end = columns(found)
    for device, timeline in attribution.devices.items():
        totals = overlap_totals(timeline, start, end)
        got = {(PARTS[p], PHASES[f]): int(totals[p, f]) for p, f in zip(*np.nonzero(totals), strict=True)}
        expected = Counter[tuple[str, str]]()
        for a, b in zip(start.tolist(), end.tolist(), strict=True):
            expected += plain.cells(device, a, b) if b > a else Counter()
        assert got == dict(expected)


@few
@given(traces())
def test_launches_are_joined_by_process_and_id(trace: Trace) -> None:
    rows = launch_of_op(trace.ops, trace.launches).tolist()
    starts = [None if row < 0 else int(trace.launches.start[row]) for row in rows]
    assert starts == [op.launch and op.launch.start for op in Plain(trace).ops]
