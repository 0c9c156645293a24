"""Merged call trees for flame graphs: GPU time of a device, and the host time of the calls that launched it.

Levels: step kind, phase, the ranges around the launch call, then modules (layers as one), class and kernel (GPU) or
API call (host).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from profkit.traces import I8, I64, UNKNOWN, Bools, Trace

from .arrays import distinct, occurring
from .attribution import Attribution
from .module_names import frames_of
from .modules import OpModules
from .shortnames import short_name
from .steps import DECODE, STEP
from .vocabulary import CLASSES, PHASES

LEVELS = ("root", "step", "phase", "range", "module", "class", "kernel", "api")
STEP_LABELS = ("step:prefill", "step:decode", "outside")
LIBRARY_DOMAINS = frozenset({"NCCL", "CCCL", "CUB", "cuBLAS", "cuDNN"})
ROOT, STEP_LEVEL, PHASE_LEVEL, RANGE, MODULE, CLASS_LEVEL, KERNEL, API = range(len(LEVELS))


@dataclass(frozen=True, slots=True, eq=False)
class Flame:
    """A call tree as columns; row 0 is the root and parents come before their children.

    ``label`` and ``name`` index ``strings``: the short text and the full one; ``level`` indexes ``LEVELS``.
    ``self_ns`` is a frame's own time, ``total_ns`` with its children's; ``count`` the ops or launches in both.
    ``steps`` is the number of decode steps the times speak of.
    """

    parent: I64
    label: I64
    name: I64
    level: I8
    self_ns: I64
    total_ns: I64
    count: I64
    strings: tuple[str, ...]
    steps: int

    def check(self) -> None:
        """Raise ``ValueError`` unless each frame's time is its own and its children's."""
        children = np.zeros(len(self.parent), np.int64)
        np.add.at(children, self.parent[1:], self.total_ns[1:])
        if np.any(children + self.self_ns != self.total_ns):
            raise ValueError("a frame's time differs from its own and its children's")
        if np.any(self.parent[1:] >= np.arange(1, len(self.parent))):
            raise ValueError("a frame comes before its parent")


@dataclass(slots=True)
class _Tree:
    """Rows put under the root, pushed down level by level until each has its leaf."""

    node: I64
    strings: dict[str, int] = field(default_factory=dict)
    columns: list[tuple[I64, I64, I64, int]] = field(default_factory=list)
    size: int = 1

    def text(self, text: str) -> int:
        """The id of ``text``."""
        return self.strings.setdefault(text, len(self.strings))

    def push(self, level: int, rows: Bools, value: I64, labels: Sequence[str], names: Sequence[str]) -> None:
        """Move ``rows`` into children of their nodes, one child for each distinct ``value``."""
        at = np.flatnonzero(rows)
        width = len(labels) + 1
        keys, child = np.unique(self.node[at] * width + value[at], return_inverse=True)
        number = keys % width
        label = np.array([self.text(labels[n]) for n in number.tolist()], np.int64)
        name = np.array([self.text(names[n]) for n in number.tolist()], np.int64)
        self.columns.append((keys // width, label, name, level))
        self.node[at] = self.size + child
        self.size += len(keys)

    def finish(self, duration: I64, steps: int) -> Flame:
        """The tree with ``duration`` summed up in it."""
        root = (np.zeros(1, np.int64), np.array([self.text("all")]), np.array([self.text("all")]), ROOT)
        columns = [root, *self.columns]
        own = np.zeros(self.size, np.int64)
        count = np.zeros(self.size, np.int64)
        np.add.at(own, self.node, duration)
        np.add.at(count, self.node, 1)
        parent = np.concatenate([column[0] for column in columns])
        parent[0] = -1
        total = own.copy()
        end = self.size
        for block in reversed(self.columns):
            begin = end - len(block[0])
            for column in (total, count):
                np.add.at(column, parent[begin:end], column[begin:end])
            end = begin
        return Flame(
            parent=parent,
            label=np.concatenate([column[1] for column in columns]),
            name=np.concatenate([column[2] for column in columns]),
            level=np.concatenate([np.full(len(column[0]), column[3], np.int8) for column in columns]),
            self_ns=own,
            total_ns=total,
            count=count,
            strings=tuple(self.strings),
            steps=steps,
        )


def gpu_flame(attribution: Attribution, device: int, *, window: bool = True, modules: bool = True) -> Flame:
    """GPU time of ``device``: the sum of op durations, clipped to the decode window unless ``window`` is false.

    Without ``modules`` the levels of modules are left out.
    """
    ops = attribution.trace.ops
    row, duration = _ops_of(attribution, device, window)
    tree = _Tree(np.zeros(len(row), np.int64))
    _push_host(tree, attribution, row)
    if modules:
        _push_modules(tree, attribution.modules, row)
    every = np.ones(len(row), np.bool_)
    tree.push(CLASS_LEVEL, every, attribution.kernel_class[row].astype(np.int64), CLASSES, CLASSES)
    _push_kernels(tree, attribution.trace, every, ops.name[row].astype(np.int64))
    return tree.finish(duration, decode_steps(attribution, device))


def host_flame(attribution: Attribution, device: int, *, window: bool = True) -> Flame:
    """Host time of the calls that launched the ops of ``gpu_flame``; each call counts once, with its first op.

    A graph launch is one frame, named after its API call and its number of nodes; calls are not clipped.
    """
    trace = attribution.trace
    row, _ = _ops_of(attribution, device, window)
    row = row[attribution.launch[row] >= 0]
    order = np.lexsort((row, trace.ops.start[row], attribution.launch[row]))
    launch, first = np.unique(attribution.launch[row[order]], return_index=True)
    row = row[order][first]
    tree = _Tree(np.zeros(len(row), np.int64))
    _push_host(tree, attribution, row)
    graph = trace.ops.graph_launch[row] >= 0
    number, labels = _api_labels(attribution, launch, graph)
    tree.push(API, np.ones(len(row), np.bool_), number, labels, labels)
    tree.push(CLASS_LEVEL, ~graph, attribution.kernel_class[row].astype(np.int64), CLASSES, CLASSES)
    _push_kernels(tree, trace, ~graph, trace.ops.name[row].astype(np.int64))
    launches = trace.launches
    return tree.finish(launches.end[launch] - launches.start[launch], decode_steps(attribution, device))


def decode_steps(attribution: Attribution, device: int) -> int:
    """How many decode steps have ops on ``device``."""
    mine = (attribution.trace.ops.device == device) & attribution.in_decode
    return len(occurring(attribution.step[mine]))


def _ops_of(attribution: Attribution, device: int, window: bool) -> tuple[I64, I64]:
    """Rows of the ops of ``device`` and their durations, of the window or of the whole trace."""
    ops, timeline = attribution.trace.ops, attribution.devices[device]
    row = np.flatnonzero(ops.device == device)
    start, end = ops.start[row], ops.end[row]
    if window:
        if timeline.window_start is None or timeline.window_end is None:
            return row[:0], start[:0]
        start = np.maximum(start, timeline.window_start)
        end = np.minimum(end, timeline.window_end)
        inside = end > start
        row, start, end = row[inside], start[inside], end[inside]
    return row, end - start


def _push_host(tree: _Tree, attribution: Attribution, row: I64) -> None:
    """Step kind, phase, and the ranges in which the launch call started."""
    every = np.ones(len(row), np.bool_)
    step, steps = attribution.step[row], attribution.plan.steps
    kind = np.full(len(row), STEP_LABELS.index("outside"), np.int64)
    inside = step >= 0
    kind[inside] = np.where(steps.kind[step[inside]] == DECODE, 1, 0)
    tree.push(STEP_LEVEL, every, kind, STEP_LABELS, STEP_LABELS)
    # An op outside of steps has that one phase; a level that repeats its parent says nothing.
    tree.push(PHASE_LEVEL, inside, attribution.phase[row].astype(np.int64), PHASES, PHASES)
    strings = attribution.trace.strings
    path, depth = _range_paths(attribution.trace, attribution.range[row])
    for place in range(path.shape[1]):
        tree.push(RANGE, depth > place, path[:, place], strings, strings)


def _push_modules(tree: _Tree, modules: OpModules, row: I64) -> None:
    """The modules around each op, layers as one."""
    if not modules.names:
        return
    paths = [frames_of(text) for text in modules.names]
    labels = sorted({frame for path in paths for frame in path})
    place = {label: number for number, label in enumerate(labels)}
    deepest = max(len(path) for path in paths)
    table = np.full((len(paths) + 1, deepest), UNKNOWN, np.int64)
    for number, path in enumerate(paths):
        table[number, : len(path)] = [place[frame] for frame in path]
    own = table[modules.of_op[row]]
    for level in range(deepest):
        tree.push(MODULE, own[:, level] >= 0, own[:, level], labels, labels)


def _range_paths(trace: Trace, innermost: I64) -> tuple[I64, I64]:
    """Texts of the ranges around ``innermost``, outermost first, and their number; steps themselves left out."""
    used = distinct(innermost)
    outwards = _texts_outwards(trace, used)
    depth = np.zeros(len(used), np.int64)
    for text in outwards:
        depth += text >= 0
    path = np.zeros((len(used), int(depth.max(initial=0))), np.int64)
    place = depth.copy()
    for text in outwards:
        shown = np.flatnonzero(text >= 0)
        place[shown] -= 1
        path[shown, place[shown]] = text[shown]
    at = np.searchsorted(used, innermost)
    return path[at], depth[at]


def _texts_outwards(trace: Trace, row: I64) -> list[I64]:
    """Texts of ranges ``row``, of their parents, and so on; ``UNKNOWN`` for what is not shown or no longer there.

    Steps are not shown, having a level of their own, nor are ranges of libraries: they stand around a launch, and so
    are missing in a graph, which would set apart what class and kernel call alike.
    """
    ranges = trace.ranges
    library = np.array([*(text in LIBRARY_DOMAINS for text in trace.strings), False])
    shown = np.zeros(len(trace.strings) + 1, np.bool_)
    for number in np.unique(ranges.text).tolist():
        shown[number] = number >= 0 and not STEP.match(trace.strings[number])
    levels = []
    while np.any(row >= 0):
        text = np.where((row >= 0) & ~library[ranges.domain[row]], ranges.text[row], UNKNOWN)
        levels.append(np.where(shown[text], text, UNKNOWN))
        row = np.where(row >= 0, ranges.parent[row], UNKNOWN)
    return levels


def _push_kernels(tree: _Tree, trace: Trace, rows: Bools, name: I64) -> None:
    numbers, place = np.unique(name, return_inverse=True)
    names = [trace.strings[number] if number >= 0 else "(no name)" for number in numbers.tolist()]
    tree.push(KERNEL, rows, place, [short_name(text) for text in names], names)


def _api_labels(attribution: Attribution, launch: I64, graph: Bools) -> tuple[I64, list[str]]:
    """A label for each launch: the API call, and for graphs how many ops it owns."""
    owned = attribution.launch[attribution.launch >= 0]
    nodes = np.bincount(owned, minlength=len(attribution.trace.launches))[launch]
    nodes[~graph] = 0
    width = int(nodes.max(initial=0)) + 1
    pairs, number = np.unique(
        attribution.trace.launches.api[launch].astype(np.int64) * width + nodes, return_inverse=True
    )
    labels = []
    for pair in pairs.tolist():
        api, count = divmod(pair, width)
        text = attribution.trace.strings[api] if api >= 0 else "(unknown call)"
        labels.append(f"{text} ({count:,} node{'s' * (count != 1)})" if count else text)
    return number, labels
