"""Throughput tables: tokens per second by configuration and concurrency, as engineers note them without a recorder."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path

import msgspec

from .errors import InputError

SCHEMA = "profkit.throughput/1"
PEAK = "peak"
_MARK = re.compile(rb"^\s*\"?schema\"?\s*=\s*[\"']profkit\.throughput/", re.MULTILINE)
_CONCURRENCY = re.compile(r"[1-9][0-9]{0,8}")
_HEAD = 65_536


class ThroughputRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration. ``tokens_per_s`` is the rate of the whole server by concurrency; what is missing is unknown.

    Concurrencies are whole numbers, or ``peak`` for the best rate at a concurrency that is not known. A run is
    speculative if it has an ``accept_len``, in tokens per cycle; ``accept_len_range`` is what it was measured between.
    ``parallelism`` (such as ``EP8``) and ``graphs`` tell which runs are alike; unknown if not given.
    """

    name: str
    tokens_per_s: dict[str, float]
    parallelism: str | None = None
    graphs: bool | None = None
    accept_len: float | None = None
    accept_len_range: tuple[float, float] | None = None
    note: str = ""


class ThroughputTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs of one model on one machine. ``source`` says where the figures come from."""

    schema: str
    title: str
    source: str
    runs: tuple[ThroughputRun, ...] = msgspec.field(name="run")
    note: str = ""

    @property
    def concurrencies(self) -> tuple[str, ...]:
        """The concurrencies that any run has, in ascending order; ``peak`` last."""
        found = {at for run in self.runs for at in run.tokens_per_s}
        return tuple(sorted(found, key=lambda at: math.inf if at == PEAK else int(at)))

    @property
    def notes(self) -> str:
        """The note of the table, and behind it each run's with its name, on one line."""
        noted = [self.note, *(f"{run.name}: {run.note}" for run in self.runs if run.note.strip())]
        lines = [" ".join(note.split()) for note in noted]
        return " ".join(line if line.endswith(".") else f"{line}." for line in lines if line)


def is_throughput_table(path: Path) -> bool:
    """Whether ``path`` is a file that says it is a throughput table; its name does not matter."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return _MARK.search(file.read(_HEAD)) is not None
    except OSError as error:
        raise InputError(path, f"cannot read ({error.strerror})", "check its permissions") from error


def read_throughput(path: Path) -> ThroughputTable:
    """The throughput table in the TOML file ``path``.

    Raises ``InputError`` where it is none, or holds what cannot be a rate, an accept length or a concurrency.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        table = msgspec.convert(content, ThroughputTable)
    except OSError as error:
        raise InputError(path, f"cannot read ({error.strerror})", "check its permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InputError(path, f"no throughput table ({error})", "see docs/analyzers.md for the form") from error
    if table.schema != SCHEMA:
        raise InputError(path, f"unknown schema '{table.schema}'", f"update profkit, or write it as {SCHEMA}")
    for fault in _faults(table):
        raise InputError(path, fault, "correct it, or leave out what is unknown")
    return table


def _faults(table: ThroughputTable) -> list[str]:
    names = [run.name for run in table.runs]
    faults = [] if names else ["the table holds no [[run]]"]
    faults += [f"two runs are named '{name}'" for name in sorted({name for name in names if names.count(name) > 1})]
    return faults + [fault for run in table.runs for fault in _faults_of(run)]


def _faults_of(run: ThroughputRun) -> list[str]:
    faults = [
        f"'{at}' in run '{run.name}' is no concurrency (a whole number, or {PEAK})"
        for at in run.tokens_per_s
        if at != PEAK and not _CONCURRENCY.fullmatch(at)
    ]
    faults += [
        f"{rate:g} tokens/s at {at} in run '{run.name}' is no rate"
        for at, rate in run.tokens_per_s.items()
        if not (math.isfinite(rate) and rate > 0)
    ]
    lengths = (run.accept_len, *(run.accept_len_range or ()))
    faults += [
        f"{length:g} in run '{run.name}' is no accept length (at least 1)"
        for length in lengths
        if length is not None and not (math.isfinite(length) and length >= 1)
    ]
    return faults + _contradictions(run)


def _contradictions(run: ThroughputRun) -> list[str]:
    """What the range of accept lengths says against itself or the accept length."""
    if run.accept_len_range is None:
        return []
    low, high = run.accept_len_range
    told = f"accept_len_range [{low:g}, {high:g}] in run '{run.name}'"
    if low > high:
        return [f"{told} begins above its end"]
    if run.accept_len is None:
        return [f"{told} has no accept_len beside it, so the run would count as a plain one"]
    return [] if low <= run.accept_len <= high else [f"{told} does not hold its accept_len, {run.accept_len:g}"]
