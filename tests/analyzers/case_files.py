"""Cases: an input in a small language and the table expected of it, side by side in one TOML file.

The input is read line by line; times are nanoseconds:

    rank 1                                   rows of rank 1 follow (process 101 and its main thread, GPU 1)
    device 1                                 ops of GPU 1 follow, of the same process
    thread 7                                 calls and ranges of thread 7 follow
    range 0 90 step:decode bs=1              an annotated range of profkit's domain
    other 0 90 draft                         a range of another domain
    call 10 20 cudaEventQuery                a host API call
    launch 10 20: gemm 30 40                 a launch call and its kernel or copy; `/9` behind it: on stream 9
    graph 10 20: gemm 30 40, gemm 45 50      a graph launch and its nodes; `60xgemm 30 90`: sixty of them, back to back
    orphan: gemm 30 40                       a kernel without a launch record
    comm 5 25 ncclAllReduce tp 4096          a call of a collective library: kind, communicator, bytes
    note world_size 2                        a note of the recorder
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.traces import Trace
from tests.builders import TraceBuilder

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    """One case: its trace and the expected tables, as the file has them."""

    name: str
    trace: Trace
    expected: dict[str, Any]


def load_cases() -> list[Case]:
    """All cases of the folder, by file and section."""
    found = []
    for file in sorted(FOLDER.glob("*.toml")):
        for name, case in tomllib.loads(file.read_text("utf-8")).items():
            trace = parse(case.pop("input"))
            assert case.pop("how").strip(), f"{file.name}: {name} does not say how its numbers were worked out"
            for device, parts in case.pop("blame", {}).items():
                case["devices"][device]["collectives"]["skew_blame_ns"] = parts
            found.append(Case(f"{file.stem}: {name}", trace, case))
    return found


def parse(text: str) -> Trace:
    """The trace that ``text`` describes."""
    builder = TraceBuilder().rank(0)
    for line in text.splitlines():
        words = line.split("#")[0].replace(":", " : ", 1).split() if line.split("#")[0].strip() else []
        if words:
            COMMANDS[words[0]](builder, line.split("#")[0].strip())
    return builder.trace()


def _range(builder: TraceBuilder, line: str) -> None:
    _, start, end, text = line.split(maxsplit=3)
    builder.range(int(start), int(end), text)


def _other(builder: TraceBuilder, line: str) -> None:
    _, start, end, text = line.split(maxsplit=3)
    builder.range(int(start), int(end), text, domain="elsewhere")


def _call(builder: TraceBuilder, line: str) -> None:
    _, start, end, api = line.split()
    builder.call(int(start), int(end), api)


def _ops(text: str) -> list[tuple[str, int, int, int]]:
    ops = []
    for part in text.split(","):
        name, start, end, *stream = part.split()
        count, _, name = name.rpartition("x") if name[0].isdecimal() else ("1", "", name)
        length = (int(end) - int(start)) // int(count)
        for begin in range(int(start), int(start) + int(count) * length, length) if length else (int(start),):
            ops.append((name, begin, begin + length, int(stream[0][1:]) if stream else 7))
    return ops


def _launch(builder: TraceBuilder, line: str) -> None:
    head, _, tail = line.partition(":")
    _, start, end = head.split()
    (op,) = _ops(tail)
    builder.launch(int(start), int(end), *op)


def _graph(builder: TraceBuilder, line: str) -> None:
    head, _, tail = line.partition(":")
    _, start, end = head.split()
    builder.call(int(start), int(end), "cudaGraphLaunch_v10000")
    for number, (name, node_start, node_end, stream) in enumerate(_ops(tail), 1):
        builder.node(name, node_start, node_end, stream, node=number)


def _orphan(builder: TraceBuilder, line: str) -> None:
    (op,) = _ops(line.partition(":")[2])
    builder.orphan(*op)


def _comm(builder: TraceBuilder, line: str) -> None:
    _, start, end, kind, communicator, size = line.split()
    builder.collective_call(int(start), int(end), kind, communicator, int(size))


def _note(builder: TraceBuilder, line: str) -> None:
    builder.note(*line.split(maxsplit=2)[1:])


COMMANDS: dict[str, Callable[[TraceBuilder, str], object]] = {
    "rank": lambda builder, line: builder.rank(int(line.split()[1])),
    "device": lambda builder, line: builder.device(int(line.split()[1])),
    "thread": lambda builder, line: builder.thread(int(line.split()[1])),
    "range": _range,
    "other": _other,
    "call": _call,
    "launch": _launch,
    "graph": _graph,
    "orphan": _orphan,
    "comm": _comm,
    "note": _note,
}
