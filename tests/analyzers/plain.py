"""The definitions of the attribution once more, as plain loops over rows: slow, and easy to check against the design.

Only what annotated traces need: steps and phases by profkit's own ranges. Ties, which the definitions leave open: of
ops that start together the one that ends first (then: the earlier row) stands for the gap before them, and the one
that ends last (then: the later row) counts as the latest-started one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from profkit.analyzers import load_rules
from profkit.analyzers.rules import Rules
from profkit.traces import UNKNOWN, OpKind, Trace

RULES = load_rules()
Cells = Counter[tuple[str, str]]
LABELS = {"prepare": "draft", "draft": "draft", "draft_sample": "draft", "target": "verify", "accept": "accept"}
LABELS |= {"accept_sim": "accept", "kv_append": "kv_append"}


@dataclass(frozen=True)
class Call:
    start: int
    end: int
    thread: tuple[int, int]
    blocking: bool


@dataclass(frozen=True)
class Op:
    row: int
    start: int
    end: int
    device: int
    part: str
    phase: str
    step: int | None
    graph: tuple[int, int] | None
    launch: Call | None


class Plain:
    """The figures of one trace, by the book."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.rules = RULES
        self.ops = [self._op(row) for row in range(len(trace.ops))]

    @cached_property
    def calls(self) -> list[Call]:
        launches, strings = self.trace.launches, self.trace.strings
        rows = zip(launches.start, launches.end, launches.pid, launches.tid, launches.api, strict=True)
        return [
            Call(int(start), int(end), (int(pid), int(tid)), bool(Rules.match(self.rules.blocking, strings[api])))
            for start, end, pid, tid, api in rows
        ]

    @cached_property
    def ranges(self) -> list[tuple[int, int, tuple[int, int], str]]:
        table, strings = self.trace.ranges, self.trace.strings
        rows = zip(table.start, table.end, table.pid, table.tid, table.text, strict=True)
        return [(int(start), int(end), (int(pid), int(tid)), strings[text]) for start, end, pid, tid, text in rows]

    def _op(self, row: int) -> Op:
        ops = self.trace.ops
        launch = self._launch(int(ops.pid[row]), int(ops.correlation[row]))
        graph = int(ops.graph_launch[row])
        return Op(
            row, int(ops.start[row]), int(ops.end[row]), int(ops.device[row]), self._part(row), *self._phase(launch),
            (int(ops.pid[row]), graph) if graph != UNKNOWN else None, launch,
        )  # fmt: skip

    def _launch(self, pid: int, correlation: int) -> Call | None:
        launches = self.trace.launches
        found = [
            self.calls[row]
            for row in range(len(launches))
            if correlation != UNKNOWN and (launches.pid[row], launches.correlation[row]) == (pid, correlation)
        ]
        return min(found, key=lambda call: call.start, default=None)

    def _part(self, row: int) -> str:
        if Rules.match(self.rules.collectives, self.trace.strings[self.trace.ops.name[row]]):
            return "collective"
        return "copy" if self.trace.ops.kind[row] in (OpKind.MEMCPY, OpKind.MEMSET) else "compute"

    def _phase(self, launch: Call | None) -> tuple[str, int | None]:
        """The phase of what ``launch`` enqueued, and its decode step (a row of ``ranges``)."""
        open_now = [
            (start, -end, row)
            for row, (start, end, thread, _) in enumerate(self.ranges)
            if launch is not None and thread == launch.thread and start <= launch.start < end
        ]
        texts = [(self.ranges[row][3], row) for _, _, row in sorted(open_now, reverse=True)]
        step = next(((text, row) for text, row in texts if text.startswith("step:")), None)
        if step is None:
            return "outside", None
        if step[0].startswith("step:prefill"):
            return "prefill", None
        phase = next(LABELS.get(text, "step_other") for text, _ in texts if text in LABELS or text == step[0])
        return "decode" if phase == "verify" and not self._drafts(step[1]) else phase, step[1]

    def _drafts(self, step: int) -> bool:
        start, end, thread, _ = self.ranges[step]
        return any(
            LABELS.get(text) == "draft" and where == thread and start <= begin < end
            for begin, _, where, text in self.ranges
        )

    def window(self, device: int) -> tuple[int, int] | None:
        mine = [op for op in self.ops if op.device == device and op.step is not None]
        return (min(op.start for op in mine), max(op.end for op in mine)) if mine else None

    def cells(self, device: int, low: int, high: int) -> Cells:
        """Nanoseconds by part and phase in ``[low, high)``; before the first and behind the last op: unknown."""
        mine = [op for op in self.ops if op.device == device]
        points = {low, high, *(t for op in mine for t in (op.start, op.end) if low < t < high)}
        total: Cells = Counter()
        for a, b in zip(sorted(points), sorted(points)[1:], strict=False):
            running = [op for op in mine if op.start <= a < op.end]
            if running:
                part = next(p for p in ("compute", "collective", "copy") if any(op.part == p for op in running))
                decides = max((op for op in running if op.part == part), key=lambda op: (op.start, op.end, op.row))
                total[part, decides.phase] += b - a
            else:
                total += self._gap(mine, a, b)
        return +total

    def _gap(self, mine: list[Op], low: int, high: int) -> Cells:
        """The stretch ``[low, high)`` of a gap, or of the time before the first or behind the last op."""
        before = [op.end for op in mine if op.end <= low]
        after = [op for op in mine if op.start >= high]
        if not before or not after:
            return Counter({("gap_unknown", "outside"): high - low})
        begin, behind = max(before), min(after, key=lambda op: (op.start, op.end))
        return Counter({(part, behind.phase): ns for part, ns in self._cause(mine, begin, behind, low, high).items()})

    def _cause(self, mine: list[Op], begin: int, behind: Op, low: int, high: int) -> Counter[str]:
        launch = behind.launch
        if launch is None:
            return Counter({"gap_unknown": high - low})
        if launch.start < begin:
            return Counter({self._early(mine, begin, behind): high - low})
        host = Counter(self._doing(launch.thread, t) for t in range(low, min(high, launch.start)))
        rest = "gap_graph_launch" if behind.graph else "gap_launch"
        return host + Counter({rest: max(0, high - max(low, launch.start))})

    def _early(self, mine: list[Op], begin: int, behind: Op) -> str:
        if behind.graph is None:
            return "gap_queue"
        if any(op.end == begin and op.graph == behind.graph for op in mine):
            return "gap_in_graph"
        first = min((op for op in mine if op.graph == behind.graph), key=lambda op: (op.start, op.end))
        return "gap_graph_launch" if first is behind else "gap_queue"

    def _doing(self, thread: tuple[int, int], time: int) -> str:
        inside = [call for call in self.calls if call.thread == thread and call.start <= time < call.end]
        return "gap_sync" if any(call.blocking for call in inside) else "gap_api" if inside else "gap_host"
