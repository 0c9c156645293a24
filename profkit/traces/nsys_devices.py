"""Which GPU an Nsight Systems export speaks of: a process that sees a single one calls it 0, whichever it is."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count

import numpy as np

from .model import I32, Note, OpKind, Ops, Ranges
from .nsys_tables import NsysTables

STEP = re.compile(r"^step[:\[]")
"""How ranges of an engine's steps begin: profkit's plugin, and SGLang's own annotations."""

MIN_SHARE = 0.1
"""A process with fewer kernels, by this factor, than the busiest one of its device number is a helper of it."""

Numbers = dict[tuple[int, int], int]
"""The host's GPU number by process and the number that the process calls it by."""


def gpu_numbers(tables: NsysTables) -> Numbers:
    """What the recorder says of each process's devices, where it says one thing only."""
    said: dict[tuple[int, int], set[int]] = {}
    for gpu, cuda, pid in tables.rows("TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid"]):
        if None not in (gpu, cuda, pid):
            said.setdefault((pid, cuda), set()).add(gpu)
    return {key: gpus.pop() for key, gpus in said.items() if len(gpus) == 1}


def on_host_numbers(ops: Ops, numbers: Numbers) -> Ops:
    """``ops`` with the device numbers of the host where they are known."""
    device: I32 = ops.device.copy()
    for (pid, cuda), gpu in numbers.items():
        if gpu != cuda:
            device[(ops.pid == pid) & (ops.device == cuda)] = gpu
    return replace(ops, device=device)


def with_own_devices(
    ops: Ops, ranges: Ranges, strings: tuple[str, ...], numbers: Numbers
) -> tuple[Ops, tuple[Note, ...]]:
    """``ops`` with a device number for each engine process that has none of its own, and a note where that was done.

    Processes that share a number are told apart unless the recorder says that they share a GPU.
    """
    known = {(pid, gpu) for (pid, _), gpu in numbers.items()}
    device, notes = ops.device.copy(), []
    used = np.unique(ops.device).tolist()
    fresh = (number for number in count() if number not in used)
    for number in used:
        engines = _engines(ops, ranges, strings, number)
        if len(engines) < 2 or all((pid, number) in known for pid in engines):
            continue
        for pid in engines[1:]:
            device[(ops.pid == pid) & (ops.device == number)] = next(fresh)
        text = f"{len(engines)} processes call their GPU {number}, and nothing recorded tells whether it is one GPU"
        notes.append(Note("warning", f"{text}: each is taken to have a GPU of its own"))
    return (replace(ops, device=device), tuple(notes)) if notes else (ops, ())


def _engines(ops: Ops, ranges: Ranges, strings: tuple[str, ...], device: int) -> list[int]:
    """Processes that run kernels on ``device``: those with step ranges if there are any, else all but helpers."""
    running = np.isin(ops.kind, (OpKind.KERNEL, OpKind.GRAPH))
    pids, counts = np.unique(ops.pid[(ops.device == device) & running], return_counts=True)
    texts = np.array([bool(STEP.match(text)) for text in strings] or [False])
    stepping = np.unique(ranges.pid[texts[ranges.text]]) if len(ranges) else pids[:0]
    busy = counts >= MIN_SHARE * counts.max(initial=0)
    chosen = pids[np.isin(pids, stepping)] if np.any(np.isin(pids, stepping)) else pids[busy]
    found: list[int] = chosen.tolist()
    return found
