"""Exports hold the target's environment, command line and output. Nothing of it may leave them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from profkit import open_trace, save_bundle
from profkit.cli import main
from tests.nsys_files import LAYOUTS, SECRET, small_step

PLAIN = SECRET.encode()


def planted(schema: str, folder: Path) -> Path:
    """An export with the secret in all its places, and in the same StringIds rows that kept rows refer to."""
    file = small_step(schema).with_secrets()
    # A recorder may join the environment to a name that is needed; what follows a NUL is not part of the name.
    file.call(60, 70, 3).kernel(300, 310, 3, name=f"rope_kernel\0API_KEY={SECRET}\0PATH=/bin")
    file.range(400, 500, f"kv_append\0API_KEY={SECRET}", registered=True)
    file.range(510, 520, f"accept\0API_KEY={SECRET}")
    return file.write(folder / "export.sqlite")


def everything_in(folder: Path) -> bytes:
    """All bytes of a bundle, as they are and with Parquet files decompressed."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    assert files
    raw = b"".join(file.read_bytes() for file in files)
    tables = (pq.read_table(file).to_pydict() for file in files if file.suffix == ".parquet")
    return raw + repr(list(tables)).encode()


@pytest.mark.parametrize("schema", LAYOUTS)
def test_bundle_holds_no_secret(schema: str, tmp_path: Path) -> None:
    file = planted(schema, tmp_path)
    assert PLAIN in file.read_bytes()
    trace = open_trace(file)
    save_bundle(trace, tmp_path / "bundle")
    assert PLAIN not in everything_in(tmp_path / "bundle")
    assert SECRET not in repr((trace.strings, trace.notes, trace.processes, trace.devices, trace.source, trace.run))


def test_names_before_a_nul_are_kept(tmp_path: Path) -> None:
    trace = open_trace(planted("3.20.3", tmp_path))
    assert "rope_kernel" in trace.strings
    assert {"kv_append", "accept"} <= set(trace.strings)


def test_imported_bundle_holds_no_secret(tmp_path: Path) -> None:
    file = planted("3.20.3", tmp_path)
    assert main(["import", str(file), "-o", str(tmp_path / "bundle")]) == 0
    assert PLAIN not in everything_in(tmp_path / "bundle")


def test_answers_hold_no_secret(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = planted("3.20.3", tmp_path)
    for arguments in (["analyze", str(file), "--json"], ["analyze", str(file)]):
        assert main(arguments) == 0
        shown = capfd.readouterr()
        assert shown.out and SECRET not in shown.out + shown.err


def test_page_holds_no_secret(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(planted("3.20.3", tmp_path)), "-o", str(page)]) == 0
    assert PLAIN not in page.read_bytes()


def test_only_strings_that_a_row_refers_to_are_kept(tmp_path: Path) -> None:
    file = small_step()
    file.string("a string of no row")
    assert "a string of no row" not in open_trace(file.write(tmp_path / "export.sqlite")).strings
