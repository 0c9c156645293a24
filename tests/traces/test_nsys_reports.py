"""Exports stored as Parquet, and reports and raw streams that a real Nsight Systems turns into exports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from profkit import InputError, Trace, open_trace
from profkit.traces.nsys_export import find_nsys, import_stream, is_stream
from profkit.traces.open import REPORT_MAGIC
from tests.nsys_files import LAYOUTS, small_step, to_parquet


@pytest.mark.parametrize("schema", LAYOUTS)
def test_parquet_folder(schema: str, tmp_path: Path) -> None:
    file = small_step(schema).copy(300, 310, 2).graph_node(-5, 3, 2).with_secrets().write(tmp_path / "export.sqlite")
    plain, columns = open_trace(file), open_trace(to_parquet(file, tmp_path / "export"))
    for name, table in plain.tables().items():
        for column, values in table.columns().items():
            assert np.array_equal(values, getattr(columns.tables()[name], column)), f"{name}.{column}"
    assert (columns.strings, columns.notes, columns.processes) == (plain.strings, plain.notes, plain.processes)
    assert columns.source.schema_version == schema


def test_damaged_parquet(tmp_path: Path) -> None:
    folder = to_parquet(small_step().write(tmp_path / "export.sqlite"), tmp_path / "export")
    (folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(InputError, match=r"CUPTI_ACTIVITY_KIND_KERNEL\.parquet: damaged"):
        open_trace(folder)


RECORDED = """
import nvtx
for number in range(3):
    with nvtx.annotate("step:decode bs=2", domain="profkit"):
        with nvtx.annotate("target", domain="profkit"):
            pass
"""


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a real nsys leaves of a programme without a GPU: a report or, from some packages, a raw stream."""
    pytest.importorskip("nvtx")
    nsys, folder = find_nsys(), tmp_path_factory.mktemp("nsys")
    if nsys is None:
        pytest.skip("nsys is not installed")
    (folder / "program.py").write_text(RECORDED, "utf-8")
    command = [nsys, "profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", folder / "rec"]
    subprocess.run([*command, sys.executable, folder / "program.py"], capture_output=True, timeout=120, check=False)
    found = [*folder.glob("rec.nsys-rep"), *folder.glob("rec.qdstrm")]
    assert found, "nsys left no report"
    return found[0]


def check_steps(trace: Trace) -> None:
    strings, ranges = trace.strings, trace.ranges
    texts = [strings[t] for t, d in zip(ranges.text, ranges.domain, strict=True) if strings[d] == "profkit"]
    assert sorted(texts) == ["step:decode bs=2"] * 3 + ["target"] * 3
    assert trace.ranges.parent[trace.ranges.depth == 1].min() >= 0


def test_report_through_nsys(stream: Path) -> None:
    check_steps(open_trace(stream))


def test_report_made_of_a_stream(stream: Path, tmp_path: Path) -> None:
    nsys = find_nsys()
    assert nsys is not None
    report = import_stream(stream, tmp_path, nsys) if is_stream(stream) else stream
    assert report.read_bytes().startswith(REPORT_MAGIC)
    hidden = tmp_path / "hidden.sqlite"
    hidden.write_bytes(report.read_bytes())
    for path in (report, hidden):
        check_steps(open_trace(path))


def test_report_under_another_name(stream: Path, tmp_path: Path) -> None:
    """Detection looks at the content; nsys itself insists on its own names."""
    renamed = tmp_path / "meaningless.json"
    renamed.write_bytes(stream.read_bytes())
    check_steps(open_trace(renamed))
    assert sorted(tmp_path.iterdir()) == [renamed]


def test_report_without_nsys(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS", "/nowhere/nsys")
    with pytest.raises(InputError, match=r"nsys is not installed here; install Nsight Systems"):
        open_trace(stream)


def test_report_with_an_nsys_that_is_too_old(stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "nsys"
    old.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2020.3.4.32-52657a0\n", "utf-8")
    old.chmod(0o755)
    monkeypatch.setenv("NSYS", str(old))
    with pytest.raises(InputError, match=r"nsys 2020\.3\.4 is too old"):
        open_trace(stream)


def test_report_that_nsys_refuses(tmp_path: Path) -> None:
    if find_nsys() is None:
        pytest.skip("nsys is not installed")
    broken = tmp_path / "rec.nsys-rep"
    broken.write_bytes(b"NVIDIA Tegra Profiler Report" + b"\0" * 200)
    with pytest.raises(InputError, match=r"rec\.nsys-rep: nsys could not read it"):
        open_trace(broken)
