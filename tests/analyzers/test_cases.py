"""Every case of the folder: the figures of its trace against the table beside its input."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from profkit import Recording, analyze
from tests.analyzers.case_files import Case, load_cases

COMPLETE = ("partition_ns", "phase_partition_ns", "skew_blame_ns", "nodes_per_launch", "phase_ns_median")
"""Tables whose every row counts: what the case does not name must be zero or absent."""


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_case(case: Case) -> None:
    analysis, attributions = analyze([Recording("case", "case", case.trace)])
    attributions[0].check()
    found = msgspec.to_builtins(analysis.traces[0])
    found["checks"] = {check["id"]: check["status"] for check in found["health"]["checks"]}
    assert _differences(case.expected, found) == []


def _differences(expected: Any, found: Any, where: str = "") -> list[str]:
    """Where ``found`` is not as ``expected``; tables need hold only what is expected, but for ``COMPLETE`` ones."""
    if isinstance(expected, dict):
        return _in_table(expected, found, where)
    if isinstance(expected, list):
        expected = tuple(expected)
    found = tuple(found) if isinstance(found, list) else found
    unknown = expected == "unknown" and found is None
    return [] if unknown or expected == found else [f"{where}: {found}, not {expected}"]


def _in_table(expected: dict[str, Any], found: Any, where: str) -> list[str]:
    if not isinstance(found, dict):
        return [f"{where}: {found}, not a table"]
    name = where.rpartition(".")[2]
    complete = name in COMPLETE or ".phase_partition_ns." in where
    extra = {key: value for key, value in found.items() if key not in expected and value} if complete else {}
    wrong = [f"{where}.{key}: {value}, not 0" for key, value in extra.items()]
    for key, value in expected.items():
        wrong += _differences(value, found.get(key), f"{where}.{key}")
    return wrong
