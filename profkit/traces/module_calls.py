"""The plugin's record of graph captures: ``modules-PID.jsonl.gz``, one line per captured graph.

The format is described where it is written, in ``profkit.sglang.modules``.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from .errors import InputError
from .model import UNKNOWN, ModuleCalls, Note, Trace
from .strings import StringTable


class CapturedGraph(msgspec.Struct, kw_only=True):
    """One line of the file: a capture, and its module calls as columns; ``names`` are those not seen before."""

    graph: str
    batch_size: int | None
    role: str
    tid: int
    clocks: dict[str, int]
    names: list[str]
    name: list[int]
    depth: list[int]
    start_ns: list[int]
    end_ns: list[int]


def module_file(folder: Path, pid: int) -> Path:
    """Where the plugin of process ``pid`` leaves its record."""
    return folder / f"modules-{pid}.jsonl.gz"


def read_captured_graphs(path: Path) -> tuple[CapturedGraph, ...]:
    """The graphs of a ``modules-PID.jsonl.gz``, in the order of their capture.

    Raises ``InputError`` where the file is cut off or damaged.
    """
    advice = "remove it to do without the names of modules"
    try:
        lines = gzip.decompress(path.read_bytes()).splitlines()
        return tuple(msgspec.json.decode(line, type=CapturedGraph) for line in lines)
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError) as error:
        raise InputError(path, f"no record of module calls ({error})", advice) from error


def with_module_calls(trace: Trace, folder: Path) -> Trace:
    """``trace`` with the module calls that the plugin left in ``folder`` for its processes.

    A file that cannot be read becomes a warning of the trace: its figures do not rest on names of modules.
    """
    strings = StringTable()
    strings.ids(trace.strings)
    tables, notes = [], []
    for pid in np.unique(trace.graph_nodes.pid).tolist():
        file = module_file(folder, pid)
        if not file.is_file():
            continue
        try:
            tables.append(_table(read_captured_graphs(file), pid, strings))
        except InputError as error:
            notes.append(Note("warning", str(error)))
    if not tables and not notes:
        return trace
    calls = ModuleCalls.join(tables)
    return replace(trace, module_calls=calls, strings=strings.freeze(), notes=(*trace.notes, *notes))


def _table(graphs: tuple[CapturedGraph, ...], pid: int, strings: StringTable) -> ModuleCalls:
    names: list[str] = []
    parts = []
    for number, graph in enumerate(graphs):
        names += graph.names
        count = len(graph.name)
        size = UNKNOWN if graph.batch_size is None else graph.batch_size
        parts.append(
            ModuleCalls(
                pid=np.full(count, pid),
                tid=np.full(count, graph.tid),
                graph=np.full(count, number),
                batch_size=np.full(count, size),
                role=np.full(count, strings.id(graph.role)),
                start=np.array(graph.start_ns, np.int64),
                end=np.array(graph.end_ns, np.int64),
                depth=np.array(graph.depth, np.int32),
                name=strings.ids(names[place] for place in graph.name),
            )
        )
    return ModuleCalls.join(parts)
